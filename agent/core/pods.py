"""Pods and claims as this agent needs them: small frozen values (made by agent.kube.parse).

A node may have hundreds of pods, so a Pod keeps only what a decision reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.model import ClaimRef, Device


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller in an object's ownerReferences."""

    kind: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One pod condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition: str = ""  # RFC 3339, as the API has it


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod with resource claims. `conditions` and `annotations` hold only our own."""

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    node: str = ""
    owner: Owner | None = None
    critical: bool = False
    static: bool = False  # from a file or its mirror, not from the API
    phase: str = "Pending"
    reason: str = ""
    started: bool = False  # a container runs or ran
    deleting: bool = False
    claims: tuple[str, ...] = ()  # names of ResourceClaims in the pod's namespace
    claims_complete: bool = True  # False: a template's claim is not known yet
    conditions: tuple[Condition, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    created: str = ""  # RFC 3339
    sandboxed: bool = False  # kubelet made its sandbox, so its devices are prepared

    @property
    def ended(self) -> bool:
        """True in a phase that a pod never leaves."""
        return self.phase in ("Failed", "Succeeded")

    def condition(self, kind: str) -> Condition | None:
        """Return our condition of that type."""
        return next((c for c in self.conditions if c.type == kind), None)

    def annotation(self, key: str) -> str:
        """Return our annotation of that key, or ""."""
        return dict(self.annotations).get(key, "")


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim and what was allocated for it."""

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    owner: Owner | None = None  # the controller
    reserved_for: tuple[tuple[str, str], ...] = ()  # (resource, uid)
    devices: tuple[Device, ...] = ()
    admin_access: bool = False

    @property
    def ref(self) -> ClaimRef:
        """The claim as kubelet names it."""
        return ClaimRef(self.namespace, self.uid, self.name)

    @property
    def drivers(self) -> frozenset[str]:
        """Names of the drivers that own its devices."""
        return frozenset(device.driver for device in self.devices)
