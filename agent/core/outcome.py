"""Decides whether a pod whose prepare failed for good is failed, or only told about.

Pure. Every reason not to fail a pod is a sentence for the person who reads the pod's condition.
The clauses and their order of importance are those of docs/reporting.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from agent.core.history import Key
from agent.core.model import Culprit, Verdict
from agent.core.pods import Claim, Pod
from agent.core.record import PodRecord

_NEVER_KINDS = {
    # Their controllers delete the Failed pod and make it anew on the same node and device at
    # once: nothing is won and the evidence is gone within 50 ms.
    "DaemonSet": "a DaemonSet would make the pod again on this node",
    "StatefulSet": "a StatefulSet would make the pod again with the same name",
    "Node": "it is a static pod",
}


class Action(StrEnum):
    """What is done about a failure."""

    REPORT = "Report"
    FAIL_POD = "FailPod"


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings a decision depends on; seconds."""

    mode: str = "observe"  # observe | enforce
    modes: Mapping[str, str] = field(default_factory=dict)  # by driver, where it differs
    parameters: str = "Default"  # Report | FailPod | Default
    claim: str = "Default"
    fail_delay: float = 1.2
    min_between_failures: float = 60.0
    kubelet_versions: tuple[str, ...] = ()
    only_driver: str = ""  # sidecar

    def acts(self, driver: str, verdict: Verdict) -> bool:
        """Tell whether this driver's verdict may fail a pod; its own explicit word always may."""
        return verdict.explicit or self.modes.get(driver, self.mode) == "enforce"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a decision looks at. Times are of one monotonic clock."""

    pod: Pod
    claims: Sequence[Claim]
    record: PodRecord
    served: frozenset[str]
    kubelet_version: str  # as the node says: v1.37.2
    replied_at: float
    owner_failed_at: float | None = None  # when we last failed a pod of the same owner


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` is for a person. `not_before` is monotonic and means something for FailPod only."""

    action: Action
    reason: str
    not_before: float = 0.0
    driver: str = ""  # whose failure decided
    culprit: str = ""
    would_fail: bool = False  # Report now; in mode enforce this driver's pod would be failed

    @property
    def fails(self) -> bool:
        """True when the pod is to be failed."""
        return self.action is Action.FAIL_POD


def decide(situation: Situation, policy: Policy) -> Decision:
    """Decide for a pod with a failure that is final for its call."""
    record = situation.record
    found = [(k, h.verdict) for k, h in record.failing if h.final and h.verdict]
    permanent = [(key, verdict) for key, verdict in found if verdict.permanent]
    if not permanent:
        # kubelet asks again: there is nothing to explain
        return _report("", *found[0]) if found else Decision(Action.REPORT, "")
    wanted, why = [], ""
    for key, verdict in permanent:
        # One claim that can never be prepared is enough, whatever the others say.
        wants, text = _one_culprit(verdict, situation.pod, policy)
        why = why or text
        if wants:
            wanted.append((key, verdict, text))
    widespread = dict(record.widespread)
    if not wanted:
        return _report(f"not failed: {widespread.get(permanent[0][0], why)}", *permanent[0])
    obstacle = _obstacle(situation, policy)
    if obstacle:
        return _report(f"not failed: {obstacle}", *wanted[0][:2])
    of_its_own = [each for each in wanted if each[0] not in widespread]
    if not of_its_own:
        key, verdict, _ = wanted[0]
        return _report(f"not failed: {widespread[key]}", key, verdict)
    acting = [each for each in of_its_own if policy.acts(each[0][0], each[1])]
    if not acting:
        return _observed(of_its_own[0], policy)
    key, verdict, text = acting[0]
    not_before = situation.replied_at + policy.fail_delay
    if situation.owner_failed_at is not None:
        not_before = max(not_before, situation.owner_failed_at + policy.min_between_failures)
    return Decision(
        Action.FAIL_POD, f"failed: {text}", not_before, driver=key[0], culprit=str(verdict.culprit)
    )


def _report(reason: str, key: Key, verdict: Verdict) -> Decision:
    return Decision(Action.REPORT, reason, driver=key[0], culprit=str(verdict.culprit))


def _observed(wanted: tuple[Key, Verdict, str], policy: Policy) -> Decision:
    (driver, _), verdict, why = wanted
    whose = f" for {driver}" if driver in policy.modes else ""
    return Decision(
        Action.REPORT,
        f"not failed: mode is observe{whose}; enforce would have failed the pod: {why}",
        driver=driver,
        culprit=str(verdict.culprit),
        would_fail=True,
    )


def _one_culprit(verdict: Verdict, pod: Pod, policy: Policy) -> tuple[bool, str]:
    culprit = verdict.culprit
    if culprit is Culprit.DEVICE:
        # Without a taint the replacement takes the same device again, about every 1.6 s.
        return False, "a device is at fault, and its replacement would get the same device again"
    if culprit not in (Culprit.PARAMETERS, Culprit.CLAIM):
        if culprit is Culprit.UNKNOWN:
            return False, "it is not known what is at fault"
        return False, f"the fault is not the pod's ({culprit})"
    action = policy.parameters if culprit is Culprit.PARAMETERS else policy.claim
    what = f"the {culprit} can never be prepared"
    if action == "FailPod":
        return True, what
    if action == "Report":
        return False, f"outcome.{culprit} is Report"
    if pod.owner is None or pod.owner.kind == "Job":
        return True, what
    return False, f"its {pod.owner.kind} would make a replacement that fails the same way"


def _obstacle(situation: Situation, policy: Policy) -> str:
    """Return the first thing that forbids failing this pod, or ""."""
    return (
        _pod_obstacle(situation.pod)
        or _claims_obstacle(situation)
        or _driver_obstacle(situation, policy)
        or _version_obstacle(situation.kubelet_version, policy)
    )


def _pod_obstacle(pod: Pod) -> str:
    if pod.deleting:
        return "the pod is being deleted"
    if pod.static:
        return "it is a static pod"
    if pod.critical:
        return "the pod is system-critical"
    if pod.owner and pod.owner.kind in _NEVER_KINDS:
        return _NEVER_KINDS[pod.owner.kind]
    if pod.phase != "Pending":
        return f"its phase is {pod.phase}, not Pending"
    if pod.started:
        return "a container of the pod has started"
    return ""


def _claims_obstacle(situation: Situation) -> str:
    pod = situation.pod
    known = {claim.name for claim in situation.claims}
    missing = [name for name in pod.claims if name not in known]
    if missing or not pod.claims_complete or not known:
        return "not all claims of the pod could be read" + _named(missing)
    for claim in situation.claims:
        if claim.owner is None or claim.owner.uid != pod.uid:
            return f"claim {claim.name} does not belong to this pod alone"
        if claim.admin_access:
            return f"claim {claim.name} uses admin access"
        if claim.reserved_for != (("pods", pod.uid),):
            return f"claim {claim.name} is not reserved for exactly this pod"
    return ""


def _driver_obstacle(situation: Situation, policy: Policy) -> str:
    drivers = frozenset[str]().union(*(claim.drivers for claim in situation.claims))
    if policy.only_driver and drivers != {policy.only_driver}:
        return "the pod has devices of drivers that this sidecar does not serve"
    foreign = sorted(drivers - situation.served)
    if foreign:
        return "this agent does not serve all drivers of its claims" + _named(foreign)
    return ""


def _version_obstacle(version: str, policy: Policy) -> str:
    minor = ".".join(version.removeprefix("v").split(".")[:2])
    if minor in policy.kubelet_versions:
        return ""
    return f"kubelet {version or 'of unknown version'} is not in outcome.kubeletVersions"


def _named(values: Sequence[str]) -> str:
    return f" ({', '.join(values)})" if values else ""
