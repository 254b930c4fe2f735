"""What history, context and the other calls say about a failure, on a real node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .harness import objects
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.reports import (
    GPU,
    NIC,
    PARAMETERS,
    PREPARED,
    conditions,
    device_gone,
    failed,
    registered,
    template,
    told,
)
from .harness.waiting import stays, wait_for

LOCKED = "error acquiring cplock: timeout acquiring lock (/var/lib/a/cp.lock)"
ROOT = Path(__file__).parents[2]


def explain(node: Node, pod: str, *more: str) -> str:
    """What a person with a kubeconfig is told."""
    command = [sys.executable, "-m", "agent", "explain", "--pod", pod, *more]
    done = subprocess.run(
        [*command, f"--kubeconfig={node.admin_kubeconfig}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_claim_that_waits_names_the_other_and_goes_on_when_one_is_given_back(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu = driver(GPU)
    wait = {"initialDelay": "25s", "maxDelay": "25s", "jitter": 0}
    dra = agent(retry=wait, report={"retryingAfter": "200ms"})
    registered(dra, GPU)
    template(node, namespace)
    node.api.create(objects.pod(namespace, "runs", templates=("one",)))
    wait_for(lambda: node.api.phase(namespace, "runs") == "Running", 30, "pod running")
    gpu.rules(
        {"op": "prepare", "claim": "slow-", "sleepMs": 12000},
        {"op": "prepare", "claim": "waits-", "text": LOCKED, "times": 1},
    )
    node.api.create(objects.pod(namespace, "slow", templates=("one",)))
    wait_for(lambda: gpu.arrivals()[1:], 20, "the slow prepare")
    node.api.create(objects.pod(namespace, "waits", templates=("one",)))
    said = wait_for(lambda: node.api.condition(namespace, "waits", PREPARED), 10, "a condition")
    message = said["message"] if said else ""
    assert LOCKED in message
    assert "Blocked by claim slow-t0-" in message
    assert "(pod slow), prepare in flight for " in message
    state = [pod for pod in dra.state()["pods"] if pod["name"] == "waits"]
    assert state[0]["devices"][0]["blockedBy"]["pod"] == "slow"

    (first,) = gpu.prepares("waits-")
    node.api.delete(f"/api/v1/namespaces/{namespace}/pods/runs", grace=0)
    (given,) = wait_for(lambda: gpu.unprepares("runs-"), 20, "the unprepare")
    again = wait_for(lambda: gpu.prepares("waits-")[1:], 10, "the second attempt")[0]
    assert again.began - given.t < 10.0, "woken by the unprepare, not by the clock"
    assert again.began - first.t < 25.0
    wait_for(lambda: node.api.phase(namespace, "waits") == "Running", 30, "pod running")


def test_enforcing_per_driver_and_explaining_a_pod(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu, nic = driver(GPU), driver(NIC)
    dra = agent(mode="observe", drivers={"perDriver": {NIC: {"mode": "enforce"}}})
    registered(dra, GPU, NIC)
    template(node, namespace)
    node.api.create(objects.claim_template(namespace, "two", objects.claim_spec(GPU, count=2)))
    node.api.create(objects.claim_template(namespace, "nic", objects.claim_spec(NIC)))
    gpu.fail(PARAMETERS)
    nic.fail(PARAMETERS)
    node.api.create(objects.pod(namespace, "gpu", templates=("one",)))
    node.api.create(objects.pod(namespace, "nic", templates=("nic",)))
    failed(node, namespace, "nic")
    said = conditions(told(node, namespace, "gpu"))[PREPARED]["message"]
    assert "mode is observe; enforce would have failed the pod" in said
    outcomes: dict[str, Any] = {"action": "FailPod", "culprit": "parameters"}
    name = "dra_agent_outcomes_total"
    assert dra.metric(name, driver_name=GPU, acted="false", **outcomes) == 1
    assert dra.metric(name, driver_name=NIC, acted="true", **outcomes) == 1
    assert "would be failed in mode enforce" in dra.log()
    stays(lambda: node.api.phase(namespace, "gpu") == "Pending", 5, "the pod Pending")

    # From the annotation the agent wrote, and from kubelet's event where it wrote none.
    assert "the agent: FailPod" in explain(node, f"{namespace}/nic")
    found = json.loads(explain(node, f"{namespace}/gpu", "--json"))
    assert (found["source"], found["devices"][0]["culprit"]) == ("event", "parameters")
    assert found["condition"]["status"] == "False"

    gpu.fail(device_gone("gpu-1"))
    node.api.create(objects.pod(namespace, "pair", templates=("two",)))
    told(node, namespace, "pair")
    wait_for(
        lambda: node.api.events(namespace, "pair", "FailedPrepareDynamicResources"), 20, "an event"
    )
    found = json.loads(explain(node, f"{namespace}/pair", "--json"))
    states = {device["device"]: device["state"] for device in found["devices"]}
    if "gpu-1" in states:
        assert states.pop("gpu-1") == "failed"
        assert set(states.values()) == {"blocked"}
        assert found["devices"][0]["atFault"] is True
    else:
        assert set(states.values()) == {"failed"}
        assert not [device for device in found["devices"] if device.get("atFault")]
    assert "cannot be read" not in dra.log(), "the agent's rights are enough"


def test_a_taint_that_an_admin_put_on_the_device_is_told(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu = driver(GPU, devices=1)
    dra = agent()
    registered(dra, GPU)
    template(node, namespace)
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": namespace},
        "spec": {
            "deviceSelector": {"driver": GPU, "pool": node.name, "device": "gpu-0"},
            # The scheduler and the eviction leave a pod alone for it; a person should know.
            "taint": {"key": "example.com/rma", "value": "planned", "effect": "None"},
        },
    }
    node.api.create(rule)
    try:
        gpu.fail(device_gone("gpu-0"))
        node.api.create(objects.pod(namespace, "p", templates=("one",)))
        said = conditions(told(node, namespace, "p"))[PREPARED]["message"]
        assert "Tainted: example.com/rma=planned:None." in said
        assert "cannot be read" not in dra.log(), "the agent's rights are enough"
    finally:
        node.api.delete(node.api.path(rule))
