"""What is known of every device of a pod, over all its claims and drivers.

A History collects what the calls of one driver said about one claim. A PodRecord joins the
histories with the claims' allocations; it is computed, never updated, so the order in which
kubelet asks the drivers cannot matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.core.model import CallFact, ClaimOutcome, Device, DeviceState, Verdict
from agent.core.pods import Claim
from agent.core.text import clean

CAUSE_LIMIT = 1024
"""Bytes of a driver's text that are kept."""

Key = tuple[str, str]
"""(driver, claim UID)."""

_WORST_FIRST = (
    DeviceState.FAILED,
    DeviceState.BLOCKED,
    DeviceState.PENDING,
    DeviceState.PREPARED,
)


@dataclass(frozen=True, slots=True)
class History:
    """What one driver said about one claim so far. Wall times are unix seconds."""

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


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """One device of the pod and how it stands. `history` only where its driver was asked."""

    device: Device
    state: DeviceState
    history: History | None = None

    @property
    def cause(self) -> str:
        """The driver's latest words, cleaned; empty unless failed."""
        return self.history.last_error if self._failed and self.history else ""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, where the device failed."""
        return self.history.verdict if self._failed and self.history else None

    @property
    def _failed(self) -> bool:
        return self.state is DeviceState.FAILED


@dataclass(frozen=True, slots=True)
class PodRecord:
    """All devices of one pod, worst first."""

    devices: tuple[DeviceRecord, ...]
    histories: tuple[tuple[Key, History], ...]

    def of(self, state: DeviceState) -> tuple[DeviceRecord, ...]:
        """Devices in one state."""
        return tuple(d for d in self.devices if d.state is state)

    @property
    def failing(self) -> tuple[tuple[Key, History], ...]:
        """Claims that are failed now."""
        return tuple((k, h) for k, h in self.histories if h.state is DeviceState.FAILED)

    @property
    def retrying(self) -> bool:
        """True when nothing is finally failed and an attempt still goes on."""
        return bool(self.failing) and all(not h.final for _, h in self.failing)

    @property
    def troubled(self) -> bool:
        """True when anything failed since the last time all was well and said so."""
        return any(h.troubled for _, h in self.histories)

    def recovered(self, served: frozenset[str]) -> bool:
        """True when all devices of the drivers we serve are prepared."""
        ours = [d for d in self.devices if d.device.driver in served or d.history]
        return bool(ours) and all(d.state is DeviceState.PREPARED for d in ours)

    @property
    def attempts(self) -> int:
        """Attempts over all claims that had trouble."""
        return sum(h.attempts for _, h in self.histories if h.troubled)

    @property
    def states(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """Identity and state of each device, sorted: what an annotation rewrite follows."""
        return tuple(
            sorted(
                (d.device.claim.uid, d.device.driver, d.device.pool, d.device.device, d.state)
                for d in self.devices
            )
        )


def build(claims: Iterable[Claim], histories: Mapping[Key, History]) -> PodRecord:
    """Join claims and histories. Histories of other claims are left out."""
    devices: list[DeviceRecord] = []
    used: dict[Key, History] = {}
    for claim in claims:
        for driver in sorted(claim.drivers):
            history = histories.get((driver, claim.uid))
            if history is not None:
                used[driver, claim.uid] = history
            devices.extend(_of_driver(claim, driver, history))
    devices.sort(key=lambda d: (_WORST_FIRST.index(d.state), _identity(d.device)))
    return PodRecord(tuple(devices), tuple(sorted(used.items())))


def _of_driver(claim: Claim, driver: str, history: History | None) -> list[DeviceRecord]:
    mine = [device for device in claim.devices if device.driver == driver]
    if history is None:
        return [DeviceRecord(device, DeviceState.PENDING) for device in mine]
    state = history.state
    named = history.verdict.device if history.verdict else None
    blamed = {device.device for device in mine if device.device == named}
    # A text may name a device that this claim does not have: then it blames all of them.
    return [
        DeviceRecord(
            device,
            DeviceState.BLOCKED
            if state is DeviceState.FAILED and blamed and device.device not in blamed
            else state,
            history,
        )
        for device in mine
    ]


def _identity(device: Device) -> tuple[str, ...]:
    return (
        device.claim.name,
        device.driver,
        device.request,
        device.pool,
        device.device,
        device.share_id,
    )
