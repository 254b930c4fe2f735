"""Short ways to make facts, claims and records for tests of the core and the reporter."""

from __future__ import annotations

from agent.core.history import History, Key, merge
from agent.core.model import (
    CallFact,
    ClaimOutcome,
    ClaimRef,
    Culprit,
    Device,
    DeviceState,
    Kind,
    Verdict,
)
from agent.core.pods import Claim, Owner, Pod
from agent.core.record import PodRecord, build

GPU, NET = "gpu.example.com", "net.example.com"
WALL = 1_796_048_791.25  # 2026-11-30T14:26:31Z

PARAMETERS = Verdict(
    Kind.PERMANENT, Culprit.PARAMETERS, "bad-strategy", hint="Correct the claim's parameters"
)
BUSY = Verdict(Kind.TRANSIENT, Culprit.DEVICE, "busy")


def ref(name: str = "c") -> ClaimRef:
    return ClaimRef("ns", f"uid-{name}", name)


def outcome(
    claim: str = "c",
    state: DeviceState = DeviceState.FAILED,
    verdict: Verdict | None = PARAMETERS,
    *,
    error: str = "invalid sharing strategy",
    attempts: int = 1,
    held: bool = False,
) -> ClaimOutcome:
    failed = state is DeviceState.FAILED
    return ClaimOutcome(
        ref(claim),
        state,
        verdict=verdict if failed else None,
        attempts=attempts,
        first_error=error if failed or attempts > 1 else "",
        last_error=error if failed or attempts > 1 else "",
        first_wall=WALL if failed or attempts > 1 else 0.0,
        last_wall=WALL if failed or attempts > 1 else 0.0,
        held=held,
    )


def fact(
    *outcomes: ClaimOutcome,
    driver: str = GPU,
    final: bool = True,
    replied_at: float = 0.0,
    duration: float = 0.0,
    operation: str = "prepare",
) -> CallFact:
    return CallFact(
        driver=driver,
        operation=operation,
        method="/x/NodePrepareResources",
        outcomes=outcomes,
        final=final,
        wall=WALL,
        replied_at=replied_at,
        duration=duration,
        trace_id="ab" * 16,
    )


def pod(**changes: object) -> Pod:
    fields: dict[str, object] = {
        "uid": "uid-p",
        "namespace": "ns",
        "name": "p",
        "resource_version": "7",
        "claims": ("c",),
    }
    return Pod(**{**fields, **changes})  # type: ignore[arg-type]


def claim(
    name: str = "c", *devices: str, driver: str = GPU, owner: str = "uid-p", admin: bool = False
) -> Claim:
    """Devices may be written `driver/device`."""
    made = []
    for i, device in enumerate(devices or ("gpu-0",)):
        before, _, short = device.rpartition("/")
        made.append(
            Device(ref(name), f"req{i}", before or driver, "node-a", short, admin_access=admin)
        )
    return Claim(
        uid=f"uid-{name}",
        namespace="ns",
        name=name,
        owner=Owner("Pod", owner, "p"),
        reserved_for=(("pods", "uid-p"),),
        devices=tuple(made),
        admin_access=admin,
    )


def histories(*facts: CallFact) -> dict[Key, History]:
    found: dict[Key, History] = {}
    for one in facts:
        for result in one.outcomes:
            key = (one.driver, result.claim.uid)
            found[key] = merge(found.get(key), result, one)
    return found


def record(claims: list[Claim], *facts: CallFact) -> PodRecord:
    return build(claims, histories(*facts))
