"""Scenarios: devices' health, while drivers and connections come and go."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..harness import steps
from .scenarios import lifetime, scenario, watched
from .side import Side


@scenario("health: Unknown while the driver is away")
def health_driver_restarts(side: Side) -> Iterator[None]:
    driver = watched(side, "v1,v1alpha1")
    side.shows("a", "Healthy")
    driver.stop()
    side.shows("a", "Unknown", 100)  # with the next sync of the pod
    driver.start()
    side.shows("a", "Healthy", 100)
    side.served(driver)
    side.end("a")
    yield


def _dropped(side: Side, versions: str) -> None:
    driver = watched(side, versions)
    known = versions != "v1" or side.node.kube.health_v1
    if known:
        side.shows("a", "Healthy")
    driver.drop()
    driver.rules({"op": "health", "text": "too hot"})
    if known:
        side.shows("a", "Unhealthy", 60)
    driver.heal()
    if known:
        side.shows("a", "Healthy", 60)
    lifetime(side, "b", driver)
    side.end("a")


@scenario("health: v1, all connections to the driver drop")
def health_v1_dropped(side: Side) -> Iterator[None]:
    _dropped(side, "v1")
    yield


@scenario("health: v1alpha1, all connections to the driver drop")
def health_v1alpha1_dropped(side: Side) -> Iterator[None]:
    _dropped(side, "v1alpha1")
    yield


@scenario("health: a generation of the agent is retired", retire_after="5s")
def health_retired(side: Side) -> Iterator[None]:
    """With the driver silent, for else its next report, a second later, hides what has gone."""
    driver = watched(side, "v1,v1alpha1")
    side.shows("a", "Healthy")
    overlay = side.middle is not None and side.registry is None

    def lines(word: str) -> int:
        return len(steps.kubelet_log(side.node, f'"{word} DRA plugin"', f'"{driver.name}"'))

    if overlay:  # itself, and two generations: the second comes 10 s after the driver
        side.wait(lambda: lines("Registered") > 2, 40, "second generation")
    else:
        time.sleep(8)
    driver.rules({"op": "health", "text": "silent"})
    if overlay:
        side.wait(lambda: lines("Unregistered"), 40, "first generation retired")
    else:
        time.sleep(8)
    side.touch("a")
    time.sleep(2)
    driver.heal()
    side.shows("a", "Healthy", 60)
    side.end("a")
    yield
