"""Held verdicts: permanent failures that answer kubelet's repeats without asking the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.core.model import ClaimOutcome, ClaimResult, DeviceState, Status
from agent.core.text import KEPT, ends

LIMIT = 4096
"""Verdicts held; the oldest goes. A node has a few hundred claims."""

_FOREVER = float("inf")
_METADATA = 64  # bytes that a header costs beside its own


@dataclass(frozen=True, slots=True)
class Held:
    """One permanent failure, remembered for (driver, claim UID)."""

    result: ClaimResult  # the failure as it was, shape included
    expires_at: float  # monotonic; infinite when pinned
    attempts: int = 1
    first_error: str = ""
    first_wall: float = 0.0
    last_wall: float = 0.0

    @property
    def pinned(self) -> bool:
        """True when no clock ends it, only an unprepare, the pod's end or a renewal trigger."""
        return self.expires_at == _FOREVER

    def outcome(self) -> ClaimOutcome:
        """The claim's outcome when it is answered from here."""
        return ClaimOutcome(
            self.result.claim,
            DeviceState.FAILED,
            verdict=self.result.verdict,
            attempts=self.attempts,
            first_error=self.first_error,
            last_error=self.result.failure.text if self.result.failure else "",
            first_wall=self.first_wall,
            last_wall=self.last_wall,
            held=True,
        )


class HeldVerdicts:
    """All held verdicts of the agent. The hold doubles each time the same claim fails anew."""

    def __init__(self, hold: float, hold_max: float) -> None:
        self._hold = hold
        self._hold_max = hold_max
        self._held: dict[tuple[str, str], Held] = {}
        self._times: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def periods(self, hold: float, hold_max: float) -> None:
        """Change how long verdicts are held from now on, in seconds."""
        self._hold, self._hold_max = hold, hold_max

    def get(self, driver: str, uid: str, now: float) -> Held | None:
        """The verdict that answers for this claim, None when none holds."""
        held = self._held.get((driver, uid))
        if held is None:
            return None
        if held.expires_at <= now:
            del self._held[driver, uid]
            return None
        return held

    def put(self, result: ClaimResult, outcome: ClaimOutcome, now: float) -> Held:
        """Hold a permanent failure; returns what is held."""
        assert result.failure is not None
        key = (result.failure.driver, result.claim.uid)
        # Taken out and put in again: the dicts' order is then that of the latest failure.
        times = self._times.pop(key, 0)
        self._times[key] = times + 1
        self._held.pop(key, None)
        held = Held(
            _bounded(result),
            now + min(self._hold_max, self._hold * 2.0 ** min(times, 30)),
            outcome.attempts,
            outcome.first_error,
            outcome.first_wall,
            outcome.last_wall,
        )
        self._held[key] = held
        for kept in (self._held, self._times):
            if len(kept) > LIMIT:
                del kept[next(iter(kept))]
        return held

    def pin(self, driver: str, uid: str) -> bool:
        """Let no clock end it. False when nothing is held."""
        held = self._held.get((driver, uid))
        if held is None:
            return False
        self._held[driver, uid] = replace(held, expires_at=_FOREVER)
        return True

    def unpin(self, driver: str, uid: str, now: float) -> None:
        """Let the clock go on: what it was pinned for will not come."""
        held = self._held.get((driver, uid))
        if held is not None and held.pinned:
            self._held[driver, uid] = replace(held, expires_at=now + self._hold)

    def drop_claim(self, uid: str) -> int:
        """Forget a claim for all drivers (unprepare, end of its pod); returns how many went."""
        for key in [key for key in self._times if key[1] == uid]:
            del self._times[key]
        return self._drop([key for key in self._held if key[1] == uid])

    def drop_named(self, namespace: str, names: Iterable[str]) -> int:
        """Forget claims by name (their pod is gone); returns how many went."""
        wanted = set(names)
        claims = {held.result.claim for held in self._held.values()}
        uids = {c.uid for c in claims if c.namespace == namespace and c.name in wanted}
        return sum(self.drop_claim(uid) for uid in uids)

    def drop_driver(self, driver: str) -> int:
        """Forget a driver's verdicts (renewal trigger); returns how many went."""
        return self._drop([key for key in self._held if key[0] == driver])

    def of_driver(self, driver: str) -> int:
        """How many verdicts are held for a driver."""
        return sum(1 for key in self._held if key[0] == driver)

    def describe(self, now: float) -> list[dict[str, object]]:
        """What is held, for people; `seconds` until a verdict ends, None when pinned."""
        return [
            {
                "driver": driver,
                "claim": f"{held.result.claim.namespace}/{held.result.claim.name}",
                "rule": held.result.verdict.rule if held.result.verdict else "",
                "seconds": None if held.pinned else round(held.expires_at - now, 1),
            }
            for (driver, _), held in sorted(self._held.items())
        ]

    def _drop(self, keys: list[tuple[str, str]]) -> int:
        for key in keys:
            del self._held[key]
        return len(keys)


def _bounded(result: ClaimResult) -> ClaimResult:
    """What a driver says may have megabytes: then its ends stand for it while it is held."""
    failure, status = result.failure, result.status
    assert failure is not None
    size = len(failure.text) + len(failure.details or b"") + len(result.entry or b"")
    if status is not None:
        more = (*status.initial, *status.trailers)
        size += len(status.message) + len(status.details or b"")
        size += sum(len(key) + len(value) + _METADATA for key, value in more)
    if size <= 4 * KEPT:
        return result
    text = ends(failure.text, KEPT)
    return replace(
        result,
        entry=None,
        failure=replace(failure, text=text, details=None),
        status=Status(status.code, text) if status is not None else None,
    )
