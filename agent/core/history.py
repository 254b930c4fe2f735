"""What the calls of one driver said about one claim so far, and when that stops being normal.

Walls are unix seconds; `at`, `since` and `until` are seconds of the monotonic clock of the facts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.core.model import CallFact, ClaimOutcome, DeviceState, Kind, Verdict
from agent.core.text import clean

CAUSE_LIMIT = 1024
"""Bytes of a driver's text that are kept."""

Key = tuple[str, str]
"""(driver, claim UID)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on the same unknown failure is no longer normal: both must be reached."""

    attempts: int = 6
    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """Ambiguous failures of one claim by one rule, with no good prepare between them."""

    rule: str
    since: float
    until: float
    attempts: int = 0  # of ended calls and the one that runs
    ended_attempts: int = 0

    @property
    def seconds(self) -> float:
        """From its first to its latest failure."""
        return self.until - self.since

    def beyond(self, limits: Limits) -> bool:
        """True when this is no longer normal. Once true it stays so until the run ends."""
        return self.attempts >= limits.attempts and self.seconds >= limits.seconds


@dataclass(frozen=True, slots=True)
class History:
    """What one driver said about one claim so far."""

    state: DeviceState
    verdict: Verdict | None = None
    final: bool = True  # False: kubelet still waits, attempts go on
    held: bool = False
    attempts: int = 0  # of ended calls and the one that runs
    ended_attempts: int = 0  # of ended calls only
    first_error: str = ""
    last_error: str = ""
    first_wall: float = 0.0
    last_wall: float = 0.0
    wall: float = 0.0  # of the latest fact
    trace_id: str = ""
    at: float = 0.0  # of the latest fact that the driver itself caused
    run: Run | None = None

    @property
    def troubled(self) -> bool:
        """True when an attempt failed at any time since the last good prepare was told."""
        return bool(self.first_error) or self.state is DeviceState.FAILED


def merge(old: History | None, outcome: ClaimOutcome, fact: CallFact) -> History:
    """Add what a fact says of one claim. First error and attempts are kept over calls."""
    before = old.ended_attempts if old else 0
    # A held verdict repeats the attempts that led to it.
    attempts = max(before, outcome.attempts) if outcome.held else before + outcome.attempts
    first_error, first_wall = outcome.first_error, outcome.first_wall
    last_error, last_wall = outcome.last_error, outcome.last_wall
    if old and old.first_error:
        first_error, first_wall = old.first_error, old.first_wall
    if old and not outcome.last_error:
        last_error, last_wall = old.last_error, old.last_wall
    verdict = outcome.verdict
    if verdict is None and outcome.state is DeviceState.FAILED and old:
        verdict = old.verdict
    return History(
        state=outcome.state,
        verdict=verdict,
        final=fact.final,
        held=outcome.held,
        attempts=attempts,
        ended_attempts=attempts if fact.final else before,
        first_error=clean(first_error, CAUSE_LIMIT),
        last_error=clean(last_error, CAUSE_LIMIT),
        first_wall=first_wall,
        last_wall=last_wall,
        wall=fact.wall,
        trace_id=fact.trace_id or (old.trace_id if old else ""),
        at=old.at if old and outcome.held else fact.replied_at,
        run=extend(old.run if old else None, outcome, fact),
    )


def extend(run: Run | None, outcome: ClaimOutcome, fact: CallFact) -> Run | None:
    """Go on with a run, begin one or end it.

    A transient failure between two ambiguous ones (the driver restarted) neither counts nor ends
    it: it says nothing about the first.
    """
    if outcome.state is DeviceState.PREPARED:
        return None
    verdict = outcome.verdict
    if outcome.state is not DeviceState.FAILED or verdict is None:
        return run
    if verdict.kind is not Kind.AMBIGUOUS:
        return run if verdict.kind is Kind.TRANSIENT else None
    now = fact.replied_at
    if run is None or run.rule != verdict.rule:
        run = Run(verdict.rule, now, now)
    attempts = run.ended_attempts + outcome.attempts
    return replace(
        run,
        until=max(run.until, now),
        attempts=max(run.attempts, attempts),
        ended_attempts=attempts if fact.final else run.ended_attempts,
    )


def told(history: History) -> History:
    """Forget the trouble of a claim that is prepared and whose recovery was written."""
    return replace(
        history,
        first_error="",
        last_error="",
        first_wall=0.0,
        last_wall=0.0,
        attempts=0,
        ended_attempts=0,
        verdict=None,
    )
