from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.model import CallFact, Culprit, DeviceState, Kind, Verdict
from agent.core.outcome import Action, Decision, Policy, Situation, decide
from agent.core.pods import Claim, Owner, Pod
from agent.core.record import Widespread
from tests.support.kube_records import BUSY, GPU, NET, PARAMETERS, claim, fact, outcome, pod, record

ENFORCE = Policy(mode="enforce", kubelet_versions=("1.37",))


def situation(
    the_pod: Pod | None = None,
    claims: list[Claim] | None = None,
    facts: tuple[CallFact, ...] = (),
    **changes: Any,
) -> Situation:
    claims = [claim()] if claims is None else claims
    fields: dict[str, Any] = {
        "pod": the_pod or pod(),
        "claims": claims,
        "record": record(claims, *(facts or (fact(outcome()),))),
        "served": frozenset({GPU}),
        "kubelet_version": "v1.37.2",
        "replied_at": 100.0,
    }
    return Situation(**{**fields, **changes})


def owned(kind: str) -> Pod:
    return pod(owner=Owner(kind, "o", "o"))


def verdict(culprit: Culprit, kind: Kind = Kind.PERMANENT) -> tuple[CallFact, ...]:
    return (fact(outcome(verdict=Verdict(kind, culprit, "r"))),)


@pytest.mark.parametrize("the_pod", [pod(), owned("Job")])
@pytest.mark.parametrize("culprit", [Culprit.PARAMETERS, Culprit.CLAIM])
def test_bare_pods_and_jobs_are_failed(the_pod: Pod, culprit: Culprit) -> None:
    found = decide(situation(the_pod, facts=verdict(culprit)), ENFORCE)
    assert found.reason == f"failed: the {culprit} can never be prepared"
    assert found.not_before == pytest.approx(101.2)
    assert found.fails


@pytest.mark.parametrize(
    "culprit", [Culprit.DRIVER, Culprit.NODE, Culprit.API, Culprit.UNKNOWN, Culprit.DEVICE]
)
def test_other_culprits_are_reported(culprit: Culprit) -> None:
    found = decide(situation(facts=verdict(culprit)), ENFORCE)
    assert found.action is Action.REPORT
    assert found.reason.startswith("not failed: ")
    word = {Culprit.DEVICE: "same device again", Culprit.UNKNOWN: "not known"}.get(culprit)
    assert (word or f"({culprit})") in found.reason


@pytest.mark.parametrize("kind", [Kind.TRANSIENT, Kind.AMBIGUOUS])
def test_what_is_not_permanent_is_only_reported(kind: Kind) -> None:
    found = decide(situation(facts=verdict(Culprit.PARAMETERS, kind)), ENFORCE)
    culprit = str(Culprit.PARAMETERS)
    assert found == Decision(Action.REPORT, "", driver=GPU, culprit=culprit)


def test_a_call_that_still_runs_fails_nothing() -> None:
    assert not decide(situation(facts=(fact(outcome(), final=False),)), ENFORCE).fails


def test_one_hopeless_claim_is_enough() -> None:
    claims = [claim("c"), claim("d", f"{NET}/eth0")]
    facts = (
        fact(outcome("d", verdict=Verdict(Kind.PERMANENT, Culprit.DEVICE, "r")), driver=NET),
        fact(outcome("c")),
    )
    found = decide(
        situation(pod(claims=("c", "d")), claims, facts, served=frozenset({GPU, NET})), ENFORCE
    )
    assert found.fails


def test_policy_words() -> None:
    always = replace(ENFORCE, parameters="FailPod")
    assert decide(situation(owned("ReplicaSet")), always).fails
    never = replace(ENFORCE, parameters="Report")
    assert decide(situation(), never).reason == "not failed: outcome.parameters is Report"
    found = decide(situation(owned("ReplicaSet")), ENFORCE)
    assert "ReplicaSet would make a replacement" in found.reason


SHARED = replace(claim(), reserved_for=(("pods", "uid-p"), ("pods", "uid-q")))
GROUP = replace(claim(), reserved_for=(("podgroups", "uid-p"),))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"the_pod": pod(deleting=True)}, "being deleted"),
        ({"the_pod": pod(static=True)}, "static pod"),
        ({"the_pod": pod(critical=True)}, "system-critical"),
        ({"the_pod": pod(phase="Running")}, "its phase is Running"),
        ({"the_pod": pod(started=True)}, "a container of the pod has started"),
        ({"the_pod": pod(claims=("c", "d"))}, "could be read (d)"),
        ({"the_pod": pod(claims_complete=False)}, "could be read"),
        ({"claims": [claim(owner="uid-other")]}, "c does not belong to this pod alone"),
        ({"claims": [replace(claim(), owner=None)]}, "c does not belong to this pod alone"),
        ({"claims": [claim(admin=True)]}, "c uses admin access"),
        ({"claims": [SHARED]}, "c is not reserved for exactly this pod"),
        ({"claims": [GROUP]}, "c is not reserved for exactly this pod"),
        ({"claims": [claim("c", "gpu-0", f"{NET}/eth0")]}, f"all drivers of its claims ({NET})"),
        ({"kubelet_version": "v1.35.0"}, "kubelet v1.35.0 is not in outcome.kubeletVersions"),
        ({"kubelet_version": ""}, "unknown version"),
        ({"kubelet_version": "v1.370.0"}, "v1.370.0"),
    ],
)
def test_each_clause_forbids_with_its_reason(changes: dict[str, Any], words: str) -> None:
    found = decide(situation(**changes), ENFORCE)
    assert found.action is Action.REPORT
    assert found.reason.startswith("not failed: ")
    assert words in found.reason


@pytest.mark.parametrize("kind", ["DaemonSet", "StatefulSet", "Node"])
def test_owners_that_make_the_same_pod_again(kind: str) -> None:
    """Even where the policy says FailPod for everybody."""
    found = decide(situation(owned(kind)), replace(ENFORCE, parameters="FailPod"))
    assert not found.fails


def test_sidecar_fails_only_pods_of_its_own_driver() -> None:
    mixed = [claim("c", "gpu-0", f"{NET}/eth0")]
    served = frozenset({GPU, NET})
    sidecar = replace(ENFORCE, only_driver=GPU)
    assert "sidecar" in decide(situation(claims=mixed, served=served), sidecar).reason
    assert decide(situation(), sidecar).fails
    assert decide(situation(claims=mixed, served=served), ENFORCE).fails


def test_observe_says_what_it_would_have_done() -> None:
    found = decide(situation(), replace(ENFORCE, mode="observe"))
    assert found.reason == (
        "not failed: mode is observe; enforce would have failed the pod: "
        "the parameters can never be prepared"
    )
    assert (found.fails, found.would_fail) == (False, True)
    assert (found.driver, found.culprit) == (GPU, "parameters")
    blocked = decide(situation(pod(critical=True)), replace(ENFORCE, mode="observe"))
    assert "critical" in blocked.reason


def test_the_drivers_own_word_acts_in_observe_too() -> None:
    explicit = (fact(outcome(verdict=replace(PARAMETERS, explicit=True))),)
    assert decide(situation(facts=explicit), replace(ENFORCE, mode="observe")).fails


def test_damping_between_two_pods_of_one_owner() -> None:
    job = owned("Job")
    late = decide(situation(job, owner_failed_at=90.0), ENFORCE)
    assert (late.fails, late.not_before) == (True, 150.0)
    assert decide(situation(job, owner_failed_at=10.0), ENFORCE).not_before == pytest.approx(101.2)


def test_transient_beside_permanent_does_not_save_the_pod() -> None:
    claims = [claim("c"), claim("d")]
    facts = (fact(outcome("c")), fact(outcome("d", DeviceState.FAILED, BUSY)))
    assert decide(situation(pod(claims=("c", "d")), claims, facts), ENFORCE).fails


def two_drivers(*facts: CallFact) -> Situation:
    claims = [claim("c"), claim("d", f"{NET}/eth0")]
    return situation(pod(claims=("c", "d")), claims, facts, served=frozenset({GPU, NET}))


def test_only_the_driver_at_fault_may_enforce() -> None:
    policy = replace(ENFORCE, mode="observe", modes={NET: "enforce"})
    gpu = fact(outcome("c"))
    net = fact(outcome("d"), driver=NET)
    found = decide(two_drivers(gpu), policy)
    assert found.would_fail
    assert found.driver == GPU
    assert decide(two_drivers(net), policy).fails
    both = decide(two_drivers(gpu, net), policy)
    assert both.fails
    assert both.driver == NET
    off = replace(ENFORCE, modes={GPU: "observe"})
    found = decide(two_drivers(gpu), off)
    assert found.reason.startswith(f"not failed: mode is observe for {GPU}; enforce would")
    # The other driver's good or passing news change nothing.
    soft = fact(outcome("d", verdict=BUSY), driver=NET)
    assert not decide(two_drivers(gpu, soft), off).fails


def suspected(*facts: CallFact) -> Situation:
    found = two_drivers(*facts)
    spread = Widespread("driver", "bad-strategy", 3, 0)
    made = replace(found.record, widespread=(((GPU, "uid-c"), spread),))
    return replace(found, record=made)


def test_nothing_widespread_fails_a_pod() -> None:
    gpu, net = fact(outcome("c")), fact(outcome("d"), driver=NET)
    found = decide(suspected(gpu), ENFORCE)
    assert not found.fails
    assert found.reason == (
        "not failed: 3 claims failed by rule bad-strategy within 10 minutes: "
        "the driver or the node is suspected"
    )
    assert decide(suspected(gpu, net), ENFORCE).driver == NET, "a failure of its own still does"
    assert decide(suspected(gpu, net), ENFORCE).fails
    explicit = fact(outcome("c", verdict=replace(PARAMETERS, explicit=True)))
    assert not decide(suspected(explicit), ENFORCE).fails


def test_escalation_never_fails_a_pod() -> None:
    found = situation(facts=verdict(Culprit.PARAMETERS, Kind.AMBIGUOUS))
    made = replace(found.record, escalated=frozenset({(GPU, "uid-c")}))
    for mode in ("observe", "enforce"):
        decision = decide(replace(found, record=made), replace(ENFORCE, mode=mode))
        assert (decision.fails, decision.would_fail) == (False, False)
