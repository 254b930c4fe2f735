"""Answers to kubelet: shape kept, bytes kept, exactly the claims asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core import wire
from agent.core.answer import RawAnswer, compose, prefix, status_of
from agent.core.model import (
    ClaimRef,
    ClaimResult,
    Culprit,
    Failure,
    Kind,
    Status,
    Surface,
    Transport,
    Verdict,
)

A, B = ClaimRef("ns", "uid-a", "a"), ClaimRef("ns", "uid-b", "b")
BAD = Verdict(Kind.PERMANENT, Culprit.DEVICE, "r", device="gpu-1")
EXTRA = b"\xa2\x06\x03new"  # field 100, which nobody knows


def ok(claim: ClaimRef, entry: bytes = b"\x0a\x00") -> ClaimResult:
    return ClaimResult(claim, entry)


def failed(claim: ClaimRef, text: str, entry: bytes = b"") -> ClaimResult:
    return ClaimResult(claim, entry, Failure("d", "prepare", Surface.CLAIM_ERROR, text), BAD)


def test_an_untouched_answer_is_the_drivers_very_bytes() -> None:
    body = wire.response([(B.uid, b"\x0a\x00"), (A.uid, b"")], EXTRA)
    raw = RawAnswer(frozenset({A.uid, B.uid}), body, (("i", "1"),), (("t", "2"),))
    answer = compose("d", [(A, ok(A)), (B, ok(B))], raw)
    assert (answer.body, answer.initial, answer.trailers) == (body, raw.initial, raw.trailers)


def test_merged_answers_keep_entries_and_unknown_top_level_fields() -> None:
    raw = RawAnswer(frozenset({B.uid}), wire.response([(B.uid, b"\x0a\x00")], EXTRA))
    answer = compose("d", [(A, ok(A, b"\x0a\x00" + EXTRA)), (B, ok(B))], raw)
    assert answer.body is not None
    entries = wire.entries(answer.body)
    assert entries[A.uid].raw == b"\x0a\x00" + EXTRA
    assert entries[B.uid].raw == b"\x0a\x00"
    assert wire.rest(answer.body) == EXTRA


def test_an_error_says_driver_verdict_and_device_and_its_sibling_why_it_was_not_asked() -> None:
    answer = compose("d", [(A, failed(A, "broken", EXTRA)), (B, None)], None)
    assert answer.body is not None
    entries = wire.entries(answer.body)
    assert entries[A.uid].error == "dra-agent: d: permanent (device gpu-1): broken"
    assert entries[A.uid].permanent_error
    assert EXTRA in entries[A.uid].raw
    assert entries[B.uid].error == "dra-agent: d: not asked, because of a"
    assert prefix("d", None) == "dra-agent: d: "


def test_a_call_ended_before_anybody_was_asked_says_why() -> None:
    answer = compose("d", [(A, None)], None, "the pod is being deleted")
    assert answer.body is not None
    assert wire.entries(answer.body)[A.uid].error == (
        "dra-agent: d: not asked: the pod is being deleted"
    )


def test_a_status_keeps_code_details_and_trailers_and_wins_over_prepared_siblings() -> None:
    status = Status(9, "no", b"\x01", (("k", "v"),), (("i", "1"),))
    failure = Failure("d", "prepare", Surface.CALL_ERROR, "no", 9)
    whole = ClaimResult(B, None, failure, BAD, status)
    answer = compose("d", [(A, ok(A)), (B, whole)], None)
    assert answer.body is None
    assert answer.status == Status(
        9, "dra-agent: d: permanent (device gpu-1): no", b"\x01", (("k", "v"),), (("i", "1"),)
    )
    assert (answer.initial, answer.trailers) == (status.initial, status.trailers)


def test_the_text_in_the_details_which_is_the_one_grpc_go_shows_is_ours_too() -> None:
    text = "dra-agent: d: permanent (device gpu-1): no"
    packed = b"\x08\x09" + b"\x1a\x04some"  # code = 9, one detail
    for details, told in (
        (packed + b"\x12\x02no", packed + b"\x12" + bytes([len(text)]) + text.encode()),
        (packed + b"\x12\x05other", packed + b"\x12\x05other"),
        (packed, packed),
        (b"\xff", b"\xff"),
        (None, None),
    ):
        failure = Failure("d", "prepare", Surface.CALL_ERROR, "no", 9)
        whole = ClaimResult(B, None, failure, BAD, Status(9, "no", details))
        assert status_of("d", whole) == Status(9, text, told)


def test_a_call_without_an_answer_gets_the_code_grpc_go_would_give() -> None:
    codes = {}
    for kind in Transport:
        failure = Failure("d", "prepare", Surface.TRANSPORT, "x", transport=kind)
        codes[kind] = status_of("d", ClaimResult(A, None, failure, BAD)).code
    assert codes == {
        Transport.REFUSED: 14,
        Transport.GONE: 14,
        Transport.RESET: 14,
        Transport.DEADLINE: 4,
        Transport.PROTOCOL: 13,
        Transport.CANCELLED: 1,
    }


uids = st.sampled_from(["uid-a", "uid-b", "uid-c"])


@given(st.dictionaries(uids, st.booleans(), min_size=1), st.sets(uids))
def test_the_answer_holds_exactly_the_claims_asked_for(
    asked: dict[str, bool], answered: set[str]
) -> None:
    """Whatever the driver's own answer held."""
    exact = frozenset(answered) if answered == asked.keys() else None
    raw = RawAnswer(exact, wire.response([(uid, b"") for uid in answered]))
    pairs = []
    for uid, good in asked.items():
        claim = ClaimRef("ns", uid, uid)
        pairs.append((claim, ok(claim) if good else failed(claim, "no")))
    answer = compose("d", pairs, raw)
    assert answer.body is not None
    assert wire.entries(answer.body).keys() == asked.keys()
