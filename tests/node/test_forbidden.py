"""Pods that enforce mode must not fail, each with its reason in its status."""

from __future__ import annotations

from collections.abc import Callable

from .harness import objects
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.reports import (
    DEVICE_FAULT,
    GPU,
    INVALID_PARAMETERS,
    NIC,
    PARAMETERS,
    PREPARED,
    annotated,
    conditions,
    pod_of,
    pods,
    registered,
    template,
    told,
)
from .harness.waiting import stays


def test_pods_that_must_not_be_failed_are_told_why(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu = driver(GPU, devices=8)
    driver(NIC)
    # The mildest setting, so that only what forbids it stands in the way.
    dra = agent(
        mode="enforce",
        drivers={"deny": [NIC]},
        outcome={"parameters": "FailPod", "minBetweenFailures": "0s"},
    )
    registered(dra, GPU)
    gpu.fail(PARAMETERS)
    reasons = create_forbidden(node, namespace)
    names = {owner: pod_of(node, namespace, owner) for owner in ("daemon", "stateful")}

    for key, reason in reasons.items():
        pod = told(node, namespace, names.get(key, key))
        said = conditions(pod)[PREPARED]
        assert f"not failed: {reason}" in said["message"], key
        assert said["reason"] == "HeldBack", key
        assert PARAMETERS in said["message"], key
        assert DEVICE_FAULT not in conditions(pod)
        assert conditions(pod)[INVALID_PARAMETERS]["status"] == "True"
        assert annotated(node, namespace, pod["metadata"]["name"])["outcome"] == "Report", key

    def untouched() -> bool:
        found = pods(node, namespace)
        return all(pod["status"]["phase"] == "Pending" for pod in found.values())

    stays(untouched, 15, "all pods Pending")
    assert len(pods(node, namespace)) == len(reasons)
    asked = [call.uid for call in gpu.prepares()]
    assert len(asked) == len(set(asked)) == len(reasons), "each claim once, then held"


def create_forbidden(node: Node, namespace: str) -> dict[str, str]:
    """Creates pods that must not be failed; returns why by name (of the pod or its owner)."""
    template(node, namespace)
    spec = objects.claim_spec(NIC)
    node.api.create(objects.claim_template(namespace, "nic", spec))
    spec = objects.claim_spec(GPU)
    node.api.create(objects.claim(namespace, "standing", spec))
    # Administrators' claims are allowed only in namespaces that say so.
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    node.api.patch(f"/api/v1/namespaces/{namespace}", label)
    spec = objects.claim_spec(GPU, adminAccess=True)
    node.api.create(objects.claim_template(namespace, "admin", spec))

    node.api.create(objects.pod(namespace, "standalone", claims=("standing",)))
    node.api.create(objects.pod(namespace, "admin", templates=("admin",)))
    node.api.create(objects.pod(namespace, "mixed", templates=("one", "nic")))
    critical = {"priorityClassName": "system-node-critical"}
    node.api.create(objects.pod(namespace, "critical", templates=("one",), **critical))
    daemon = objects.deployment(namespace, "daemon", templates=("one",))
    del daemon["spec"]["replicas"]
    node.api.create({**daemon, "kind": "DaemonSet"})
    stateful = objects.deployment(namespace, "stateful", templates=("one",))
    stateful["spec"]["serviceName"] = "stateful"
    node.api.create({**stateful, "kind": "StatefulSet"})
    return {
        "standalone": "claim standing does not belong to this pod alone",
        "admin": "claim admin-t0-",
        "mixed": f"this agent does not serve all drivers of its claims ({NIC})",
        "critical": "the pod is system-critical",
        "daemon": "a DaemonSet would make the pod again on this node",
        "stateful": "a StatefulSet would make the pod again with the same name",
    }
