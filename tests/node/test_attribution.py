"""Which device is at fault: the record of a pod with two drivers ends the same in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest

from .harness import objects
from .harness.agent import Agent
from .harness.api import Object
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.reports import (
    DEVICE_FAULT,
    GPU,
    NIC,
    PREPARED,
    annotated,
    conditions,
    device_gone,
    record,
    registered,
)
from .harness.waiting import stays, wait_for

# The kubelet asks the drivers in random order (a Go map's), the claim named first in 7 of 8 cases:
# one of so many pods gets the wished one.
PODS = 16
# It asks again after each change of an annotation, so the other order comes within some changes;
# left to itself it would ask every 6 s, and one in 15 runs of two minutes would not see it.
LIMIT = 120
BLAMED = (GPU, "gpu-0")
FAULT = {BLAMED: "failed", (GPU, "gpu-1"): "blocked"}
END = {**FAULT, (NIC, "gpu-0"): "prepared"}


def states(pod: Object) -> dict[tuple[str, str], str]:
    """State by driver and device, as the annotation says; {} where there is none."""
    devices = record(pod).get("devices", [])
    return {(entry["driver"], entry["device"]): entry["state"] for entry in devices}


def create(node: Node, namespace: str, name: str, drivers: list[Driver], wish: str) -> str:
    """A pod with two devices of one driver and one of the other; returns who was asked first."""
    gpu, nic = drivers
    order = ("pair", "nic") if wish == GPU else ("nic", "pair")
    node.api.create(objects.pod(namespace, name, templates=order))
    (failed, *_) = wait_for(partial(gpu.prepares, f"{name}-"), 40, f"prepare of {name}")
    before = [call for call in nic.prepares(f"{name}-") if call.began < failed.began]
    return NIC if before else GPU


def complete(node: Node, namespace: str, name: str, number: Iterator[int]) -> bool:
    """True when the record is whole; else makes the kubelet ask again at once."""
    if states(node.api.pod(namespace, name)) == END:
        return True
    change = {"metadata": {"annotations": {"example.com/look": str(next(number))}}}
    node.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", change)
    return False


def delete(node: Node, path: str) -> None:
    node.api.delete(path)
    wait_for(lambda: node.api.find(path) is None, 30, f"end of {path}")


@pytest.mark.parametrize("first", [NIC, GPU], ids=["healthy-first", "faulty-first"])
def test_one_device_of_two_drivers_is_at_fault(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    first: str,
) -> None:
    gpu, nic = driver(GPU, devices=2), driver(NIC, devices=1)
    dra = agent(mode="enforce")
    registered(dra, GPU, NIC)
    gpu.fail(device_gone(BLAMED[1]))
    node.api.create(objects.claim_template(namespace, "pair", objects.claim_spec(GPU, count=2)))
    node.api.create(objects.claim_template(namespace, "nic", objects.claim_spec(NIC)))
    for number in range(PODS):
        name = f"both-{number}"
        if create(node, namespace, name, [gpu, nic], first) == first:
            break
        delete(node, f"/api/v1/namespaces/{namespace}/pods/{name}")
    else:
        pytest.fail(f"{first} was never the first of two drivers in {PODS} pods")

    seen = annotated(node, namespace, name)
    begin = {(e["driver"], e["device"]): e["state"] for e in seen["devices"]}
    missed = {(NIC, "gpu-0"): "pending"} if first == GPU else {}
    assert begin == {**END, **missed}
    wait_for(partial(complete, node, namespace, name, count()), LIMIT, "the whole record", every=1)

    pod = node.api.pod(namespace, name)
    found = record(pod)
    assert found["outcome"] == "Report"
    assert [entry["state"] for entry in found["devices"]] == ["failed", "blocked", "prepared"]
    worst, *others = found["devices"]
    assert (worst["rule"], worst["culprit"]) == ("example-not-allocatable", "device")
    assert worst["cause"] == device_gone(BLAMED[1])
    assert all("cause" not in entry for entry in others), "they did nothing wrong"
    wait_for(partial(said_all, node, namespace, name), 5, "the same in the conditions")

    # The kubelet goes on (and asks the healthy driver again each time), but all is said.
    def quiet() -> bool:
        after = record(node.api.pod(namespace, name))
        return after == found and len(gpu.prepares(f"{name}-")) == 1

    stays(quiet, 15, "one prepare by the faulty driver, one record")
    assert not any(call.error for call in nic.prepares())
    assert node.api.phase(namespace, name) == "Pending"


def said_all(node: Node, namespace: str, name: str) -> bool:
    said = conditions(node.api.pod(namespace, name))
    assert (said[PREPARED]["status"], said[PREPARED]["reason"]) == ("False", "HeldBack")
    message = said[PREPARED]["message"]
    assert message.startswith("1 of 3 devices could not be prepared. gpu-0 of gpu.example.com")
    assert "Blocked by it: gpu-1. Prepared: gpu-0." in message
    assert "not failed: a device is at fault" in message
    assert said[DEVICE_FAULT]["status"] == "True"
    return True
