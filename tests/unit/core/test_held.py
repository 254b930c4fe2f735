"""Held verdicts: expiry, doubling, pinning, forgetting."""

from dataclasses import replace

import pytest

from agent.core import held as module
from agent.core.held import HeldVerdicts
from agent.core.model import (
    ClaimOutcome,
    ClaimRef,
    ClaimResult,
    Culprit,
    DeviceState,
    Failure,
    Kind,
    Status,
    Surface,
    Verdict,
)

CLAIM = ClaimRef("ns", "uid-1", "claim-1")
VERDICT = Verdict(Kind.PERMANENT, Culprit.PARAMETERS, "rule-x")
RESULT = ClaimResult(CLAIM, b"", Failure("d", "prepare", Surface.CLAIM_ERROR, "invalid"), VERDICT)
OUTCOME = ClaimOutcome(CLAIM, DeviceState.FAILED, VERDICT, 1, "invalid", "invalid", 5.0, 6.0)


def test_a_verdict_holds_until_its_time_and_doubles_when_it_comes_again() -> None:
    held = HeldVerdicts(10.0, 35.0)
    held.put(RESULT, OUTCOME, 0.0)
    assert held.get("d", "uid-1", 9.9) is not None
    assert held.get("other", "uid-1", 0.0) is None
    assert held.get("d", "uid-1", 10.0) is None
    held.put(RESULT, OUTCOME, 10.0)
    assert held.get("d", "uid-1", 29.9) is not None
    assert held.get("d", "uid-1", 30.0) is None
    held.put(RESULT, OUTCOME, 30.0)
    assert held.get("d", "uid-1", 64.9) is not None
    assert held.get("d", "uid-1", 65.0) is None, "35 s is the longest hold"


def test_no_clock_ends_a_pinned_verdict_but_an_unprepare_does() -> None:
    held = HeldVerdicts(10.0, 10.0)
    assert not held.pin("d", "uid-1")
    held.put(RESULT, OUTCOME, 0.0)
    assert held.pin("d", "uid-1")
    found = held.get("d", "uid-1", 1e9)
    assert found is not None
    assert found.pinned
    held.unpin("d", "uid-1", 1e9)
    assert held.get("d", "uid-1", 1e9) is not None
    assert held.get("d", "uid-1", 1e9 + 1e6) is None, "the clock goes on from there"
    held.unpin("d", "uid-1", 0.0)
    held.put(RESULT, OUTCOME, 0.0)
    assert held.drop_claim("uid-1") == 1
    assert held.get("d", "uid-1", 0.0) is None


def test_a_renewal_trigger_drops_a_drivers_verdicts_alone() -> None:
    held = HeldVerdicts(10.0, 10.0)
    held.put(RESULT, OUTCOME, 0.0)
    assert held.of_driver("d") == len(held) == 1
    assert held.drop_driver("other") == 0
    assert held.drop_driver("d") == 1
    assert len(held) == 0


def test_what_is_held_tells_the_claims_history() -> None:
    outcome = HeldVerdicts(10.0, 10.0).put(RESULT, OUTCOME, 0.0).outcome()
    assert outcome.held
    assert outcome.state is DeviceState.FAILED
    assert (outcome.attempts, outcome.first_wall, outcome.last_wall) == (1, 5.0, 6.0)
    assert outcome.verdict == VERDICT


def test_periods_can_change() -> None:
    held = HeldVerdicts(10.0, 10.0)
    held.periods(2.0, 3.0)
    held.put(RESULT, OUTCOME, 0.0)
    assert held.get("d", "uid-1", 1.9) is not None
    assert held.get("d", "uid-1", 2.0) is None


def test_as_many_are_held_as_a_node_can_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 3)
    held = HeldVerdicts(10.0, 100.0)
    for uid in ("a", "b", "c", "a", "d"):
        held.put(replace(RESULT, claim=ClaimRef("ns", uid, uid)), OUTCOME, 0.0)
    assert [bool(held.get("d", uid, 5.0)) for uid in "abcd"] == [True, False, True, True]
    assert held.get("d", "a", 19.0) is not None, "it came twice"


@pytest.mark.parametrize("status", [None, Status(3, "x" * 3_000_000, b"y" * 3_000_000)])
def test_a_drivers_megabytes_are_not_held(status: Status | None) -> None:
    text = "begin " + "x" * 3_000_000 + " end"
    failure = Failure("d", "prepare", Surface.CLAIM_ERROR, text, details=b"y" * 3_000_000)
    held = HeldVerdicts(10.0, 10.0)
    long = ClaimResult(CLAIM, b"z" * 3_000_000, failure, VERDICT, status)
    kept = held.put(long, OUTCOME, 0.0).result
    assert kept.failure is not None
    assert len(repr(kept)) < 40_000
    assert (kept.failure.text[:6], kept.failure.text[-4:]) == ("begin ", " end")
    assert (kept.status is None) == (status is None)
    assert held.put(RESULT, OUTCOME, 0.0).result is RESULT
