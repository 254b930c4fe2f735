"""The API server is out of reach: calls of the kubelet go through, writes arrive later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from agent import names

from .harness import steps
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.forward import Forwarder
from .harness.steps import GPU, UNPREPARE
from .harness.waiting import stays, wait_for

OUTAGE = 20.0
UNKNOWN = "no rule knows these words"


def prepared(node: Node, namespace: str, pod: str) -> dict[str, Any]:
    """The agent's condition of a pod, or nothing."""
    return node.api.condition(namespace, pod, names.CONDITION_PREPARED) or {}


def test_the_agents_way_to_the_api_server_is_cut(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    forwarder: Forwarder,
    figures: Callable[[str], None],
) -> None:
    gpu, dra = driver(GPU), agent(server=forwarder.server)
    steps.wait_served(dra)
    gpu.rules(
        {"op": "prepare", "claim": "broken-", "text": UNKNOWN},
        {"op": "prepare", "claim": "shaky-", "text": steps.TRANSIENT, "times": 3},
    )
    forwarder.stop()
    cut = time.monotonic()
    for name in ("fine", "shaky", "broken"):
        steps.create_pod(node, namespace, name)
    for name in ("fine", "shaky"):
        steps.wait_running(node, namespace, name)
    assert [call.error for call in gpu.prepares("shaky-")] == [steps.TRANSIENT] * 3 + [""]
    assert not node.api.events(namespace, "shaky", "FailedPrepareDynamicResources")
    wait_for(lambda: gpu.prepares("broken-"), 30, "prepare of the broken pod")
    assert (dra.http("/livez")[0], dra.http("/readyz")[0]) == (200, 200)

    def unsaid() -> bool:
        return not any(prepared(node, namespace, name) for name in ("fine", "shaky", "broken"))

    stays(unsaid, cut + OUTAGE - time.monotonic(), "no condition without a way to the API server")
    forwarder.start()
    back = time.monotonic()
    wait_for(lambda: prepared(node, namespace, "broken"), 40, "condition of the broken pod")
    told = time.monotonic()
    condition = prepared(node, namespace, "broken")
    assert (condition["status"], UNKNOWN in condition["message"]) == ("False", True)
    wait_for(lambda: prepared(node, namespace, "shaky"), 10, "condition of the shaky pod")
    assert prepared(node, namespace, "shaky")["status"] == "True"
    assert not prepared(node, namespace, "fine"), "a pod that never failed costs no write"

    gpu.heal()
    steps.wait_running(node, namespace, "broken", 20)
    wait_for(lambda: prepared(node, namespace, "broken")["status"] == "True", 10, "recovery told")
    figures(
        f"agent without API server for {back - cut:.0f} s: pods started meanwhile; its first "
        f"write came {told - back:.1f} s after the way was open again"
    )


def test_a_container_that_ends_while_the_api_server_is_away_is_unprepared(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
) -> None:
    gpu, dra = driver(GPU), agent()
    steps.wait_served(dra)
    gpu.rules({"op": "prepare", "claim": "broken-", "text": UNKNOWN})
    steps.create_pod(node, namespace, "broken")
    wait_for(lambda: prepared(node, namespace, "broken"), 30, "condition of the broken pod")
    command = ("/bin/sleep", "15")  # it still runs when the API server is killed
    steps.create_pod(node, namespace, "short", command=command, restartPolicy="Never")
    steps.wait_running(node, namespace, "short")
    (call,) = gpu.prepares("short-")

    node.kill_apiserver()
    killed, at = time.monotonic(), time.time()
    gpu.heal()
    (undone,) = wait_for(gpu.unprepares, 60, "unprepare without an API server")
    assert (undone.uid, undone.error) == (call.uid, "")
    assert undone.t > at, "the container ended before the API server was away"
    wait_for(lambda: steps.agent_calls(dra, UNPREPARE) == 1, 20, "unprepare through the agent")
    assert (dra.http("/livez")[0], dra.http("/readyz")[0]) == (200, 200)
    time.sleep(max(0.0, killed + OUTAGE - time.monotonic()))

    node.start_apiserver()
    back = time.monotonic()
    wait_for(lambda: node.api.phase(namespace, "short") == "Succeeded", 30, "end of the pod")
    steps.wait_running(node, namespace, "broken", 60)
    runs = time.monotonic()
    wait_for(lambda: prepared(node, namespace, "broken")["status"] == "True", 40, "recovery told")
    figures(
        f"API server away for {back - killed:.0f} s: a container that ended was unprepared through "
        f"the agent {undone.t - at:.1f} s into it; a pod that had waited ran {runs - back:.1f} s "
        f"after its return, its condition was True {time.monotonic() - runs:.1f} s later"
    )
