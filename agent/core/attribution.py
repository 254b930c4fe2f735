"""Which device of a claim a verdict speaks of.

A name in a text is no proof. A device is meant only if the rule has a device group, or the clause
that it matched names one device and no other thing, and the claim's allocation gives exactly that
one. Drivers name devices by their own identifiers (UUID, PCI address, minor, index) as well; those
are looked up in the attributes of the driver's ResourceSlices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent.core import naming
from agent.core.context import Place, SliceDevice
from agent.core.identity import forms, identifiers, normal, number
from agent.core.model import Culprit, Device, Verdict

_MINOR = re.compile(
    r"\bminor(?: number)?[ :=#]{1,2}([0-9]{1,7})\b(?![.:-]?[0-9a-z])", re.IGNORECASE
)
_INDEX = re.compile(
    r"\b(?:index|idx|(?:gpu|npu|tpu|fpga|device|card|accelerator|adapter|chip)(?: index| number)?)"
    r"[ :=#]{1,2}([0-9]{1,4})\b(?![.:-]?[0-9a-z])",
    re.IGNORECASE,
)
# A device may be called `gpu`, but the word alone says nothing.
_WORD = re.compile(
    r"devices?|gpus?|npus?|tpus?|fpgas?|dpu|nics?|vfs?|pfs?|cards?|chips?|adapter|accelerator"
    r"|interface|port|link|controller|drive|disk|memory|bus|pcie?|engine|board|partition|instance"
    r"|core|hardware|firmware|error|fault|failure|state|status|driver|host|node|index|minor|number",
    re.IGNORECASE,
)
_FILE_MINOR = re.compile(
    r"(?!sd|loop|dm|md|tty|pts|vfio|tap|tun|ram|sg|sr)[a-z_]{2,20}([0-9]{1,7})"
)


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
    known = _Known.of(driver, mine, inventory)
    return known.one(known.bearing(said))


def point(
    driver: str, said: str, mine: Sequence[Device], inventory: Iterable[SliceDevice] = ()
) -> Place | None:
    """Return the one device of `mine` that these words name; None where they name any other too.

    A bare number counts only after a word such as `minor` or `index`.
    """
    known = _Known.of(driver, mine, inventory)
    found: set[Place] = set()
    for word, same in naming.words(said):
        if word.isdigit() or _WORD.fullmatch(word):
            continue
        places = known.bearing(word) or known.file(word)
        if not places and naming.is_name(word) and not same:
            return None
        found |= places
    for pattern, kind in ((_MINOR, "minor"), (_INDEX, "index")):
        for match in pattern.finditer(said):
            places = known.numbers.get((kind, match[1]), set())
            if not places:
                return None
            found |= places
    return known.one(found)


def blame(
    driver: str, verdict: Verdict, mine: Sequence[Device], inventory: Iterable[SliceDevice] = ()
) -> Blame | None:
    """Return the device that the verdict speaks of, None where none is proven."""
    if verdict.where:
        place = point(driver, verdict.where, mine, inventory)
    elif verdict.device:
        place = find(driver, verdict.device, mine, inventory)
    else:
        return None
    if place is None:
        return None
    return Blame(place, verdict.rule, verdict.span, verdict.culprit is Culprit.DEVICE)


@dataclass(slots=True)
class _Known:
    """Who bears which name or identifier, among the claim's devices and those of its pools."""

    owned: set[Place]
    names: dict[str, set[Place]] = field(default_factory=dict)
    identifiers: dict[str, set[Place]] = field(default_factory=dict)
    numbers: dict[tuple[str, str], set[Place]] = field(default_factory=dict)

    @classmethod
    def of(cls, driver: str, mine: Sequence[Device], inventory: Iterable[SliceDevice]) -> _Known:
        own = [d for d in mine if d.driver == driver]
        known = cls({(d.driver, d.pool, d.device) for d in own})
        pools = {place[1] for place in known.owned}
        given: list[Device | SliceDevice] = [*own, *(d for d in inventory if d.driver == driver)]
        for device in given:
            place = (device.driver, device.pool, device.device)
            known.names.setdefault(device.device, set()).add(place)
            if device.pool not in pools:
                continue
            known.names.setdefault(f"{device.pool}/{device.device}", set()).add(place)
            for identifier in identifiers(device.attributes):
                for form in forms(identifier):
                    known.identifiers.setdefault(form, set()).add(place)
            for kind in ("minor", "index"):
                value = number(device.attributes, kind)
                if value is not None:
                    known.numbers.setdefault((kind, value), set()).add(place)
        return known

    def bearing(self, said: str) -> set[Place]:
        """Devices of that name; the pool of another node may have the same names, those of the
        claim are meant. Else devices with that identifier.
        """
        named = self.names.get(said, set())
        if named:
            return (named & self.owned) or named
        borne = (self.identifiers.get(form) for form in forms(normal(said)))
        return next((places for places in borne if places), set())

    def file(self, said: str) -> set[Place]:
        """Devices whose file that is: by the file's name, else by the minor in it."""
        name = naming.device_file(said)
        if name is None:
            return set()
        minor = _FILE_MINOR.fullmatch(name)
        return self.bearing(name) or (
            self.numbers.get(("minor", minor[1]), set()) if minor is not None else set()
        )

    def one(self, places: set[Place]) -> Place | None:
        """The place, if it is one and the claim's."""
        return next(iter(places)) if len(places) == 1 and places <= self.owned else None
