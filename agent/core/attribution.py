"""Which device of a claim a verdict speaks of.

A name in a text is no proof. A device is meant only if the rule has a device group, what it found
is one device of the driver and no other, and the claim's allocation gives exactly that one.
Drivers name devices by their own identifiers (UUID, PCI address, minor, index) as well; those are
looked up in the attributes of the driver's ResourceSlices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.core.context import Place, SliceDevice
from agent.core.model import Culprit, Device, Verdict

# Attribute names that identify one device, without domain, case and separators. Names that begin
# as a relation to another device do not (the MIG device's parentUUID, a VF's PFName).
_IDENTITY = re.compile(
    r"(?!parent|pf|numa|pcieroot)(?:.*(?:uuid|serial|serialnumber|guid)"
    r"|(?:pci|pcie)(?:address|addr|busid|bdf|deviceaddress)|bdf|busid|uid"
    r"|minor|minornumber|(?:card|render|device|gpu)?(?:index|idx)"
    r"|ifname|ifacename|interfacename|interface|netdev|mac|macaddress|rdmadev|rdmadevname|cpuid)"
)
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_UUID = re.compile(r"(?:[a-z]{2,8}-)?[0-9a-f]{8}-[0-9a-f-]{4,64}")


@dataclass(frozen=True, slots=True)
class Blame:
    """A device that a rule found in a text and the allocation confirms."""

    place: Place
    rule: str
    span: tuple[int, int] | None  # of the cleaned text
    at_fault: bool  # False: it failed, but its parameters, say, are the culprit


def find(
    driver: str, said: str, mine: Sequence[Device], inventory: Iterable[SliceDevice] = ()
) -> Place | None:
    """Return the one device of `mine` that `said` names, or None: unknown, several, or another's.

    `mine`: what the claim was allocated. `inventory`: the driver's devices on this node, which
    tells identifiers and what else bears the same one.
    """
    owned = {(d.driver, d.pool, d.device) for d in mine if d.driver == driver}
    offered = [d for d in inventory if d.driver == driver]
    named = {p for p in owned if p[2] == said}
    named |= {d.place for d in offered if d.device == said}
    # The pool of another node may have the same names; those of the claim are meant.
    named = (named & owned) or named
    if not named:
        wanted = normal(said)
        pools = {place[1] for place in owned}
        named = {
            d.place for d in offered if d.pool in pools and wanted in identifiers(d.attributes)
        }
        named |= {
            (d.driver, d.pool, d.device)
            for d in mine
            if d.driver == driver and wanted in identifiers(d.attributes)
        }
    return next(iter(named)) if len(named) == 1 and named <= owned else None


def blame(
    driver: str, verdict: Verdict, mine: Sequence[Device], inventory: Iterable[SliceDevice] = ()
) -> Blame | None:
    """Return the device that the verdict speaks of, None where none is proven."""
    if not verdict.device:
        return None
    place = find(driver, verdict.device, mine, inventory)
    if place is None:
        return None
    return Blame(place, verdict.rule, verdict.span, verdict.culprit is Culprit.DEVICE)


def identifying(name: str) -> bool:
    """Tell whether an attribute of that name identifies one device."""
    short = re.sub(r"[^a-z0-9]", "", name.rpartition("/")[2].lower())
    return _IDENTITY.fullmatch(short) is not None


def identifiers(attributes: Mapping[str, str]) -> frozenset[str]:
    """Return a device's own identifiers, in the form that `normal` gives."""
    return frozenset(normal(value) for name, value in attributes.items() if identifying(name))


def normal(value: str) -> str:
    """Return an identifier in one form: UUIDs, PCI and MAC addresses differ in case only, and
    tools write a PCI domain with four or with eight digits. All else is compared exactly.
    """
    low = value.lower()
    pci = _PCI.fullmatch(low)
    if pci is not None:
        domain = f"{int(pci[1], 16):04x}:" if pci[1] else ""
        return f"{domain}{pci[2]}:{pci[3]}.{pci[4]}"
    if _UUID.fullmatch(low) or re.fullmatch(r"(?:[0-9a-f]{2}:){5,19}[0-9a-f]{2}", low):
        return low
    return value
