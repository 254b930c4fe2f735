"""Steps that many tests take, and what the kubelet itself tells about its calls and plugins."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import objects
from .agent import Agent
from .cluster import Node
from .waiting import wait_for

GPU = "gpu.example.com"
# config/rules.yaml: node-interrupted.
TRANSIENT = "resource temporarily unavailable"
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
_CALLS = "dra_agent_grpc_operations_duration_seconds_count"


# Pods


def create_pod(node: Node, namespace: str, name: str, driver: str = GPU, **spec: Any) -> float:
    """A pod with one device of a driver; returns time.monotonic() of its creation."""
    template = f"one-{driver.split('.', maxsplit=1)[0]}"
    node.api.apply(objects.claim_template(namespace, template, objects.claim_spec(driver)))
    began = time.monotonic()
    node.api.create(objects.pod(namespace, name, templates=(template,), **spec))
    return began


def wait_running(node: Node, namespace: str, name: str, limit: float = 30) -> None:
    wait_for(lambda: node.api.phase(namespace, name) == "Running", limit, f"pod {name} running")


def delete_pod(node: Node, namespace: str, name: str) -> float:
    """Asks for the pod's end; returns time.monotonic() of that."""
    began = time.monotonic()
    node.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
    return began


def claim_of(node: Node, namespace: str, pod: str) -> str:
    """The name of a pod's only claim, made from a template."""
    (status,) = node.api.pod(namespace, pod)["status"]["resourceClaimStatuses"]
    return str(status["resourceClaimName"])


# What the agent says


def served(agent: Agent, driver: str = GPU) -> bool:
    """True when the kubelet registered the agent for the driver."""
    return agent.metric("dra_agent_registered", driver_name=driver) == 1


def wait_served(agent: Agent, driver: str = GPU, limit: float = 15) -> None:
    wait_for(lambda: served(agent, driver), limit, f"registration of the agent for {driver}")


def agent_calls(agent: Agent, method: str = PREPARE, driver: str = GPU) -> int:
    """Calls of the kubelet that the agent answered."""
    found = 0.0
    for line in agent.metrics().splitlines():
        if line.startswith(_CALLS) and f'driver_name="{driver}"' in line and f'{method}"' in line:
            found += float(line.rsplit(" ", 1)[1])
    return int(found)


def endpoints(agent: Agent, driver: str = GPU) -> set[str]:
    """Paths of the agent's endpoints for a driver, as they are told to the kubelet."""
    links = agent.state()["registration"]["links"]
    found = (link["generations"] for link in links if link["driver"] == driver)
    return {generation["endpoint"] for link in found for generation in link}


# What the kubelet says


def kubelet_calls(node: Node, driver: str = GPU, method: str = PREPARE) -> Counter[str]:
    """Calls that the kubelet made for a driver since it started, by gRPC code.

    Earlier tests may have made some: compare the difference.
    """
    pattern = re.compile(r"^dra_grpc_operations_duration_seconds_count\{(.*)\} (\S+)$", re.M)
    found: Counter[str] = Counter()
    for labels, value in pattern.findall(node.kubelet_metrics()):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if pairs["driver_name"] == driver and pairs["method_name"].endswith(f"/{method}"):
            found[pairs["grpc_status_code"]] += int(float(value))
    return found


@dataclass(frozen=True)
class Line:
    """A line of the kubelet's log; `at` is time.time()."""

    at: float
    text: str

    def value(self, key: str) -> str:
        found = re.search(rf'\b{key}="([^"]*)"', self.text)
        return found[1] if found else ""


def kubelet_log(node: Node, *words: str) -> list[Line]:
    """Lines of the kubelet's log, over all its lives, that hold all of these words."""
    lines = node.kubelet.log.read_text(errors="replace").splitlines()
    return [Line(_klog_time(line), line) for line in lines if all(word in line for word in words)]


def registered_at(
    node: Node, ours: set[str], since: float, *, driver: str = GPU, after_driver: bool
) -> float:
    """Seconds from `since` (time.time()) until the kubelet's calls went to the agent for good.

    0.0 as long as its newest plugin is another, or, where the driver registers anew too, as long
    as it has not done so.
    """
    words = ("Registered DRA plugin", f'driverName="{driver}"')
    lines = [line for line in kubelet_log(node, *words) if line.at >= since]
    first = 0.0
    driver_seen = not after_driver
    for line in lines:
        if line.value("endpoint") not in ours:
            first, driver_seen = 0.0, True
        elif not first:
            first = line.at
    return first - since if first and driver_seen else 0.0


def created_at(socket: Path) -> float:
    """time.time() at which a socket was bound."""
    return socket.stat().st_ctime


def _klog_time(line: str) -> float:
    """klog writes local time without a year."""
    found = re.match(r"[IWEF](\d{4} \d\d:\d\d:\d\d\.\d{6}) ", line)
    if not found:
        return 0.0
    year = datetime.now(UTC).year
    return datetime.strptime(f"{year} {found[1]}", "%Y %m%d %H:%M:%S.%f").timestamp()
