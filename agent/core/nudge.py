"""Which waiting pods kubelet is made to look at again, and why: decides, touches nothing.

Kubelet repeats a failed prepare only after 60-90 s, whatever the cause was. When the cause is
known to be gone, a changed annotation makes it ask at once (measured: within 15 ms).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from agent import names
from agent.core.annotation import stamp_micro
from agent.core.context import waits_for
from agent.core.model import CallFact, ClaimRef, DeviceState, WaitsFor
from agent.core.pods import Pod

LIMIT = 4096
"""(driver, claim) pairs remembered; a node has a few hundred at most."""

_TRANSPORT_CODES = frozenset({1, 4, 13, 14})
"""gRPC codes of whole calls that broke; a driver itself rarely says any of them."""


class Cause(StrEnum):
    """What has ended; a closed set, for it is a metric's label."""

    AGENT_STARTED = "agent-started"  # a call may have been cut when the agent before died
    DRIVER_REGISTERED = "driver-registered"
    DRIVER_BACK = "driver-back"
    FAULT_ENDED = "fault-ended"
    CLAIM_UNPREPARED = "claim-unprepared"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that ended, once."""

    cause: Cause
    driver: str
    number: int  # unlike that of every other event
    wall: float
    devices: frozenset[str] = frozenset()  # that were given back, where known

    @property
    def text(self) -> str:
        """Value of the annotation: `<cause>@<time>`."""
        return f"{self.cause}@{stamp_micro(self.wall)}"


@dataclass(frozen=True, slots=True)
class Last:
    """The last word of a driver about a claim."""

    claim: ClaimRef
    ok: bool
    broke: bool = False  # the whole call broke, by no answer of the driver
    waits: WaitsFor | None = None
    devices: tuple[str, ...] = ()


@dataclass(slots=True)
class Memory:
    """Last words by (driver, claim UID), the latest last."""

    _last: dict[tuple[str, str], Last] = field(default_factory=dict)

    def note(self, fact: CallFact) -> None:
        """Take in the end of a prepare call."""
        for outcome in fact.outcomes:
            ok = outcome.state is DeviceState.PREPARED
            key = (fact.driver, outcome.claim.uid)
            self._last.pop(key, None)
            self._last[key] = Last(
                outcome.claim,
                ok,
                broke=not ok and fact.code in _TRANSPORT_CODES,
                waits=None if ok else waits_for(outcome.last_error, outcome.verdict),
                devices=outcome.devices,
            )
        while len(self._last) > LIMIT:
            del self._last[next(iter(self._last))]

    def drop(self, driver: str, uids: Iterable[str]) -> frozenset[str]:
        """Forget claims that were unprepared; returns the devices they had."""
        gone = [self._last.pop((driver, uid), None) for uid in uids]
        return frozenset(device for last in gone if last for device in last.devices)

    def of(self, driver: str, namespace: str, names: Iterable[str]) -> tuple[Last, ...]:
        """Last words of a driver about claims of those names."""
        wanted = {(namespace, name) for name in names}
        return tuple(
            last
            for (name, _), last in self._last.items()
            if name == driver and (last.claim.namespace, last.claim.name) in wanted
        )

    def failed(self, driver: str, *, broke: bool = False) -> bool:
        """Tell whether any claim's last word is a failure; `broke`: of a whole call."""
        return any(
            name == driver and not last.ok and (last.broke or not broke)
            for (name, _), last in self._last.items()
        )


def waiting(pod: Pod) -> bool:
    """Tell whether kubelet may still have to prepare devices of this pod."""
    never_began = pod.phase == "Pending" and not pod.started and not pod.sandboxed
    return never_began and not pod.deleting and not pod.static and pod.claims != ()


def concerned(event: Event, pod: Pod, known: Sequence[Last]) -> bool:
    """Tell whether the pod may have waited for this, by what is known without asking the API."""
    if not waiting(pod) or (known and all(last.ok for last in known)):
        return False
    if _seconds(pod.created, event.wall) > event.wall:
        return False
    match event.cause:
        case Cause.AGENT_STARTED:
            return not known
        case Cause.FAULT_ENDED:
            return any(last.broke for last in known if not last.ok)
        case Cause.CLAIM_UNPREPARED:
            return any(not last.ok for last in known)
        case _:
            return True


def ripens(event: Event, pod: Pod, older_than: float) -> float:
    """Return the wall time before which kubelet's first call for the pod may be on its way.

    After the agent's start nothing else tells a call that was cut from one that is being made.
    """
    if event.cause is not Cause.AGENT_STARTED:
        return event.wall
    return _seconds(pod.created, event.wall) + older_than


def freed(event: Event, known: Sequence[Last], devices: frozenset[str]) -> bool:
    """Tell whether an unprepare gave back what the pod waits for.

    `devices`: those that the pod's claims have of the driver.
    """
    waits = {last.waits for last in known if not last.ok}
    if WaitsFor.LOCK in waits or event.devices & devices:
        return True
    return WaitsFor.DEVICE in waits and not event.devices


@dataclass(slots=True)
class Pace:
    """No pod more often than `min_between` seconds, and never twice for one event."""

    min_between: float
    _at: dict[str, float] = field(default_factory=dict)
    _done: dict[tuple[str, int], None] = field(default_factory=dict)

    def due(self, pod: Pod, now: float, wall: float) -> float:
        """Return when the pod may be nudged (as `now`); an earlier agent's nudge counts too."""
        written = pod.annotation(names.ANNOTATION_NUDGE).rpartition("@")[2]
        ago = wall - _seconds(written, float("-inf"))
        earlier = now - ago if 0.0 <= ago < self.min_between else float("-inf")
        return max(now, max(earlier, self._at.get(pod.uid, float("-inf"))) + self.min_between)

    def had(self, pod: Pod, event: Event) -> bool:
        """True when the pod had a nudge for this event."""
        return (pod.uid, event.number) in self._done

    def take(self, pod: Pod, event: Event, now: float) -> None:
        """Note a nudge."""
        key = (pod.uid, event.number)
        self._done[key] = None
        self._at[pod.uid] = now
        if len(self._done) > LIMIT:
            del self._done[next(iter(self._done))]
        if len(self._at) > LIMIT:
            del self._at[next(iter(self._at))]

    def give_back(self, pod: Pod, event: Event) -> None:
        """The nudge was not written."""
        self._done.pop((pod.uid, event.number), None)
        self._at.pop(pod.uid, None)


def _seconds(text: str, default: float) -> float:
    """Unix seconds of a time as the API writes it."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return default
