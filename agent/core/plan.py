"""One prepare call of kubelet as a state machine: what to do next, given everything seen so far.

The proxy asks `next`, performs the step and reports with `attempt_ended`. Rules 4, 7, 8 and 10 of
the design live here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agent.core.held import Held
from agent.core.model import ClaimOutcome, ClaimRef, ClaimResult, Kind
from agent.core.steps import Forward, Reply, RetryPolicy, Step, Wait
from agent.core.track import Track

__all__ = ["Forward", "Plan", "Reply", "RetryPolicy", "Step", "Wait"]

_RESERVE = 0.5  # seconds left to hand the answer to kubelet before its deadline
_HURRIES = 4  # waits that may be cut short in one call
_RESERVE_SHARE = 0.05  # of the call's whole time, where that is less (tests, other callers)


class Plan:
    """State of one call. `deadline` and every `now` are seconds of one monotonic clock."""

    def __init__(
        self,
        claims: Sequence[ClaimRef],
        *,
        arrived_at: float,
        deadline: float,
        policy: RetryPolicy,
        held: Mapping[str, Held],
        previous: Mapping[str, str],
    ) -> None:
        """`held` and `previous` (last error text of the call before) are keyed by claim UID."""
        self._tracks = {claim.uid: Track(claim) for claim in claims}
        self._order = tuple(claims)
        self._policy = policy
        self._held = {uid: value for uid, value in held.items() if uid in self._tracks}
        self._previous = previous
        reserve = min(_RESERVE, _RESERVE_SHARE * max(0.0, deadline - arrived_at))
        self._last_answer = deadline - reserve
        self._last_start = deadline - max(policy.margin, reserve)
        self._rounds = 0
        self._not_before = arrived_at
        self._cancelled = ""
        self._at_once = False
        self._delayed = False  # the driver itself asked for the wait that runs
        self._soon = False
        self._guess = False  # the hurry that is meant by `_soon` counts
        self._hurries = 0

    def hurry(self, released: Iterable[ClaimRef] = (), *, certain: bool = False) -> bool:
        """What a transient failure waits for may be over: skip the wait that runs, or the next.

        At most _HURRIES times per call, for other claims may come and go all the time. One that
        is `certain`, or for a claim that a failure's text names, is neither refused nor counted.
        False: no.
        """
        failed = [track for track in self._tracks.values() if not track.ok]
        if not certain:
            certain = any(track.names(claim) for claim in released for track in failed)
        if not certain and self._hurries >= _HURRIES:
            return False
        self._guess = not certain and (self._guess or not self._soon)
        self._soon = True
        return True

    def cancel(self, reason: str, *, at_once: bool = True) -> None:
        """No retry begins any more; the call is answered with what it has.

        Without `at_once` a call that was not tried yet gets its one attempt.
        """
        self._cancelled = self._cancelled or reason
        self._at_once = self._at_once or at_once

    def next(self, now: float, jitter: float, away_since: float | None) -> Step:
        """Decide. `away_since` is when the driver was lost, None while it is connected."""
        reason = self._why_reply(now)
        if reason:
            return self._reply(reason)
        self._skip_wait(now, away_since)
        if self._not_before > now and away_since is None:
            return Wait(self._not_before - now)
        if away_since is not None:
            return self._wait_for_driver(now, away_since)
        if self._rounds and self._not_before == 0.0:
            own, asked = self._policy.delay(self._rounds, jitter), self._asked_to_wait()
            self._not_before, self._delayed = now + max(own, asked), asked > own
            reason = self._why_reply(self._not_before)
            if reason:  # nobody waits for an attempt that will not be made
                return self._reply(reason)
            return Wait(self._not_before - now)
        return Forward(self._pending(), max(0.0, self._last_answer - now))

    def attempt_ended(self, results: Iterable[ClaimResult], now: float, wall: float) -> None:
        """Take in what one round of attempts brought."""
        self._rounds += 1
        self._not_before = 0.0  # the next call of `next` draws the wait
        self._delayed = False
        for result in results:
            self._tracks[result.claim.uid].attempted(result, now, wall)

    def driver_away(self, results: Iterable[ClaimResult], wall: float) -> None:
        """Note for claims never asked yet why they wait; not an attempt."""
        for result in results:
            self._tracks[result.claim.uid].unasked(result, wall)

    @property
    def given_up(self) -> bool:
        """True when it was cancelled and the driver is not to be asked any more."""
        return bool(self._cancelled) and self._at_once

    @property
    def unasked(self) -> tuple[ClaimRef, ...]:
        """Claims that have no result of any kind."""
        return tuple(claim for claim in self._order if self._tracks[claim.uid].result is None)

    def outcomes(self) -> tuple[ClaimOutcome, ...]:
        """How each claim stands, in the call's order."""
        return tuple(self._outcome(self._tracks[claim.uid]) for claim in self._order)

    @property
    def failed_before(self) -> bool:
        """True when any attempt failed."""
        return any(track.first_wall for track in self._tracks.values())

    def _skip_wait(self, now: float, away_since: float | None) -> None:
        soon, self._soon = self._soon, False
        if not soon or away_since is not None or not self._rounds:
            return
        if self._only_transient() and not self._asked_to_wait():
            self._hurries += self._guess
            self._not_before = now

    def _only_transient(self) -> bool:
        """An unknown failure has few attempts; they are not spent on a guess."""
        return all(
            track.result is not None
            and track.result.verdict is not None
            and track.result.verdict.kind is Kind.TRANSIENT
            for track in self._tracks.values()
            if not track.ok
        )

    def _why_reply(self, now: float) -> str:
        if self._held:
            return "held verdict"
        if all(track.ok for track in self._tracks.values()):
            return "all claims prepared"
        if self._cancelled and (self._at_once or self._rounds):
            return self._cancelled
        for track in self._tracks.values():
            reason = self._final(track, now)
            if reason:
                return reason
        if now >= self._last_start and self._rounds:
            return "no time left for another attempt"
        return ""

    def _final(self, track: Track, now: float) -> str:
        """Why this claim will not be asked again within this call; empty when it may be."""
        if track.result is None or track.result.verdict is None:
            return ""
        if not track.attempts:
            return ""  # only known to be away: the hold decides
        verdict, failure = track.result.verdict, track.result.failure
        if verdict.permanent:
            return "permanent failure"
        if verdict.max_attempts is not None and track.attempts >= verdict.max_attempts:
            return "the driver must not be asked again"
        if verdict.kind is Kind.AMBIGUOUS:
            if track.attempts >= self._policy.ambiguous_attempts:
                return "unknown failure, attempts used up"
            spent = now - track.first_failed_at >= self._policy.ambiguous_time
            if spent and not (self._delayed and track.retry_after):
                return "unknown failure, time used up"
            if failure is not None and self._seen_before(track.claim.uid, failure.text):
                return "unknown failure, same as in the previous call"
        return ""

    def _asked_to_wait(self) -> float:
        """Seconds that a driver itself wants between two attempts (RetryInfo, or its marker)."""
        return max((track.retry_after for track in self._tracks.values()), default=0.0)

    def _seen_before(self, uid: str, text: str) -> bool:
        before = self._previous.get(uid, "")
        return before != "" and text.startswith(before)

    def _wait_for_driver(self, now: float, away_since: float) -> Step:
        ends = min(away_since + self._policy.absence_hold, self._last_start)
        if now >= ends or self._cancelled:
            if self.unasked and not self._held:
                # `driver_away` gives them the words; the same question then ends the call.
                return Wait(0.0, until_connected=True)
            return self._reply("driver away")
        self._not_before = now  # once it is back it is asked at once, without a wait
        return Wait(ends - now, until_connected=True)

    def _pending(self) -> tuple[ClaimRef, ...]:
        return tuple(claim for claim in self._order if not self._tracks[claim.uid].ok)

    def _reply(self, reason: str) -> Reply:
        return Reply(tuple(self._result(claim) for claim in self._order), reason)

    def _result(self, claim: ClaimRef) -> ClaimResult | None:
        held = self._held.get(claim.uid)
        return held.result if held is not None else self._tracks[claim.uid].result

    def _outcome(self, track: Track) -> ClaimOutcome:
        held = self._held.get(track.claim.uid)
        return held.outcome() if held is not None else track.outcome()
