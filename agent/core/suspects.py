"""What several failures together say: a device that fails for several claims, or a rule that
fits so many claims and devices of one driver that the driver or the node is to blame (rule 16).

A suspicion changes no verdict. One against driver or node keeps pods from being failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.core.context import Place
from agent.core.history import Key
from agent.core.model import Culprit, DeviceState, Kind
from agent.core.record import DeviceRecord, PodRecord, Widespread

WINDOW = 600.0
"""Seconds in which failures by one rule are counted together."""
CLAIMS, DEVICES = 3, 2
"""So many claims, or devices at fault, are too many for one cause of their own."""

DEVICE_WINDOW = 3600.0
DEVICE_CLAIMS = 2
"""So many claims must have failed on one device within the window."""

MAX_RULES, MAX_CLAIMS, MAX_DEVICES = 256, 64, 512

_OF_THE_CLAIM = (Culprit.PARAMETERS, Culprit.CLAIM)
_ELSEWHERE = (Culprit.DRIVER, Culprit.NODE, Culprit.API)

_Rule = tuple[str, str, Culprit]  # driver, rule, culprit


@dataclass(frozen=True, slots=True)
class _Sighting:
    at: float
    group: str
    places: frozenset[Place]


@dataclass(slots=True)
class _Sightings:
    by_claim: dict[str, _Sighting] = field(default_factory=dict)

    def put(self, claim: str, sighting: _Sighting) -> None:
        self.by_claim.pop(claim, None)
        self.by_claim[claim] = sighting
        while len(self.by_claim) > MAX_CLAIMS:
            del self.by_claim[next(iter(self.by_claim))]

    def expire(self, before: float) -> None:
        self.by_claim = {c: s for c, s in self.by_claim.items() if s.at > before}

    @property
    def groups(self) -> int:
        """Claims that count. All those that found the same device at fault are one: they are
        evidence against the device, not against its driver.
        """
        found: set[object] = set()
        for sighting in self.by_claim.values():
            found.add(sighting.places or sighting.group)
        return len(found)

    @property
    def places(self) -> int:
        return len({place for s in self.by_claim.values() for place in s.places})


class Suspects:
    """Bounded memory of failures over all pods of the node."""

    def __init__(self) -> None:
        self._rules: dict[_Rule, _Sightings] = {}
        self._devices: dict[Place, _Sightings] = {}

    def note(self, record: PodRecord, owner: str, now: float) -> bool:
        """Count the failures of a pod. True when a driver or a device became suspect by it.

        `owner`: UID of the pod's controller. Claims that one owner made from one template say
        the same thing once where their parameters are the culprit.
        """
        news = False
        for key, history in record.failing:
            verdict = history.verdict
            if verdict is None or not history.final or verdict.kind is Kind.TRANSIENT:
                continue
            if verdict.culprit in _ELSEWHERE:
                continue  # nobody else is accused
            (driver, claim), devices = key, record.failed_of(key)
            rule = (driver, verdict.rule, verdict.culprit)
            before = self._widespread(rule, now)
            sightings = _slot(self._rules, rule, MAX_RULES)
            mine = verdict.culprit in _OF_THE_CLAIM
            places = _at_fault(devices) if verdict.culprit is Culprit.DEVICE else frozenset()
            sightings.put(claim, _Sighting(history.at, owner if mine and owner else claim, places))
            if not mine:
                # An unknown failure of one owner's pods may as well be in what they ask for.
                known = verdict.culprit is Culprit.DEVICE
                group = claim if known or not owner else owner
                for place in sorted({d.place for d in devices}):
                    often = self._often(place, now)
                    seen = _slot(self._devices, place, MAX_DEVICES)
                    seen.put(claim, _Sighting(history.at, group, frozenset()))
                    news = news or (not often and self._often(place, now))
            news = news or (before is None and self._widespread(rule, now) is not None)
        return news

    def judge(self, record: PodRecord, now: float) -> PodRecord:
        """Return the record with the suspicions that hold now."""
        found: dict[Key, Widespread] = {}
        for key, history in record.failing:
            if history.verdict is not None:
                rule = (key[0], history.verdict.rule, history.verdict.culprit)
                spread = self._widespread(rule, now)
                if spread is not None:
                    found[key] = spread
        suspects: dict[int, str] = {}
        for key, _ in record.failing:
            failed = record.failed_of(key)
            if key in found:
                suspects |= {id(d): found[key].suspect for d in failed}
                continue
            often = [d for d in failed if self._often(d.place, now)]
            # Devices that only ever fail together cannot be told apart: then none is named.
            if len({d.place for d in often}) == 1:
                suspects |= {id(d): "device" for d in often}
        devices = tuple(replace(d, suspect=suspects.get(id(d), "")) for d in record.devices)
        return replace(record, devices=devices, widespread=tuple(sorted(found.items())))

    def clear(self, record: PodRecord) -> None:
        """Forget what a pod's claims said of devices and rules: they are prepared now."""
        claims = {uid for (_, uid), h in record.histories if h.state is DeviceState.PREPARED}
        for sightings in (*self._rules.values(), *self._devices.values()):
            for claim in claims:
                sightings.by_claim.pop(claim, None)
        for device in record.of(DeviceState.PREPARED):
            self._devices.pop(device.place, None)

    def describe(self, now: float) -> list[dict[str, object]]:
        """All suspicions, for people."""
        found: list[dict[str, object]] = []
        for rule in sorted(self._rules):
            spread = self._widespread(rule, now)
            if spread is not None:
                counts = {"claims": spread.claims, "devices": spread.devices}
                found.append(
                    {"suspect": spread.suspect, "driver": rule[0], "rule": rule[1], **counts}
                )
        for place in sorted(self._devices):
            if self._often(place, now):
                driver, pool, device = place
                count = len(self._devices[place].by_claim)
                found.append(
                    {"suspect": "device", "driver": driver, "pool": pool, "device": device}
                    | {"claims": count}
                )
        return found

    def _widespread(self, rule: _Rule, now: float) -> Widespread | None:
        sightings = self._rules.get(rule)
        if sightings is None:
            return None
        sightings.expire(now - WINDOW)
        if sightings.groups < CLAIMS and sightings.places < DEVICES:
            return None
        return Widespread("driver", rule[1], len(sightings.by_claim), sightings.places)

    def _often(self, place: Place, now: float) -> bool:
        sightings = self._devices.get(place)
        if sightings is None:
            return False
        sightings.expire(now - DEVICE_WINDOW)
        return sightings.groups >= DEVICE_CLAIMS


def _slot(table: dict, key: object, limit: int) -> _Sightings:  # type: ignore[type-arg]  # of any key
    found = table.pop(key, None) or _Sightings()
    table[key] = found  # taken out and put in again: the oldest stands first
    while len(table) > limit:
        del table[next(iter(table))]
    return found


def _at_fault(devices: tuple[DeviceRecord, ...]) -> frozenset[Place]:
    """Devices proven to be at fault, or the only one there is."""
    blamed = frozenset(d.place for d in devices if d.blame is not None and d.blame.at_fault)
    every = frozenset(d.place for d in devices)
    return blamed or (every if len(every) == 1 else frozenset())
