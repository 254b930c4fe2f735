"""The agent is replaced under load: what is in flight is answered, what comes meanwhile runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .harness import steps
from .harness.agent import Agent
from .harness.cluster import Node
from .harness.driver import Driver
from .harness.steps import GPU, UNPREPARE
from .harness.waiting import wait_for

IN_FLIGHT, MEANWHILE = 4, 3
AGAIN = 0.5  # seconds until a new agent that found the old one is started once more
DRAIN = 15.0  # seconds that an agent may take to end; its pod has 30


def replace(old: Agent, new: Agent, meanwhile: Callable[[], None]) -> tuple[float, int]:
    """SIGTERM to the old, the new one started at once and again while it finds the old one.

    Returns the seconds until the old one had ended, and how often the new one was started.
    """
    began, ended, starts = time.monotonic(), 0.0, 0
    old.process.signal(signal.SIGTERM)
    meanwhile()
    while time.monotonic() < began + 40:
        if not new.process.running:
            assert new.process.code in (None, 2), new.log()
            new.process.start()
            starts += 1
        if not ended and not old.process.running:
            ended = time.monotonic() - began
        if ended and _listens(new):
            assert ended < DRAIN
            return ended, starts
        time.sleep(AGAIN)
    raise AssertionError(f"not replaced within 40 s; the new one says: {new.log()[-2000:]}")


def _listens(new: Agent) -> bool:
    try:
        return new.http("/readyz")[0] == 200
    except OSError:
        return False


def gap(node: Node, since: float, driver: str = GPU) -> float:
    """Seconds since `since` during which the kubelet knew no plugin of the driver."""
    words = f'driverName="{driver}"'
    total, gone = 0.0, 0.0
    lines = [line for line in steps.kubelet_log(node, words) if line.at >= since]
    for line in lines:
        if "Unregistered DRA plugin" in line.text and "numPlugins=0" in line.text:
            gone = gone or line.at
        elif "Registered DRA plugin" in line.text and gone:
            total, gone = total + line.at - gone, 0.0
    assert not gone, "no plugin of the driver is registered"
    return total


@pytest.mark.parametrize("registration", ["overlay", "intake"])
def test_an_upgrade_under_load_answers_every_call(
    node: Node,
    namespace: str,
    driver: Callable[..., Driver],
    agent: Callable[..., Agent],
    figures: Callable[[str], None],
    registration: str,
) -> None:
    intake = registration == "intake"
    registry: Path | None = node.plugins / "dra-agent.io" / "intake" if intake else None
    old = agent(registration=registration)
    gpu = driver(GPU, devices=8, registry=registry)
    steps.wait_served(old)
    devices = {each["metadata"]["uid"] for each in node.api.slices(GPU)}
    calls, undone = steps.kubelet_calls(node), steps.kubelet_calls(node, method=UNPREPARE)
    gpu.rules({"op": "prepare", "sleepMs": 3_000, "claim": "old-"})
    early = [f"old-{number}" for number in range(IN_FLIGHT)]
    late = [f"new-{number}" for number in range(MEANWHILE)]
    for name in early:
        steps.create_pod(node, namespace, name)
    wait_for(lambda: len(gpu.arrivals()) == IN_FLIGHT, 20, "all prepares at the driver")

    def meanwhile() -> None:
        for name in late:
            steps.create_pod(node, namespace, name)

    new = agent(start=False, registration=registration)
    new.authorize()
    since = time.time()
    ended, starts = replace(old, new, meanwhile)
    assert old.process.code == 0
    assert [each["code"] for each in gpu.answers()[:IN_FLIGHT]] == [0] * IN_FLIGHT
    steps.wait_served(new)
    served = time.monotonic()
    for name in (*early, *late):
        steps.wait_running(node, namespace, name, 90)
    running = time.monotonic() - served
    made = steps.kubelet_calls(node) - calls
    assert made["OK"] == IN_FLIGHT + MEANWHILE
    failed = {code: number for code, number in made.items() if number and code != "OK"}
    if not intake:
        assert failed == {}
        assert not any(node.api.events(namespace, n, "FailedPrepareDynamicResources") for n in late)
    assert failed.keys() <= {"Unavailable"}
    for name in early:
        assert not node.api.events(namespace, name, "FailedPrepareDynamicResources")
    through = steps.agent_calls(new)
    for name in (*early, *late):
        steps.delete_pod(node, namespace, name)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wait_for(lambda: not node.api.items(pods), 60, "end of the pods")
    assert (steps.kubelet_calls(node, method=UNPREPARE) - undone)["OK"] == IN_FLIGHT + MEANWHILE
    assert {each["metadata"]["uid"] for each in node.api.slices(GPU)} == devices
    figures(
        f"upgrade under load, {registration}: the old agent ended after {ended:.1f} s with "
        f"{IN_FLIGHT} calls in flight answered; the new one started {starts} times; the kubelet "
        f"knew no plugin for {gap(node, since):.1f} s; {MEANWHILE} pods meanwhile: "
        f"{failed or 'no'} failed calls, {through} through the new agent, all running "
        f"{running:.1f} s after it was registered"
    )
