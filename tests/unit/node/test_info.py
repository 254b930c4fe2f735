from __future__ import annotations

import pytest

from agent.node.info import make_info, make_status, parse_info, parse_status, republished

VERSIONS = ("v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1.DRAPlugin", "news")
UNKNOWN = b"\x4a\x03new"  # field 9


def test_the_versions_keep_their_order_and_an_unknown_field_stays() -> None:
    raw = make_info(name="gpu.example.com", endpoint="/driver.sock", versions=VERSIONS) + UNKNOWN
    info = parse_info(raw)
    assert (info.type, info.name, info.endpoint) == (
        "DRAPlugin",
        "gpu.example.com",
        "/driver.sock",
    )
    again = republished(info, "/ours.sock", plugin_only=False)
    assert parse_info(again).versions == VERSIONS
    assert parse_info(again).endpoint == "/ours.sock"
    assert UNKNOWN in again


def test_overlay_lists_only_the_plugin_services() -> None:
    info = parse_info(make_info(name="n", endpoint="", versions=VERSIONS))
    again = parse_info(republished(info, "/ours.sock", plugin_only=True))
    assert again.versions == ("v1beta1.DRAPlugin", "v1.DRAPlugin")
    assert again.versions == info.plugin_versions


@pytest.mark.parametrize("raw", [b"\x0a\x05ab", b"\xff", b"\x12\x02\xff\xff"])
def test_bytes_that_are_no_info_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="PluginInfo"):
        parse_info(raw)


def test_status() -> None:
    assert parse_status(make_status(registered=True)) == (True, "")
    assert parse_status(make_status(registered=False, error="no")) == (False, "no")
    assert parse_status(b"") == (False, "")
    with pytest.raises(ValueError, match="RegistrationStatus"):
        parse_status(b"\xff")
