"""What the API and the running calls add to a failure. Read only after one.

All of it is optional: a Context without content changes no verdict and no outcome.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.core.history import Key
from agent.core.model import ClaimRef, Verdict, WaitsFor

Place = tuple[str, str, str]
"""(driver, pool, device)."""

_ENDS = 2048  # characters looked at from either end of a text
_DEVICE_TAKEN = re.compile(
    r"already (?:allocated|in use|assigned|prepared|bound)|in use by|used by another"
    r"|resource busy|device is busy|device busy",
    re.IGNORECASE,
)
_LOCKED = re.compile(r"\block\b.{0,40}(?:timeout|timed out)|(?:timeout|timed out|error|failed)"
                     r" (?:while )?(?:acquiring|waiting for|obtaining) (?:the )?(?:\w{1,20} )?lock",
                     re.IGNORECASE)  # fmt: skip


def waits_for(text: str, verdict: Verdict | None = None) -> WaitsFor | None:
    """Say what a failure waits for, if for another claim: the rule knows it, else the words."""
    if verdict is not None and verdict.waits_for is not None:
        return verdict.waits_for
    text = text if len(text) <= 2 * _ENDS else text[:_ENDS] + "\n" + text[-_ENDS:]
    if _LOCKED.search(text):
        return WaitsFor.LOCK
    return WaitsFor.DEVICE if _DEVICE_TAKEN.search(text) else None


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """A device as its driver's ResourceSlice offers it, without what nobody reads here."""

    driver: str
    pool: str
    device: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()  # key=value:effect

    @property
    def place(self) -> Place:
        """Which device it is."""
        return (self.driver, self.pool, self.device)


@dataclass(frozen=True, slots=True)
class TaintRule:
    """What an admin's DeviceTaintRule does; an empty part of its place stands for any."""

    place: Place
    taint: str  # key=value:effect

    def applies(self, place: Place) -> bool:
        """Tell whether it taints this device."""
        return all(mine in ("", other) for mine, other in zip(self.place, place, strict=True))


@dataclass(frozen=True, slots=True)
class InFlight:
    """A call that kubelet waits for now."""

    claim: ClaimRef
    operation: str  # prepare | unprepare
    seconds: float


@dataclass(frozen=True, slots=True)
class Blocker:
    """A claim that another one waits for."""

    claim: ClaimRef
    pod: str = ""
    operation: str = ""  # of its call in flight, if any
    seconds: float | None = None  # for which that call has been in flight

    def __str__(self) -> str:
        text = f"claim {self.claim.name}" + (f" (pod {self.pod})" if self.pod else "")
        if self.seconds is None:
            return f"{text}, which holds the device"
        return f"{text}, {self.operation} in flight for {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that was found out about one pod's failure."""

    inventory: tuple[SliceDevice, ...] = ()  # of the drivers of its failed claims, on this node
    blockers: Mapping[Key, Blocker] = field(default_factory=dict)
    holders: Mapping[Place, tuple[ClaimRef, ...]] = field(default_factory=dict)
    taint_rules: tuple[TaintRule, ...] = ()

    def taints(self, place: Place) -> tuple[str, ...]:
        """Taints that the device's driver or an admin put on it, each once."""
        own = next((d.taints for d in self.inventory if d.place == place), ())
        ruled = (rule.taint for rule in self.taint_rules if rule.applies(place))
        return tuple(dict.fromkeys((*own, *ruled)))


NOTHING = Context()
