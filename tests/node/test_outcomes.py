"""Permanent failures: what a pod's status says, and which pods are failed, once and for good."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from .harness import objects
from .harness.agent import Agent
from .harness.api import Object
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.otlp import Collector
from .harness.reports import (
    GPU,
    INVALID_PARAMETERS,
    PARAMETERS,
    PREPARED,
    UNKNOWN,
    annotated,
    claim_names,
    conditions,
    failed,
    log_lines,
    pod_of,
    pods,
    record,
    recovered,
    registered,
    released,
    template,
    told,
)
from .harness.waiting import stays, wait_for

# The kubelet asks again about 6 s after a failure here (harness: FAST).
PACE = 4.0
ENTRY_KEYS = {
    *("claim", "request", "driver", "pool", "device", "state", "parametersFrom"),
    *("cause", "verdict", "culprit", "rule", "matched", "hint", "attempts"),
    *("firstError", "lastError", "firstTime", "lastTime", "traceID"),
}


def test_observe_tells_and_leaves_the_rest_to_the_kubelet(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu, dra = driver(GPU), agent()
    registered(dra, GPU)
    gpu.fail(PARAMETERS)
    template(node, namespace)
    node.api.create(objects.deployment(namespace, "web", templates=("one",)))
    node.api.create(objects.pod(namespace, "bare", templates=("one",)))
    name = pod_of(node, namespace, "web")

    pod = told(node, namespace, name)
    said = conditions(pod)
    assert said.keys() == {PREPARED, INVALID_PARAMETERS}
    assert said[INVALID_PARAMETERS]["status"] == "True"
    assert said[PREPARED]["reason"] == "AllDevicesFailed"
    for part in (PARAMETERS, GPU, "gpu-", "permanent", "parameters-invalid", "Correct the claim"):
        assert part in said[PREPARED]["message"]
    assert "not failed: its ReplicaSet would make a replacement" in said[PREPARED]["message"]
    bare = conditions(told(node, namespace, "bare"))[PREPARED]["message"]
    assert "enforce would have failed the pod" in bare

    (claim,) = claim_names(pod)
    writes = dra.metric("dra_agent_kube_request_duration_seconds_count", verb="PATCH")
    calls = wait_for(lambda: gpu.prepares(claim)[2:] and gpu.prepares(claim), 40, "third prepare")
    pauses = [b.began - a.t for a, b in itertools.pairwise(calls)]
    assert min(pauses) > PACE, "asked by the kubelet alone, in its own time"
    after = pods(node, namespace)
    assert after.keys() == {name, "bare"}
    for one in after.values():
        assert one["status"]["phase"] == "Pending"
        assert record(one) == {}, "an annotation would make the kubelet ask at once"
    assert dra.metric("dra_agent_kube_request_duration_seconds_count", verb="PATCH") == writes

    gpu.heal()
    wait_for(lambda: node.api.phase(namespace, name) == "Running", 30, "pod running")
    said = recovered(node, namespace, name)
    assert said[PREPARED]["reason"] == "Prepared"
    assert said[INVALID_PARAMETERS]["status"] == "False"


def test_the_drivers_own_permanent_error_acts_in_observe_too(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu, dra = driver(GPU), agent(log={"format": "json"})
    registered(dra, GPU)
    gpu.rules(
        {"op": "prepare", "claim": "known", "text": PARAMETERS, "permanent": True},
        {"op": "prepare", "claim": "strange", "text": UNKNOWN, "permanent": True},
    )
    template(node, namespace)
    for name in ("known", "strange"):
        node.api.create(objects.pod(namespace, name, templates=("one",)))

    known = failed(node, namespace, "known")
    assert conditions(known)[INVALID_PARAMETERS]["status"] == "True"
    assert record(known)["mode"] == "observe"
    (entry,) = record(known)["devices"]
    assert (entry["rule"], entry["culprit"]) == ("driver-permanent-error", "parameters")

    # Nobody knows who is at fault: told, and held, so that the driver has its peace.
    said = conditions(told(node, namespace, "strange"))[PREPARED]
    assert said["reason"] == "HeldBack"
    assert UNKNOWN in said["message"]
    assert "not failed: it is not known what is at fault" in said["message"]
    wait_for(lambda: len(log_lines(dra, "prepare held back")) >= 2, 30, "two repeats held back")
    assert len(gpu.prepares("strange")) == 1
    assert len(gpu.prepares("known")) == 1
    assert node.api.phase(namespace, "strange") == "Pending"
    assert annotated(node, namespace, "strange")["outcome"] == "Report"


def test_enforce_fails_bare_pods_and_jobs_for_parameters(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    collector: Collector,
) -> None:
    gpu = driver(GPU)
    dra = agent(mode="enforce", tracing={"endpoint": collector.endpoint})
    registered(dra, GPU)
    gpu.fail(PARAMETERS)
    template(node, namespace)
    fail_job = {
        "action": "FailJob",
        "onPodConditions": [{"type": INVALID_PARAMETERS, "status": "True"}],
    }
    node.api.create(objects.pod(namespace, "bare", templates=("one",)))
    node.api.create(objects.job(namespace, "batch", rules=[fail_job], templates=("one",)))
    both = ("bare", pod_of(node, namespace, "batch"))

    for name in both:
        pod = failed(node, namespace, name)
        claim = check_told(pod)
        wait_for(partial(gpu.unprepares, claim), 10, "unprepare")
        wait_for(partial(released, node, namespace, claim), 10, "claim released")
        events = node.api.events(namespace, name, "DevicePrepareFailed")
        assert [event["action"] for event in events] == ["FailPod"]

    def still_failed() -> bool:
        found = {name: pod["status"]["phase"] for name, pod in pods(node, namespace).items()}
        return found == dict.fromkeys(both, "Failed")

    stays(still_failed, 60, "both Failed, and no replacement")
    for name in both:
        claim = check_told(node.api.pod(namespace, name))
        (asked,) = gpu.prepares(claim)
        assert {call.uid for call in gpu.unprepares(claim)} == {asked.uid}
    job = node.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/batch")
    ends = [c for c in job["status"]["conditions"] if c["type"] == "Failed"]
    assert [end["reason"] for end in ends] == ["PodFailurePolicy"]


def check_told(pod: Object) -> str:
    """All that a person needs is on the failed pod. Returns the name of its claim.

    The pod's status may name another one by then: the claim controller makes new claims for a
    while when a pod fails.
    """
    said = conditions(pod)
    assert {kind: c["status"] for kind, c in said.items()} == {
        PREPARED: "False",
        INVALID_PARAMETERS: "True",
    }
    assert said[PREPARED]["reason"] == "AllDevicesFailed"
    assert PARAMETERS in said[PREPARED]["message"]
    found = record(pod)
    assert (found["version"], found["mode"], found["outcome"]) == (1, "enforce", "FailPod")
    (entry,) = found["devices"]
    assert entry.keys() == ENTRY_KEYS
    assert entry["claim"].startswith(f"{pod['metadata']['name']}-t0-")
    assert entry["device"].startswith("gpu-")
    assert entry["matched"] in PARAMETERS
    assert len(entry["traceID"]) == 32
    assert entry["firstTime"] <= entry["lastTime"] <= found["writtenAt"]
    expected = {
        "request": "device",
        "driver": GPU,
        "pool": pod["spec"]["nodeName"],
        "state": "failed",
        "parametersFrom": "claim",
        "cause": PARAMETERS,
        "firstError": PARAMETERS,
        "lastError": PARAMETERS,
        "verdict": "permanent",
        "culprit": "parameters",
        "rule": "parameters-invalid",
        "attempts": 1,
    }
    assert {key: entry[key] for key in expected} == expected
    assert "Correct the claim template" in entry["hint"]
    return str(entry["claim"])
