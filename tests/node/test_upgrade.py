"""The agent is replaced under load: what is in flight is answered, what comes meanwhile runs."""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from agent import names

from .harness import steps
from .harness.agent import Agent
from .harness.api import Object
from .harness.cluster import SLOW, Node
from .harness.driver import Driver
from .harness.steps import GPU, UNPREPARE
from .harness.waiting import wait_for

IN_FLIGHT, MEANWHILE = 4, 3
AGAIN = 0.5  # seconds until a new agent that found the old one is started once more
NUDGED = 45.0  # seconds until the pods of the gap run, which the kubelet would let wait for 60-90
DRAIN = 30.0  # seconds that an agent may take to end: what its pod has
LOST = 2.0  # seconds around the old agent's end in which a call may be written and never be read


def replace(
    old: Agent,
    new: Agent,
    meanwhile: Callable[[], None],
    between: Callable[[], None] | None = None,
) -> tuple[float, int]:
    """SIGTERM to the old, the new one started at once and again while it finds the old one.

    `meanwhile` is called at once. With a `between` the new one is started after that, which is
    called when the old one has ended. Returns the seconds until that, and how often the new one was
    started.
    """
    began, ended, starts = time.monotonic(), 0.0, 0
    old.process.signal(signal.SIGTERM)
    meanwhile()
    while time.monotonic() < began + 60:
        if not ended and not old.process.running:
            ended = time.monotonic() - began
            assert ended < DRAIN
            if between:
                between()
        if not new.process.running and (ended or not between):
            assert new.process.code in (None, 2), new.log()
            new.process.start()
            starts += 1
        if ended and _listens(new):
            return ended, starts
        time.sleep(AGAIN)
    raise AssertionError(f"not replaced within 60 s; the new one says: {new.log()[-2000:]}")


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
    if intake:
        node.restart_kubelet(**SLOW)  # whose own second try would come after a minute
    registry: Path | None = node.plugins / "dra-agent.io" / "intake" if intake else None
    old = agent(registration=registration)
    gpu = driver(GPU, devices=12, registry=registry)
    steps.wait_served(old)
    devices = {each["metadata"]["uid"] for each in node.api.slices(GPU)}
    calls, undone = steps.kubelet_calls(node), steps.kubelet_calls(node, method=UNPREPARE)
    # Longer than it takes all of them to come, shorter than the agent waits for them.
    gpu.rules({"op": "prepare", "sleepMs": 6_000, "claim": "old-"})
    early = [f"old-{number}" for number in range(IN_FLIGHT)]
    late = [f"new-{number}" for number in range(MEANWHILE)]
    for name in early:
        steps.create_pod(node, namespace, name)
    wait_for(lambda: len(gpu.arrivals()) == IN_FLIGHT, 20, "all prepares at the driver")

    def meanwhile() -> None:
        for name in late:
            steps.create_pod(node, namespace, name)

    gone = [f"gap-{number}" for number in range(MEANWHILE)] if intake else []

    def between() -> None:
        """Pods that come when nobody serves the driver, and are told so."""
        for name in gone:
            steps.create_pod(node, namespace, name)
        for name in gone:
            wait_for(functools.partial(unprepared, node, namespace, name), 20, f"failure of {name}")

    new = agent(start=False, registration=registration)
    new.authorize()
    assert gpu.answers() == [], "a call was answered before the old agent was told to end"
    since = time.time()
    ended, starts = replace(old, new, meanwhile, between if intake else None)
    assert old.process.code == 0
    assert [each["code"] for each in gpu.answers()[:IN_FLIGHT]] == [0] * IN_FLIGHT
    steps.wait_served(new)
    served = time.monotonic()
    everyone = (*early, *late, *gone)
    for name in everyone:
        steps.wait_running(node, namespace, name, 90)
    running = time.monotonic() - served
    assert running < NUDGED
    for name in gone:
        marks = node.api.pod(namespace, name)["metadata"].get("annotations", {})
        assert names.ANNOTATION_NUDGE in marks, f"{name} was not nudged"
    made = steps.kubelet_calls(node) - calls
    failed = {code: number for code, number in made.items() if number and code != "OK"}
    assert made["OK"] == len(everyone)
    assert failed.keys() <= {"Unavailable"}
    for name in early:
        assert unprepared(node, namespace, name) == []
    if not intake:
        for name in late:
            check_lost(node, namespace, name, since + ended)
    through = steps.agent_calls(new)
    for name in everyone:
        steps.delete_pod(node, namespace, name)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wait_for(lambda: not node.api.items(pods), 60, "end of the pods")
    assert (steps.kubelet_calls(node, method=UNPREPARE) - undone)["OK"] == len(everyone)
    assert {each["metadata"]["uid"] for each in node.api.slices(GPU)} == devices
    figures(
        f"upgrade under load, {registration}: the old agent ended after {ended:.1f} s with "
        f"{IN_FLIGHT} calls in flight answered; the new one was started {starts} times; the "
        f"kubelet knew no plugin for {gap(node, since):.1f} s; pods that came meanwhile: "
        f"{len(late) + len(gone)}, {failed or 'no'} failed calls, {through} prepared through the "
        f"new agent, all running {running:.1f} s after it was registered"
    )
    for text in sorted({text for name in gone for text in unprepared(node, namespace, name)}):
        figures(f"upgrade, {registration}: said of a pod of the gap, which was nudged: {text}")


def check_lost(node: Node, namespace: str, pod: str, ended: float) -> None:
    """No prepare of a pod failed, but for one that the kubelet wrote as the old agent hung up.

    Bytes that were never read are nobody's to answer; the kubelet calls the driver itself next.
    """
    for event in failures(node, namespace, pod):
        assert "code = Unavailable" in event["message"], event
        at = datetime.fromisoformat(event["lastTimestamp"]).timestamp()
        assert abs(at - ended) < LOST, event


def unprepared(node: Node, namespace: str, pod: str) -> list[str]:
    """What the kubelet said of failed prepares."""
    return [str(event["message"]) for event in failures(node, namespace, pod)]


def failures(node: Node, namespace: str, pod: str) -> list[Object]:
    """Events of failed prepares, but for the kubelet's race with its own rights."""
    events = node.api.events(namespace, pod, "FailedPrepareDynamicResources")
    return [each for each in events if "no relationship found between node" not in each["message"]]
