"""Header blocks: what goes in comes out, and hostile ones come out tame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.model import Metadata, Status, Transport
from agent.errors import TransportError
from agent.rpc import headers

LARGE = 1 << 20
keys = st.from_regex(r"x[0-9a-z_.\-]{0,8}", fullmatch=True).filter(lambda k: not k.endswith("-bin"))
values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"))
binary = st.tuples(keys.map(lambda key: f"{key}-bin"), st.binary(max_size=20))
metadata = st.lists(st.one_of(st.tuples(keys, values), binary), max_size=5).map(tuple)


@given(metadata)
def test_metadata_comes_back(given_metadata: Metadata) -> None:
    encoded = headers.encode_metadata(given_metadata)
    assert headers.decode_metadata(encoded, keep_details=True) == given_metadata


@given(st.integers(1, 16), st.text(), st.one_of(st.none(), st.binary(max_size=30)), metadata)
def test_status_comes_back(
    code: int, message: str, details: bytes | None, trailers: Metadata
) -> None:
    message = message.encode("utf-8", "replace").decode()
    status = Status(code, message, details, trailers)
    encoded = headers.encode_status(status, trailers, LARGE)
    assert headers.decode_status(encoded) == (status, trailers)
    for _, value in encoded:
        assert all(0x20 <= byte != 0x7F for byte in value)


@given(st.text(min_size=200), st.integers(300, 420))
def test_a_cut_message_is_whole_characters_and_fits(message: str, limit: int) -> None:
    status = Status(2, message.encode("utf-8", "replace").decode())
    encoded = headers.encode_status(status, (), limit)
    assert sum(len(key) + len(value) + 32 for key, value in encoded) <= limit + 64
    found, _ = headers.decode_status(encoded)
    assert found is not None
    assert found.message.endswith(" [cut]")
    assert status.message.startswith(found.message.removesuffix(" [cut]"))


def test_ok_keeps_its_trailers() -> None:
    trailers: Metadata = (("a", "b"), ("grpc-status-details-bin", b"x"))
    encoded = headers.encode_status(None, trailers, LARGE)
    assert headers.decode_status(encoded) == (None, trailers)


@pytest.mark.parametrize("value", [None, b"", b"x", b"-1", b"9" * 10, b"\xff"])
def test_a_missing_or_malformed_status_is_a_protocol_error(value: bytes | None) -> None:
    block = [] if value is None else [(b"grpc-status", value)]
    with pytest.raises(TransportError) as caught:
        headers.decode_status(block)
    assert caught.value.kind is Transport.PROTOCOL


def test_reserved_and_impossible_metadata_is_left_out() -> None:
    odd: Metadata = (
        ("grpc-timeout", "1S"),
        ("te", "x"),
        ("Upper", "x"),
        (":path", "x"),
        ("snow☃", "x"),
        ("line", "a\nb"),
        ("nul", "\0"),
        ("good", "tab\tand ÿ"),
    )
    assert headers.encode_metadata(odd) == [(b"good", b"tab\tand \xff")]
    block = [(b":status", b"200"), (b"content-type", b"x"), (b"grpc-encoding", b"x"), (b"k", b"v")]
    assert headers.decode_metadata(block, keep_details=True) == (("k", "v"),)


def test_binary_values() -> None:
    block = [(b"a-bin", b"AAE"), (b"a-bin", b"AAE="), (b"a-bin", b"AAE,AAI"), (b"a-bin", b"!!")]
    assert headers.decode_metadata(block, keep_details=True) == (
        ("a-bin", b"\0\1"),
        ("a-bin", b"\0\1"),
        ("a-bin", b"\0\1"),
        ("a-bin", b"\0\2"),
        ("a-bin", "!!"),
    )
    assert headers.encode_metadata((("a-bin", "!!"),)) == [(b"a-bin", b"!!")]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (44.9879, b"44987m"),
        (45, b"45000m"),
        (0.0015, b"1500u"),
        (0.0000001, b"1u"),
        (99_999.999, b"99999999m"),
        (100_000.5, b"100000S"),
        (1e12, b"99999999S"),
    ],
)
def test_timeouts_are_written(seconds: float, expected: bytes) -> None:
    assert headers.encode_timeout(seconds) == expected


@given(st.floats(0.00001, 10_000_000))
def test_a_timeout_is_never_longer_than_it_was(seconds: float) -> None:
    read = headers.decode_timeout(headers.encode_timeout(seconds))
    assert read <= seconds * (1 + 1e-9)
    assert read >= seconds - max(0.001, seconds * 1e-4) - 1e-6


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"45000m", 45), (b"7u", 7e-6), (b"8n", 8e-9)],
)
def test_timeouts_are_read(value: bytes, seconds: float) -> None:
    assert headers.decode_timeout(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"1", b"S", b"-1S", b"1s", b"123456789S", b"1S ", b"\xff"])
def test_malformed_timeouts_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="malformed grpc-timeout"):
        headers.decode_timeout(value)
