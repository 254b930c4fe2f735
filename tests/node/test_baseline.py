"""What a kubelet does with a driver and no agent: the baseline that the fakes imitate."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from .harness import objects
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.waiting import wait_for

GPU = "gpu.example.com"


def create_pod(node: Node, namespace: str, name: str) -> None:
    """A pod with one claim for one device, from a template."""
    node.api.create(objects.claim_template(namespace, "one", objects.claim_spec(GPU)))
    node.api.create(objects.pod(namespace, name, templates=("one",)))


def test_a_healthy_pod_runs(node: Node, namespace: str, driver: Callable[..., Driver]) -> None:
    gpu = driver(GPU)
    create_pod(node, namespace, "fine")
    wait_for(lambda: node.api.phase(namespace, "fine") == "Running", 30, "pod running")
    (call,) = gpu.prepares()
    assert call.devices == ("gpu-0",)
    assert 40 < call.deadline <= 45, "the kubelet's limit for a call"

    node.api.delete(f"/api/v1/namespaces/{namespace}/pods/fine")
    (undone,) = wait_for(gpu.unprepares, 15, "unprepare")
    assert undone.uid == call.uid


def test_a_failing_prepare_is_repeated_and_told_by_an_event_only(
    node: Node, namespace: str, driver: Callable[..., Driver]
) -> None:
    gpu = driver(GPU)
    gpu.fail("device busy")
    create_pod(node, namespace, "stuck")
    wait_for(lambda: len(gpu.prepares()) >= 2, 40, "second prepare")

    events = node.api.events(namespace, "stuck", "FailedPrepareDynamicResources")
    assert "device busy" in events[0]["message"]
    assert node.api.phase(namespace, "stuck") == "Pending"
    kinds = {c["type"] for c in node.api.pod(namespace, "stuck")["status"]["conditions"]}
    assert not any("/" in kind for kind in kinds), "nothing in the status says why"


def test_the_pod_starts_once_the_driver_recovers(
    node: Node, namespace: str, driver: Callable[..., Driver]
) -> None:
    gpu = driver(GPU)
    gpu.fail("device busy", times=1)
    create_pod(node, namespace, "late")
    wait_for(lambda: node.api.phase(namespace, "late") == "Running", 40, "pod running")
    assert [call.error for call in gpu.prepares()] == ["device busy", ""]


def test_an_error_of_the_whole_call_keeps_its_text(
    node: Node, namespace: str, driver: Callable[..., Driver]
) -> None:
    gpu = driver(GPU)
    gpu.fail("no memory left", code=8)
    create_pod(node, namespace, "whole")
    (event, *_) = wait_for(
        lambda: node.api.events(namespace, "whole", "FailedPrepareDynamicResources"), 30
    )
    assert "no memory left" in event["message"]
    assert gpu.answers()[0]["code"] == 8


def test_a_driver_that_has_left_is_called_until_the_kubelet_sees_it(
    node: Node, namespace: str, driver: Callable[..., Driver]
) -> None:
    """It looks once a second: a pod in that second gets UNAVAILABLE, with us and without."""
    gpu = driver(GPU)
    gpu.fail("device busy")
    create_pod(node, namespace, "asked")

    def said(word: str) -> bool:
        events = node.api.events(namespace, "asked", "FailedPrepareDynamicResources")
        return any(word in event["message"] for event in events)

    wait_for(lambda: said("device busy"), 30, "first prepare")
    for attempt in range(5):  # its look may come before the pod's change
        gpu.stop()
        change = {"metadata": {"annotations": {"attempt": str(attempt)}}}
        node.api.patch(f"/api/v1/namespaces/{namespace}/pods/asked", change)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: said("code = Unavailable"), 3)
        gpu.start()  # the pod needs it to end
        if said("code = Unavailable"):
            return
    pytest.fail("never called between its end and the kubelet's look")
