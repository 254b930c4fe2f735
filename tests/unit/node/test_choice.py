from __future__ import annotations

from pathlib import Path

import pytest

from agent.node.choice import Choice
from agent.node.info import make_info, parse_info


def refusal(choice: Choice, name: str, endpoint: str = "/x/dra.sock") -> str:
    raw = make_info(name=name, endpoint=endpoint, versions=("v1.DRAPlugin",))
    return choice.refusal(parse_info(raw), endpoint)


def test_deny_wins_and_only_is_alone() -> None:
    choice = Choice(allow=["*.example.com"], deny=["gpu?.example.com"])
    assert choice.serves("nic.example.com")
    assert not choice.serves("gpu1.example.com")
    assert not choice.serves("nic.example.org")
    assert Choice(only="a").serves("a")
    assert not Choice(only="a").serves("b")
    assert not Choice(only="a", deny=["*"]).serves("a")


def test_a_driver_is_taken() -> None:
    assert refusal(Choice(), "gpu.example.com") == ""


@pytest.mark.parametrize(
    "name", ["", "Gpu.example.com", "a/b", "x\n", "a..b", "-a", "a" * 64, "\x1b[31mred"]
)
def test_hostile_names_are_refused_in_one_safe_line(name: str) -> None:
    said = refusal(Choice(), name)
    assert said.endswith("is not a driver name")
    assert said.isprintable()


def test_other_plugins_and_drivers_without_a_known_service_are_refused() -> None:
    csi = parse_info(b"\x0a\x09CSIPlugin\x12\x03csi")
    assert "CSIPlugin" in Choice().refusal(csi, "/x/csi.sock")
    health = parse_info(make_info(name="n", endpoint="", versions=("v1.DRAResourceHealth",)))
    assert "lists no DRAPlugin" in Choice().refusal(health, "/x/dra.sock")
    assert Choice(plugin_only=False).refusal(health, "/x/dra.sock") == ""


@pytest.mark.parametrize(
    "endpoint",
    [
        "relative.sock",
        "/k/plugins_registry/dra-agent~00000000~000000.sock",
        "/k/dra-agent.io/x.sock",
        "/k/plugins/dra-agent.io/../dra-agent.io/./x.sock",
        "/k/dra\0.sock",
    ],
)
def test_endpoints_that_are_ours_or_unusable_are_refused(endpoint: str) -> None:
    assert "endpoint" in refusal(Choice(), "gpu.example.com", endpoint)


def test_a_link_to_a_socket_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dra.sock").symlink_to(tmp_path / "dra-agent.io" / "x.sock")
    assert "the agent's own" in refusal(Choice(), "gpu.example.com", str(tmp_path / "dra.sock"))
