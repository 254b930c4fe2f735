"""By what a driver may call its devices: the names, and the identifiers among their attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

# Attribute names that identify one device, without domain, case and separators. Names that begin
# as a relation to another device do not (the MIG device's parentUUID, a VF's PFName).
_IDENTITY = re.compile(
    r"(?!parent|pf|numa|pcieroot)(?:.*(?:uuid|serial|serialnumber|guid)"
    r"|(?:pci|pcie)(?:address|addr|busid|bdf|deviceaddress)|bdf|busid|uid"
    r"|(?:ifname|ifacename|interfacename|interface|netdev|mac|macaddress|rdmadev|rdmadevname|cpuid))"
)
_MINOR = re.compile(r"minor|minornumber|(?:device|gpu)minor")
_INDEX = re.compile(r"(?:card|render|device|gpu|npu|tpu|accelerator)?(?:index|idx)")
# What says of which kind a device is, or where: many have the same, or it is another thing's.
_SHARED = re.compile(
    r"(?:parent|pf|numa|pci.{0,2}root|physical|host|node|switch|peer|link|upstream|root|board).*"
    r"|.*(?:model|product|brand|family|vendor|arch|architecture|type|version|driver|class|firmware"
    r"|mode|profile|kind|state|status|zone|rack|fabric|clique|cluster|domain|group|island|pool"
    r"|speed|subnet|network|vlan|sku|generation|chip|capability|series|template|location|health)"
    r"(?:name|id)?"
)
_OWN_VALUE = re.compile(r"(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])[a-z0-9/][a-z0-9_.:/@-]{2,127}", re.I)
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_UUID = re.compile(r"(?:[a-z]{2,8}-)?[0-9a-f]{8}-[0-9a-f-]{4,64}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5,19}[0-9a-f]{2}")
_PREFIXED_UUID = re.compile(r"[a-z]{2,8}-([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})")


def identifying(name: str) -> bool:
    """Tell whether an attribute of that name identifies one device."""
    return _kind(name) in ("identity", "minor", "index")


def worth_keeping(name: str, value: str) -> bool:
    """Tell whether an attribute may tell which device a text names."""
    kind = _kind(name)
    return kind in ("identity", "minor", "index") or (
        kind == "" and _OWN_VALUE.fullmatch(value) is not None
    )


def identifiers(attributes: Mapping[str, str]) -> frozenset[str]:
    """Return a device's own identifiers, in the form that `normal` gives.

    A value with letters and digits counts whatever its attribute is called (`vfName`), unless
    that says what the device is of (`model`) or belongs to (`pfName`).
    """
    found = set()
    for name, value in attributes.items():
        if worth_keeping(name, value):
            found.add(normal(value))
    return frozenset(found)


def number(attributes: Mapping[str, str], kind: str) -> str | None:
    """Return the device's own number: `kind` is "minor" or "index"."""
    values = {value for name, value in attributes.items() if _kind(name) == kind}
    return next(iter(values)) if len(values) == 1 else None


def normal(value: str) -> str:
    """Return an identifier in one form: UUIDs, PCI and MAC addresses differ in case only, and
    tools write a PCI domain with four or with eight digits. All else is compared exactly.
    """
    low = value.lower()
    pci = _PCI.fullmatch(low)
    if pci is not None:
        domain = f"{int(pci[1], 16):04x}:" if pci[1] else ""
        return f"{domain}{pci[2]}:{pci[3]}.{pci[4]}"
    if _UUID.fullmatch(low) or _MAC.fullmatch(low):
        return low
    return value


def forms(identifier: str) -> tuple[str, ...]:
    """Return one identifier (as `normal` gives it) in all the forms in which a text may have it:
    a PCI address of domain 0000 without its domain, a UUID without the vendor's prefix.
    """
    if identifier.startswith("0000:") and _PCI.fullmatch(identifier):
        return identifier, identifier[5:]
    uuid = _PREFIXED_UUID.fullmatch(identifier)
    return (identifier, uuid[1]) if uuid is not None else (identifier,)


@lru_cache(maxsize=1024)
def _kind(name: str) -> str:
    """Return what an attribute of that name says: "identity", "minor", "index", "shared" or ""."""
    short = re.sub(r"[^a-z0-9]", "", name[-256:].rpartition("/")[2].lower())
    for kind, pattern in (("minor", _MINOR), ("index", _INDEX), ("identity", _IDENTITY)):
        if pattern.fullmatch(short):
            return kind
    return "shared" if _SHARED.fullmatch(short) else ""
