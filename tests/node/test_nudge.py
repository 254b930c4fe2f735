"""A pod whose driver was away runs when it is back, not when the kubelet would look again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from agent import names

from .harness import steps
from .harness.agent import Agent
from .harness.cluster import SLOW, Node
from .harness.driver import Driver
from .harness.steps import GPU
from .harness.waiting import wait_for

ALONE = "alone.example.com"
FAILED = "FailedPrepareDynamicResources"


def nudge(node: Node, namespace: str, pod: str) -> str:
    notes = node.api.pod(namespace, pod)["metadata"].get("annotations") or {}
    return str(notes.get(names.ANNOTATION_NUDGE, "")).partition("@")[0]


def wait_failed(node: Node, namespace: str, pod: str) -> None:
    wait_for(lambda: node.api.events(namespace, pod, FAILED), 40, f"first try of pod {pod}")


@pytest.mark.parametrize("compare", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.timeout(400)
def test_from_driver_back_to_pod_running(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
    compare: bool,
) -> None:
    """Both drivers are killed; the kubelet reaches one through the agent, the other directly."""
    node.restart_kubelet(**SLOW)
    drivers = [driver(GPU), driver(ALONE)] if compare else [driver(GPU)]
    dra = agent(drivers={"deny": [ALONE], "driverAbsenceHold": "2s"})
    steps.wait_served(dra)
    for one in drivers:
        one.kill()
    wait_for(lambda: not steps.served(dra), 10, "the agent to withdraw")
    for one in drivers:
        steps.create_pod(node, namespace, one.name.split(".")[0], one.name)
    for one in drivers:
        wait_failed(node, namespace, one.name.split(".")[0])
    for one in drivers:
        one.start()
    back = time.monotonic()
    steps.wait_running(node, namespace, "gpu", 45)  # without a nudge: 60 to 90
    through = time.monotonic() - back
    assert nudge(node, namespace, "gpu") == "driver-back"
    told = {"driver_name": GPU, "cause": "driver-back", "result": "ok"}
    assert dra.metric("dra_agent_nudges_total", **told) == 1
    if compare:
        steps.wait_running(node, namespace, "alone", 100)
        direct = time.monotonic() - back
        assert nudge(node, namespace, "alone") == ""
        figures(
            f"driver back to pod running: {through:.1f} s with a nudge, {direct:.1f} s without "
            "the agent"
        )
    else:
        figures(f"driver back to pod running: {through:.1f} s with a nudge")


@pytest.mark.timeout(200)
def test_a_call_cut_by_the_agents_death_is_made_again(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
) -> None:
    node.restart_kubelet(**SLOW)
    gpu = driver(GPU)
    dra = agent(report={"nudge": {"olderThan": "3s"}})
    steps.wait_served(dra)
    gpu.rules({"op": "prepare", "sleepMs": 20_000, "times": 1})
    steps.create_pod(node, namespace, "cut")
    wait_for(gpu.arrivals, 20, "the prepare at the driver")
    dra.kill()
    wait_failed(node, namespace, "cut")
    dra.start()
    back = time.monotonic()
    steps.wait_running(node, namespace, "cut", 30)
    figures(
        f"agent killed during a prepare: running {time.monotonic() - back:.1f} s after its return"
    )
    assert nudge(node, namespace, "cut") == "agent-started"


@pytest.mark.timeout(200)
def test_a_pod_that_met_a_driver_not_registered(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
) -> None:
    """The driver leaves in order, so that the kubelet knows nothing of it, and comes back."""
    node.restart_kubelet(**SLOW)
    gpu = driver(GPU)
    dra = agent(drivers={"driverAbsenceHold": "1s"})
    steps.wait_served(dra)
    left = time.time()
    gpu.stop()

    def unregistered() -> bool:
        lines = steps.kubelet_log(node, "Unregistered DRA plugin", "numPlugins=0")
        return any(line.at > left for line in lines)

    wait_for(unregistered, 15, "the kubelet to know neither driver nor agent")
    steps.create_pod(node, namespace, "early")
    wait_failed(node, namespace, "early")
    (event, *_) = node.api.events(namespace, "early", FAILED)
    assert "is not registered" in str(event), event
    gpu.start()
    back = time.monotonic()
    steps.wait_running(node, namespace, "early", 30)
    figures(f"driver registered to pod running: {time.monotonic() - back:.1f} s with a nudge")
