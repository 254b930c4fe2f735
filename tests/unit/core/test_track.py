"""What a call knows of one claim."""

from __future__ import annotations

import pytest

from agent.core.model import (
    ClaimRef,
    ClaimResult,
    Culprit,
    DeviceState,
    Failure,
    Kind,
    Surface,
    Verdict,
)
from agent.core.track import Track

A = ClaimRef("ns", "uid-a", "claim-a")
ASKS = Verdict(Kind.TRANSIENT, Culprit.DRIVER, "t", retry_after=7.0)


def failed(text: str) -> ClaimResult:
    return ClaimResult(A, b"", Failure("d", "prepare", Surface.CLAIM_ERROR, text), ASKS)


def test_first_and_last_error_are_kept_and_only_attempts_count() -> None:
    track = Track(A)
    assert track.outcome().state is DeviceState.BLOCKED
    track.unasked(failed("away"), 1.0)
    assert (track.attempts, track.outcome().state) == (0, DeviceState.FAILED)
    track.attempted(failed("one"), 5.0, 2.0)
    track.attempted(failed("two"), 6.0, 3.0)
    track.unasked(failed("away again"), 4.0)
    outcome = track.outcome()
    assert (outcome.first_error, outcome.last_error, outcome.attempts) == ("away", "two", 2)
    assert (outcome.first_wall, outcome.last_wall) == (1.0, 3.0)
    assert (track.first_failed_at, track.retry_after) == (5.0, 7.0)
    track.attempted(ClaimResult(A, entry=b"entry"), 7.0, 4.0)
    assert track.ok
    assert track.retry_after == 0.0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("device is held by claim other/claim-9", True),
        ("already allocated to claim uid-9: busy", True),
        ("held by claim-9.", True),
        ("held by claim-90", False),
        ("held by my-claim-9", False),
        ("held by another claim", False),
    ],
)
def test_which_claim_a_text_names(text: str, names: bool) -> None:
    track = Track(A)
    other = ClaimRef("other", "uid-9", "claim-9")
    assert not track.names(other)
    track.attempted(failed(text), 1.0, 1.0)
    assert track.names(other) is names
    assert not track.names(ClaimRef("", "", ""))
