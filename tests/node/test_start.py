"""A pod starts through the agent: at no cost when all is well, in seconds after a short fault."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from .harness import objects, steps
from .harness.agent import Agent
from .harness.cluster import SLOW, Node
from .harness.driver import Driver
from .harness.steps import GPU, UNPREPARE
from .harness.waiting import wait_for

DIRECT = "direct.example.com"
# Who writes pods and claims where there is no agent; the tests' own client has no name.
KUBERNETES = {
    *("kubelet", "kube-scheduler", "kube-controller-manager"),
    *("ResourceClaimController", "unknown"),
}


def checkpoint(node: Node) -> list[dict[str, Any]]:
    """What the kubelet keeps of claims, one entry per claim."""
    stored = json.loads((node.kubelet_root / "dra_manager_state").read_text())
    return list(json.loads(stored["Data"])["ClaimInfoStateList"] or [])


def writes(agent: Agent) -> dict[str, float]:
    """Requests of the agent that change something, by verb."""
    name = "dra_agent_kube_request_duration_seconds_count"
    verbs = ("POST", "PUT", "PATCH", "DELETE")
    return {verb: n for verb in verbs if (n := agent.metric(name, verb=verb))}


def managers(thing: dict[str, Any]) -> set[str]:
    """Who has written an object, by the names the API server keeps."""
    return {entry["manager"] for entry in thing["metadata"].get("managedFields", [])}


def test_a_healthy_pod_starts_and_ends_through_the_agent_without_a_write(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu, dra = driver(GPU), agent()
    steps.wait_served(dra)
    before = steps.kubelet_calls(node)
    node.api.create(objects.claim_template(namespace, "two", objects.claim_spec(GPU, count=2)))
    node.api.create(objects.pod(namespace, "fine", templates=("two",)))
    steps.wait_running(node, namespace, "fine")

    (call,) = gpu.prepares()
    assert (steps.agent_calls(dra), steps.kubelet_calls(node) - before) == (1, {"OK": 1})
    assert 30 < call.deadline <= 45, "the driver has about the time the kubelet gave"
    (kept,) = checkpoint(node)
    assert kept["ClaimUID"] == call.uid
    assert {name: state["Devices"] for name, state in kept["DriverState"].items()} == {
        GPU: [
            {
                "PoolName": node.name,
                "DeviceName": device,
                "ShareID": None,
                "RequestNames": ["device"],
                "CDIDeviceIDs": None,
            }
            for device in call.devices
        ]
    }
    assert sorted(call.devices) == ["gpu-0", "gpu-1"]

    (claim,) = node.api.claims(namespace)
    for thing in (node.api.pod(namespace, "fine"), claim):
        assert managers(thing) <= KUBERNETES, thing
    kinds = {c["type"] for c in node.api.pod(namespace, "fine")["status"]["conditions"]}
    assert not any("/" in kind for kind in kinds)

    steps.delete_pod(node, namespace, "fine")
    (undone,) = wait_for(gpu.unprepares, 60, "unprepare")
    assert (undone.uid, undone.error) == (call.uid, "")
    wait_for(lambda: steps.agent_calls(dra, UNPREPARE) == 1, 20, "unprepare through the agent")
    wait_for(lambda: not checkpoint(node), 30, "the kubelet to forget the claim")
    assert writes(dra) == {}
    reporters = {e.get("reportingComponent") for e in node.api.events(namespace, "fine")}
    assert not any("dra-agent" in str(reporter) for reporter in reporters), reporters


@pytest.mark.parametrize("faults", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.timeout(400)
def test_a_transient_failure_costs_one_call_and_seconds(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
    faults: int,
) -> None:
    """The agent's driver fails three times; the one without the agent `faults` times.

    Three faults take the kubelet alone about four minutes.
    """
    # First, for it takes the devices that are there away for half a minute.
    node.restart_kubelet(**SLOW)
    gpu, alone = driver(GPU), driver(DIRECT)
    dra = agent(drivers={"deny": [DIRECT]})
    steps.wait_served(dra)
    gpu.fail(steps.TRANSIENT, times=3)
    alone.fail(steps.TRANSIENT, times=faults)

    began = steps.create_pod(node, namespace, "alone", DIRECT)
    wait_for(alone.prepares, 30, "first prepare without the agent")
    began_through = steps.create_pod(node, namespace, "through")
    steps.wait_running(node, namespace, "through", 45)  # a second call comes after 60 to 90
    through = time.monotonic() - began_through
    assert [call.error for call in gpu.prepares()] == [steps.TRANSIENT] * 3 + [""]
    assert steps.kubelet_calls(node, GPU) == {"OK": 1}
    assert steps.agent_calls(dra) == 1

    steps.wait_running(node, namespace, "alone", 100 * faults)
    direct = time.monotonic() - began
    assert [call.error for call in alone.prepares()] == [steps.TRANSIENT] * faults + [""]
    assert steps.agent_calls(dra, driver=DIRECT) == 0
    assert through < direct
    figures(
        f"transient failure: 3 faults with the agent: running after {through:.1f} s, one call of "
        f"the kubelet; {faults} without it: {direct:.1f} s, {faults + 1} calls"
    )
