"""Looks around after a failure: who else has the device, what its ResourceSlice says of it.

Best effort and bounded: without the right or an answer the failure is told without it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from agent.core.context import (
    Blocker,
    Context,
    InFlight,
    Place,
    SliceDevice,
    TaintRule,
    waits_for,
)
from agent.core.history import History, Key
from agent.core.model import ClaimRef, Culprit, Kind, WaitsFor
from agent.core.pods import Claim, Pod
from agent.core.record import PodRecord
from agent.kube.errors import Denied, Invalid, KubeError, NotFound
from agent.kube.parse import parse_claim, parse_slice, parse_taint_rule
from agent.report.parts import Parts

log = logging.getLogger(__name__)

FRESH = 60.0
"""Seconds for which a slice or another pod's claim is believed. They are context, not proof."""

READS = 16
"""Claims of other pods read for one failure; pods that are ending come first."""

_KEPT = 256  # claims, and drivers' slices

_K = TypeVar("_K")
_V = TypeVar("_V")


class Surroundings:
    """Reads and remembers for a short time; one failing driver must not read for each pod."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._slices: dict[str, tuple[float, tuple[SliceDevice, ...]]] = {}
        self._claims: dict[tuple[str, str], tuple[float, Claim | None]] = {}
        self._taint_rules: dict[str, tuple[float, tuple[TaintRule, ...]]] = {}
        self._told: set[str] = set()

    async def look(self, record: PodRecord, pod: Pod) -> Context:
        """Find out what helps to understand the failures of a pod."""
        inventory: list[SliceDevice] = []
        taint_rules: tuple[TaintRule, ...] = ()
        blockers: dict[Key, Blocker] = {}
        holders: dict[Place, tuple[ClaimRef, ...]] = {}
        seen: set[str] = set()
        for key, history in record.failing:
            driver = key[0]
            if _asks_for_devices(history) and driver not in seen:
                seen.add(driver)
                inventory += await self._inventory(driver)
                taint_rules = await self._rules_of_taints()
            waits = None
            if _can_wait(history):
                waits = waits_for(history.last_error, history.verdict)
            if waits is WaitsFor.DEVICE or _culprit(history) is Culprit.DEVICE:
                found = await self._holders(record, key, pod)
                holders |= found
            blocker = self._blocker(key, waits, holders, record)
            if blocker is not None:
                blockers[key] = blocker
                self._parts.calls.blocked(*key, blocker.claim.uid)
        return Context(tuple(inventory), blockers, holders, taint_rules)

    def _blocker(
        self,
        key: Key,
        waits: WaitsFor | None,
        holders: dict[Place, tuple[ClaimRef, ...]],
        record: PodRecord,
    ) -> Blocker | None:
        """Name the claim that this one waits for, where it is known."""
        others = [c for c in self._parts.calls.active(key[0]) if c.claim.uid != key[1]]
        if waits is WaitsFor.LOCK and others:
            return self._named(others[0].claim, others)  # the oldest holds it, if any does
        if waits is WaitsFor.DEVICE:
            mine = [d.place for d in record.failed_of(key)]
            held = [ref for place in mine for ref in holders.get(place, ())]
            running = {each.claim.uid for each in others}
            held.sort(key=lambda ref: ref.uid not in running)  # one in flight comes first
            if held:
                return self._named(held[0], others)
        return None

    def _named(self, ref: ClaimRef, active: Iterable[InFlight]) -> Blocker:
        users = self._parts.pods.of_claim(ref.namespace, ref.name)
        call = next((each for each in active if each.claim.uid == ref.uid), None)
        return Blocker(
            ref,
            users[0].name if users else "",
            call.operation if call else "",
            call.seconds if call else None,
        )

    async def _inventory(self, driver: str) -> tuple[SliceDevice, ...]:
        async def read() -> tuple[SliceDevice, ...]:
            slices = await self._parts.kube.list_slices(driver, self._parts.rules.node)
            return tuple(device for raw in slices for device in parse_slice(raw))

        return await self._remembered(self._slices, driver, "resourceslices", read)

    async def _rules_of_taints(self) -> tuple[TaintRule, ...]:
        """Read the admins' taints; kubelets before 1.37 come with an API that has none."""

        async def read() -> tuple[TaintRule, ...]:
            try:
                rules = map(parse_taint_rule, await self._parts.kube.list_taint_rules())
            except NotFound:
                return ()
            return tuple(rule for rule in rules if rule is not None)

        return await self._remembered(self._taint_rules, "", "devicetaintrules", read)

    async def _remembered(
        self,
        table: dict[str, tuple[float, tuple[_V, ...]]],
        key: str,
        what: str,
        read: Callable[[], Awaitable[tuple[_V, ...]]],
    ) -> tuple[_V, ...]:
        """Read what is not fresh. An answer that could pass is not remembered as `nothing`."""
        now, known = self._parts.now(), table.get(key)
        if known is not None and now - known[0] < FRESH:
            return known[1]
        found: tuple[_V, ...] = ()
        try:
            found = await read()
        except KubeError as exc:
            self._missing(what, exc)
            if not isinstance(exc, Denied | NotFound | Invalid):
                return known[1] if known else ()
        _keep(table, key, (now, found))
        return found

    async def _holders(
        self, record: PodRecord, key: Key, pod: Pod
    ) -> dict[Place, tuple[ClaimRef, ...]]:
        places = {d.place for d in record.failed_of(key)}
        own = {(pod.namespace, name) for name in pod.claims}
        found: dict[Place, dict[str, ClaimRef]] = {}
        for claim in await self._others(own):
            for device in claim.devices:
                place = (device.driver, device.pool, device.device)
                if place in places:
                    found.setdefault(place, {})[claim.uid] = claim.ref
        return {place: tuple(refs.values()) for place, refs in found.items()}

    async def _others(self, own: set[tuple[str, str]]) -> list[Claim]:
        """Claims of this node's other pods, as many as may be read."""
        pods = sorted(self._parts.pods.all(), key=lambda p: (not p.deleting, p.name))
        wanted = dict.fromkeys((p.namespace, n) for p in pods for n in p.claims)
        found, reads = [], 0
        for place in wanted:
            if place in own:
                continue
            known = self._claims.get(place)
            if known is None or self._parts.now() - known[0] >= FRESH:
                reads += 1
                if reads > READS:
                    continue
                try:
                    claim: Claim | None = parse_claim(await self._parts.kube.get_claim(*place))
                except NotFound:
                    claim = None
                except KubeError as exc:
                    self._missing("resourceclaims", exc)
                    break
                known = (self._parts.now(), claim)
                _keep(self._claims, place, known)
            if known[1] is not None:
                found.append(known[1])
        return found

    def _missing(self, what: str, exc: KubeError) -> None:
        level = logging.DEBUG if what in self._told else logging.WARNING
        self._told.add(what)
        log.log(level, "%s cannot be read, failures are told without them: %s", what, exc)


def _culprit(history: History) -> Culprit:
    return history.verdict.culprit if history.verdict else Culprit.UNKNOWN


def _asks_for_devices(history: History) -> bool:
    verdict = history.verdict
    named = verdict is not None and bool(verdict.device)
    return named or _culprit(history) in (Culprit.DEVICE, Culprit.UNKNOWN)


def _can_wait(history: History) -> bool:
    """What can never work waits for nobody."""
    return history.verdict is None or history.verdict.kind is not Kind.PERMANENT


def _keep(table: dict[_K, _V], key: _K, value: _V) -> None:
    table.pop(key, None)
    table[key] = value
    while len(table) > _KEPT:
        del table[next(iter(table))]
