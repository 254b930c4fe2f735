from hypothesis import given
from hypothesis import strategies as st

from agent.core.details import MAX_BYTES, parse
from agent.core.marker import MAX_RETRY_AFTER
from tests.support.details import (
    bad_request,
    details_bin,
    error_info,
    field,
    packed,
    precondition_failure,
    retry_info,
)


def test_all_kinds_are_read() -> None:
    found = parse(
        details_bin(
            error_info("CARD_LOST", "cards.example", slot="3"),
            retry_info(2, 250_000_000),
            bad_request("spec.size", "must be even"),
            precondition_failure("FIRMWARE", "card-3", "too old"),
            packed("Help", b"\x0a\x00"),
        )
    )
    assert (found.reason, found.domain, found.metadata) == (
        "CARD_LOST",
        "cards.example",
        {"slot": "3"},
    )
    assert found.retry_after == 2.25
    assert found.bad_fields == ["spec.size: must be even"]
    assert found.preconditions == ["FIRMWARE: card-3: too old"]
    assert found.any


def test_nothing_is_found_where_nothing_is() -> None:
    for raw in (None, b"", details_bin(), b"\xff\xff\xff", b"\x00" * (MAX_BYTES + 1)):
        assert not parse(raw).any


def test_other_types_are_left_alone() -> None:
    other = field(1, "type.googleapis.com/other.ErrorInfo") + field(2, field(1, "X"))
    bare = field(1, "google.rpc.ErrorInfo") + field(2, field(1, "X"))
    assert not parse(details_bin(other)).any
    assert parse(details_bin(bare)).reason == "X"


def test_strange_delays() -> None:
    assert parse(details_bin(retry_info(-1))).retry_after is None
    assert parse(details_bin(retry_info(1 << 60))).retry_after == MAX_RETRY_AFTER
    assert parse(details_bin(retry_info(0))).retry_after == 0.0
    assert parse(details_bin(packed("RetryInfo", b""))).retry_after == 0.0


def test_empty_violations_still_say_that_the_request_is_bad() -> None:
    assert parse(details_bin(packed("BadRequest", b""))).bad_request
    assert parse(details_bin(packed("PreconditionFailure", b""))).precondition_failure


def test_counts_are_bounded_and_texts_are_made_safe() -> None:
    many = field(1, field(1, "f\n\x1b[31m" * 500)) * 200
    found = parse(details_bin(packed("BadRequest", many)))
    assert len(found.bad_fields) == 64
    assert all(len(line) <= 500 and "\n" not in line for line in found.bad_fields)
    info = packed("ErrorInfo", field(3, field(1, "k") + field(2, "v")) * 1000)
    assert parse(details_bin(*[info] * 100)).metadata == {"k": "v"}


@given(st.binary(max_size=400))
def test_any_bytes_are_read(raw: bytes) -> None:
    parse(raw)


@given(st.binary(max_size=60), st.sampled_from(["ErrorInfo", "RetryInfo", "BadRequest"]))
def test_any_content_is_read(raw: bytes, name: str) -> None:
    parse(details_bin(packed(name, raw)))


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_message_is_read(at: int, byte: int) -> None:
    raw = bytearray(details_bin(error_info("A", "b", c="d"), retry_info(1), bad_request("e", "f")))
    raw[at % len(raw)] = byte
    parse(bytes(raw))
