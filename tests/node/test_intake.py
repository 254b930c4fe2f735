"""Intake: the driver registers with the agent, and the kubelet knows nobody else."""

from __future__ import annotations

from collections.abc import Callable

from agent.node.info import parse_info

from .harness import steps, wire
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.steps import GPU, UNPREPARE
from .harness.waiting import wait_for

GET_INFO = "/pluginregistration.Registration/GetInfo"


def test_a_driver_that_registers_with_the_agent_runs_pods_through_it(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    dra = agent(registration="intake")
    intake = node.plugins / "dra-agent.io" / "intake"
    gpu = driver(GPU, registry=intake)
    assert gpu.registrations() == [True], "the kubelet's word, handed on"
    steps.wait_served(dra)

    (ours,) = node.registry.glob("*.sock")
    told = parse_info(wire.call(ours, GET_INFO, b""))
    own = parse_info(wire.call(gpu.registration_socket, GET_INFO, b""))
    assert told.versions == own.versions
    assert any("Health" in version for version in told.versions)
    assert (told.type, told.name) == (own.type, own.name)
    assert (told.endpoint, own.endpoint) == (*steps.endpoints(dra), str(gpu.socket))
    # The driver's own answer to the health stream, which reached the kubelet through the agent.
    unsupported = "Driver does not support WatchResources"
    since = steps.kubelet_log(node, "Registered DRA plugin", told.endpoint)[0].at
    wait_for(
        lambda: any(line.at >= since for line in steps.kubelet_log(node, unsupported)),
        10,
        "the driver's answer to the health stream",
    )

    calls = steps.kubelet_calls(node)
    gpu.fail(steps.TRANSIENT, times=2)
    steps.create_pod(node, namespace, "fine")
    steps.wait_running(node, namespace, "fine")
    assert [call.error for call in gpu.prepares()] == [steps.TRANSIENT] * 2 + [""]
    assert (steps.agent_calls(dra), steps.kubelet_calls(node) - calls) == (1, {"OK": 1})

    gpu.stop()
    gpu.start()
    wait_for(lambda: gpu.registrations()[-1:] == [True], 15, "registration of the driver anew")
    steps.delete_pod(node, namespace, "fine")
    wait_for(gpu.unprepares, 20, "unprepare")
    wait_for(lambda: steps.agent_calls(dra, UNPREPARE) == 1, 5, "unprepare through the agent")
    steps.create_pod(node, namespace, "again")
    steps.wait_running(node, namespace, "again")
    assert steps.agent_calls(dra) == 2
