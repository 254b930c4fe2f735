"""Issue of the day: a pod starts through the agent, and a transient failure costs it seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from .harness import objects
from .harness.agent import Agent
from .harness.cluster import SLOW, Node
from .harness.driver import Driver
from .harness.waiting import wait_for

GPU = "gpu.example.com"
CONDITION = "dra-agent.io/DevicesPrepared"


def served(agent: Agent, driver: str = GPU) -> bool:
    """True when kubelet registered the agent for the driver."""
    return agent.metric("dra_agent_registered", driver_name=driver) == 1


def create_pod(node: Node, namespace: str, name: str) -> float:
    """A pod with one device; returns when it was created."""
    node.api.apply(objects.claim_template(namespace, "one", objects.claim_spec(GPU)))
    began = time.monotonic()
    node.api.create(objects.pod(namespace, name, templates=("one",)))
    return began


def test_a_healthy_pod_starts_through_the_agent_without_a_write(
    node: Node, namespace: str, driver: Callable[..., Driver], agent: Callable[..., Agent]
) -> None:
    gpu, dra = driver(GPU), agent()
    wait_for(lambda: served(dra), 15, "registration of the agent")
    create_pod(node, namespace, "fine")
    wait_for(lambda: node.api.phase(namespace, "fine") == "Running", 30, "pod running")
    (call,) = gpu.prepares()
    assert dra.metric("dra_agent_upstream_attempts_total", grpc_status_code="OK") >= 1
    assert dra.metric("dra_agent_kube_request_duration_seconds_count", verb="PATCH") == 0
    assert dra.metric("dra_agent_kube_request_duration_seconds_count", verb="POST") == 0
    assert call.devices
