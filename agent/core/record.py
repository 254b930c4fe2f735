"""What is known of every device of a pod, over all its claims and drivers.

A PodRecord joins what calls said (History) with the claims' allocations; it is computed, never
updated, so the order in which kubelet asks the drivers cannot matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.core import attribution
from agent.core.attribution import Blame
from agent.core.context import NOTHING, Blocker, Context, Place
from agent.core.history import History, Key, Limits
from agent.core.model import ClaimRef, Device, DeviceState, Verdict
from agent.core.pods import Claim

_WORST_FIRST = (
    DeviceState.FAILED,
    DeviceState.BLOCKED,
    DeviceState.PENDING,
    DeviceState.PREPARED,
)


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """One device of the pod and how it stands. `history` only where its driver was asked."""

    device: Device
    state: DeviceState
    history: History | None = None
    blame: Blame | None = None  # the rule found this device in the text, and it is the claim's
    suspect: str = ""  # "device" or "driver" (the driver or the node); beside the culprit
    blocker: Blocker | None = None  # the claim that this one waits for
    holders: tuple[ClaimRef, ...] = ()  # other claims that were allocated the same device
    taints: tuple[str, ...] = ()  # in its ResourceSlice

    @property
    def place(self) -> Place:
        """Which device it is."""
        return (self.device.driver, self.device.pool, self.device.device)

    @property
    def at_fault(self) -> bool:
        """True when it is proven that this very device is the culprit, as far as one failure
        can prove it.
        """
        proven = self.blame is not None and self.blame.at_fault
        return proven and self._failed and self.suspect != "driver"

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
class Widespread:
    """So many failures by one rule that their own claims and devices are not to blame."""

    suspect: str
    rule: str
    claims: int
    devices: int  # at fault by the rule

    def __str__(self) -> str:
        devices = f", {self.devices} devices" if self.devices > 1 else ""
        claims = f"{self.claims} claim{'s' if self.claims != 1 else ''}"
        return (
            f"{claims}{devices} failed by rule {self.rule} within 10 minutes: "
            "the driver or the node is suspected"
        )


@dataclass(frozen=True, slots=True)
class PodRecord:
    """All devices of one pod, worst first."""

    devices: tuple[DeviceRecord, ...]
    histories: tuple[tuple[Key, History], ...]
    escalated: frozenset[Key] = frozenset()  # the same unknown failure for too long
    widespread: tuple[tuple[Key, Widespread], ...] = ()

    def of(self, state: DeviceState) -> tuple[DeviceRecord, ...]:
        """Devices in one state."""
        return tuple(d for d in self.devices if d.state is state)

    def failed_of(self, key: Key) -> tuple[DeviceRecord, ...]:
        """Failed devices of one claim and driver."""
        return tuple(
            d for d in self.of(DeviceState.FAILED) if (d.device.driver, d.device.claim.uid) == key
        )

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


def build(
    claims: Iterable[Claim],
    histories: Mapping[Key, History],
    *,
    context: Context = NOTHING,
    limits: Limits | None = None,
) -> PodRecord:
    """Join claims and histories. Histories of other claims are left out."""
    limits = limits or Limits()
    devices: list[DeviceRecord] = []
    used: dict[Key, History] = {}
    for claim in claims:
        for driver in sorted(claim.drivers):
            history = histories.get((driver, claim.uid))
            if history is not None:
                used[driver, claim.uid] = history
            devices.extend(_of_driver(claim, driver, history, context))
    devices.sort(key=lambda d: (_WORST_FIRST.index(d.state), _identity(d.device)))
    escalated = frozenset(
        key
        for key, h in used.items()
        if h.state is DeviceState.FAILED and h.run is not None and h.run.beyond(limits)
    )
    return PodRecord(tuple(devices), tuple(sorted(used.items(), key=_by_key)), escalated)


def _by_key(item: tuple[Key, History]) -> Key:
    return item[0]


def _of_driver(
    claim: Claim, driver: str, history: History | None, context: Context
) -> list[DeviceRecord]:
    mine = [device for device in claim.devices if device.driver == driver]
    if history is None:
        return [DeviceRecord(device, DeviceState.PENDING) for device in mine]
    if history.state is not DeviceState.FAILED:
        return [DeviceRecord(device, history.state, history) for device in mine]
    # Where the text names no device that is proven to be the claim's, all of them failed, but
    # none is blamed.
    blamed = (
        attribution.blame(driver, history.verdict, mine, context.inventory)
        if history.verdict
        else None
    )
    found = []
    for device in mine:
        record = DeviceRecord(device, DeviceState.FAILED, history)
        if blamed is not None and record.place != blamed.place:
            found.append(replace(record, state=DeviceState.BLOCKED))
            continue
        found.append(
            replace(
                record,
                blame=blamed,
                blocker=context.blockers.get((driver, claim.uid)),
                holders=context.holders.get(record.place, ()),
                taints=context.taints(record.place),
            )
        )
    return found


def _identity(device: Device) -> tuple[str, ...]:
    return (
        device.claim.name,
        device.driver,
        device.request,
        device.pool,
        device.device,
        device.share_id,
    )
