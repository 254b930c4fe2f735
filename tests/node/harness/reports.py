"""What an agent has told, in the shapes that tests compare: conditions, annotation, log."""

from __future__ import annotations

import json
from typing import Any

from . import objects
from .agent import Agent
from .api import Object
from .cluster import Node
from .waiting import wait_for

GPU, NIC = "gpu.example.com", "nic.example.com"
PREPARED = "dra-agent.io/DevicesPrepared"
DEVICE_FAULT = "dra-agent.io/DeviceFault"
INVALID_PARAMETERS = "dra-agent.io/InvalidParameters"
FAILURES = "dra-agent.io/device-failures"

# Texts and what the built-in rules make of them (`dra-agent explain TEXT`).
TRANSIENT = "updating status of claim: etcdserver: leader changed"
PARAMETERS = "error applying config: error validating GPU config: invalid partition count: -1"
CONFIG = {"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig", "partitions": -1}
UNKNOWN = "the flux capacitor is empty"


def device_gone(device: str) -> str:
    """A text that blames one device for good."""
    return f"requested device is not allocatable: {device}"


def registered(agent: Agent, *drivers: str) -> None:
    """Waits until the kubelet calls these drivers through the agent."""

    def all_registered() -> bool:
        served = (agent.metric("dra_agent_registered", driver_name=name) for name in drivers)
        return all(value == 1 for value in served)

    wait_for(all_registered, 20, f"registration of the agent for {', '.join(drivers)}")


def pods(node: Node, namespace: str) -> dict[str, Object]:
    found = node.api.items(f"/api/v1/namespaces/{namespace}/pods")
    return {pod["metadata"]["name"]: pod for pod in found}


def template(node: Node, namespace: str) -> None:
    """Creates the template `one`: a claim for one device, with parameters."""
    node.api.create(
        objects.claim_template(namespace, "one", objects.claim_spec(GPU, config=CONFIG))
    )


def pod_of(node: Node, namespace: str, owner: str) -> str:
    """The name of the one pod that a controller has made."""
    found = wait_for(
        lambda: [name for name in pods(node, namespace) if name.startswith(f"{owner}-")],
        20,
        f"pod of {owner}",
    )
    assert len(found) == 1
    return found[0]


def conditions(pod: Object) -> dict[str, Object]:
    """The agent's conditions of a pod by type."""
    found = pod["status"].get("conditions") or []
    return {c["type"]: c for c in found if c["type"].startswith("dra-agent.io/")}


def record(pod: Object) -> Object:
    """The annotation, decoded; {} where there is none."""
    text = pod["metadata"].get("annotations", {}).get(FAILURES, "{}")
    found: Object = json.loads(text)
    return found


def told(node: Node, namespace: str, name: str, limit: float = 30) -> Object:
    """The pod, as soon as its status says that devices failed."""

    def look() -> Object | None:
        pod = node.api.pod(namespace, name)
        said = conditions(pod).get(PREPARED)
        return pod if said and said["status"] == "False" and said["reason"] != "Retrying" else None

    found = wait_for(look, limit, f"a condition of {name}")
    assert found is not None
    return found


def failed(node: Node, namespace: str, name: str, limit: float = 30) -> Object:
    """The pod, as soon as it is Failed."""
    wait_for(lambda: node.api.phase(namespace, name) == "Failed", limit, f"{name} Failed")
    return node.api.pod(namespace, name)


def annotated(node: Node, namespace: str, name: str, limit: float = 15) -> Object:
    """The annotation of a pod, decoded, as soon as it has one."""
    return wait_for(lambda: record(node.api.pod(namespace, name)), limit, f"record of {name}")


def recovered(node: Node, namespace: str, name: str, limit: float = 10) -> dict[str, Object]:
    """The agent's conditions, as soon as they say that all devices are prepared."""

    def look() -> dict[str, Object] | None:
        said = conditions(node.api.pod(namespace, name))
        return said if said.get(PREPARED, {}).get("status") == "True" else None

    found = wait_for(look, limit, f"recovery of {name} in its conditions")
    assert found is not None
    return found


def released(node: Node, namespace: str, claim: str) -> bool:
    """True when a claim holds no device any more (one made from a template is deleted)."""
    found = [c for c in node.api.claims(namespace) if c["metadata"]["name"] == claim]
    return not any("allocation" in c.get("status", {}) for c in found)


def claim_names(pod: Object) -> list[str]:
    """Names of the claims that were made for a pod from templates."""
    return [entry["resourceClaimName"] for entry in pod["status"]["resourceClaimStatuses"]]


def log_lines(agent: Agent, message: str) -> list[dict[str, Any]]:
    """Lines of the log with exactly this message; the agent must log as JSON."""
    lines = [json.loads(line) for line in agent.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["msg"] == message]
