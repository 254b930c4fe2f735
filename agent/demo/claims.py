"""kubelet's claim handling: what it checks, calls, remembers, and the words it says on failure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from agent import names
from agent.core.model import ClaimRef, Status
from agent.demo import messages
from agent.demo.controller import claim_names
from agent.demo.plugins import Plugin, Plugins
from agent.demo.store import ApiError, Object, Store
from agent.errors import AgentError, TransportError
from agent.rpc.call import UNAVAILABLE, status_of

CODES = {
    0: "OK",
    1: "Canceled",
    2: "Unknown",
    3: "InvalidArgument",
    4: "DeadlineExceeded",
    5: "NotFound",
    6: "AlreadyExists",
    7: "PermissionDenied",
    8: "ResourceExhausted",
    9: "FailedPrecondition",
    10: "Aborted",
    11: "OutOfRange",
    12: "Unimplemented",
    13: "Internal",
    14: "Unavailable",
    15: "DataLoss",
    16: "Unauthenticated",
}
"""As grpc-go prints them."""


class PrepareError(AgentError):
    """A prepare or unprepare that failed; the text is kubelet's."""


@dataclass(slots=True)
class ClaimInfo:
    """What kubelet remembers of a claim; written before the first call to a driver."""

    ref: ClaimRef
    drivers: tuple[str, ...]
    pods: set[str] = field(default_factory=set)
    prepared: bool = False
    unpreparing: bool = False
    devices: dict[str, tuple[messages.PreparedDevice, ...]] = field(default_factory=dict)


class Claims:
    """The DRA manager. `cache` is by (namespace, claim name), as kubelet's is."""

    def __init__(self, store: Store, plugins: Plugins, *, deadline: float) -> None:
        self.cache: dict[tuple[str, str], ClaimInfo] = {}
        self.calls: list[tuple[str, str, tuple[ClaimRef, ...]]] = []  # operation, driver, claims
        self._store = store
        self._plugins = plugins
        self._deadline = deadline

    def needs_unprepare(self, uid: str) -> bool:
        """True while a pod is recorded with any claim."""
        return any(uid in info.pods for info in self.cache.values())

    async def prepare(self, pod: Object) -> None:
        """Prepare all claims of a pod: one call per driver, random order, the first error ends it.

        Raises PrepareError.
        """
        uid = pod["metadata"]["uid"]
        found = [self._check(pod, name) for name in claim_names(pod).values()]
        if len(found) < len(pod["spec"].get("resourceClaims") or []):
            raise PrepareError("ResourceClaim not created yet")
        batches: dict[str, list[ClaimInfo]] = {}
        for fresh in found:
            info = self.cache.setdefault((fresh.ref.namespace, fresh.ref.name), fresh)
            info.pods.add(uid)
            if not info.prepared:
                for driver in info.drivers:
                    batches.setdefault(driver, []).append(info)
        for driver in random.sample(sorted(batches), len(batches)):
            answers = await self._call(names.PREPARE, driver, batches[driver])
            for info, answer in answers:
                # The answer replaces what an earlier try left, also when it names no device.
                info.devices[driver] = answer.devices
        for info in found:
            self.cache[info.ref.namespace, info.ref.name].prepared = True

    async def unprepare(self, uid: str) -> None:
        """Unprepare the claims that only this pod uses; all references go when all went well."""
        batches: dict[str, list[ClaimInfo]] = {}
        mine = [info for info in self.cache.values() if uid in info.pods]
        for info in mine:
            if info.pods == {uid}:
                info.unpreparing = True
                for driver in info.drivers:
                    batches.setdefault(driver, []).append(info)
        for driver in random.sample(sorted(batches), len(batches)):
            await self._call(names.UNPREPARE, driver, batches[driver])
        for info in mine:
            info.pods.discard(uid)
            if not info.pods:
                self.cache.pop((info.ref.namespace, info.ref.name), None)

    def _check(self, pod: Object, name: str) -> ClaimInfo:
        """Everything kubelet looks at before it calls any driver."""
        meta = pod["metadata"]
        namespace = meta["namespace"]
        try:
            claim = self._store.get("resourceclaims", namespace, name)
        except ApiError as error:
            raise PrepareError(f"failed to fetch ResourceClaim {name}: {error}") from error
        status = claim.get("status") or {}
        owners = claim["metadata"].get("ownerReferences") or []
        if owners and all(owner["uid"] != meta["uid"] for owner in owners):
            raise PrepareError(f"ResourceClaim {name} was not created for pod {meta['name']}")
        if all(user["uid"] != meta["uid"] for user in status.get("reservedFor") or []):
            raise PrepareError(
                f"pod {meta['name']} ({meta['uid']}) is not allowed to use ResourceClaim {name}"
            )
        results = (status.get("allocation") or {}).get("devices", {}).get("results")
        if results is None:
            raise PrepareError(f"ResourceClaim {name}: not allocated")
        drivers = tuple(dict.fromkeys(result["driver"] for result in results))
        for driver in drivers:
            self._plugin(driver)
        claim_uid = claim["metadata"]["uid"]
        known = self.cache.get((namespace, name))
        if known is not None and known.ref.uid != claim_uid:
            raise PrepareError(
                f"old ResourceClaim with same name {name} and different UID {known.ref.uid} "
                "still exists (previous pod force-deleted?!)"
            )
        if known is not None and known.unpreparing:
            raise PrepareError(f"ResourceClaim {name} is being unprepared")
        return ClaimInfo(ClaimRef(namespace, claim_uid, name), drivers)

    def _plugin(self, driver: str) -> Plugin:
        plugin = self._plugins.pick(driver)
        if plugin is None:
            raise PrepareError(f"DRA driver {driver} is not registered")
        return plugin

    async def _call(
        self, operation: str, driver: str, infos: list[ClaimInfo]
    ) -> list[tuple[ClaimInfo, messages.ClaimAnswer]]:
        refs = tuple(info.ref for info in infos)
        self.calls.append((operation, driver, refs))
        body = await self._send(operation, driver, messages.claims_request(operation, refs))
        try:
            answers = messages.parse_answers(operation, body)
        except ValueError as error:
            raise PrepareError(f"{operation}: rpc error: code = Internal desc = {error}") from error
        by_uid = {info.ref.uid: info for info in infos}
        result = []
        for claim_uid in random.sample(sorted(answers), len(answers)):
            if claim_uid not in by_uid:
                raise PrepareError(f"{operation} returned result for unknown claim UID {claim_uid}")
            answer = answers[claim_uid]
            if answer.error:
                name = by_uid[claim_uid].ref.name
                raise PrepareError(f"{operation} failed for ResourceClaim {name}: {answer.error}")
            result.append((by_uid[claim_uid], answer))
        if len(result) < len(infos):
            raise PrepareError(f"{operation} skipped {len(infos) - len(result)} ResourceClaims")
        return result

    async def _send(self, operation: str, driver: str, body: bytes) -> bytes:
        plugin = self._plugin(driver)
        status = Status(UNAVAILABLE, plugin.last_error)
        if plugin.connected:
            method = f"/{plugin.service}/{operation}"
            try:
                answer = await plugin.channel.unary(method, body, timeout=self._deadline)
            except TransportError as error:
                status = status_of(error)
            else:
                if answer.body is not None:
                    return answer.body
                status = answer.status or status
        name = CODES.get(status.code, f"Code({status.code})")
        raise PrepareError(f"{operation}: rpc error: code = {name} desc = {status.message}")
