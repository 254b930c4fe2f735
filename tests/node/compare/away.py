"""Scenarios: the driver or the agent is away, for how long and with which calls in progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ..harness.driver import Driver
from .scenarios import lifetime, scenario
from .side import Side

WIPED = 45.0  # seconds after which the devices would be gone, with the agent's hold
BACK = 18.0  # the hold is over, and the kubelet's timer runs

# The driver


def wiped(side: Side, driver: Driver, end: Callable[[], object]) -> None:
    side.pod("a", driver)
    side.running("a")
    end()
    began = time.monotonic()
    side.wait(lambda: not side.sampler.slices(driver.name), 70, "wipe")
    side.seconds["wipe"] = time.monotonic() - began
    driver.start()
    side.served(driver)
    side.end("a")
    lifetime(side, "b", driver)


def _back_late(side: Side, driver: Driver) -> None:
    side.pod("a", driver)
    side.running("a")
    driver.kill()
    began = time.monotonic()
    time.sleep(BACK)
    driver.start()
    side.served(driver)
    time.sleep(max(began + WIPED - time.monotonic(), 0))
    side.end("a")
    lifetime(side, "b", driver)


@scenario("the driver is killed and stays away: devices are wiped", ci=True)
def driver_away(side: Side) -> Iterator[None]:
    driver = side.make()
    wiped(side, driver, driver.kill)
    yield


@scenario("the driver leaves in order and stays away: devices are wiped")
def driver_left_for_long(side: Side) -> Iterator[None]:
    driver = side.make()
    wiped(side, driver, driver.stop)
    yield


@scenario("one socket: the driver is killed and stays away: devices are wiped")
def one_socket_away(side: Side) -> Iterator[None]:
    driver = side.make(one_socket=True)
    wiped(side, driver, driver.kill)
    yield


@scenario("the driver is killed and back after 18 s, before devices are wiped")
def driver_back_late(side: Side) -> Iterator[None]:
    _back_late(side, side.make())
    yield


@scenario("one socket: the driver is killed and back after 18 s, before devices are wiped")
def one_socket_back_late(side: Side) -> Iterator[None]:
    _back_late(side, side.make(one_socket=True))
    yield


# A call is in progress when the driver ends


def _held() -> None:
    """The driver has the call; that it has read the claim, too, is not to be chance."""
    time.sleep(1)


def _preparing(side: Side, seconds: int) -> Driver:
    driver = side.make()
    driver.rules({"op": "prepare", "sleepMs": seconds * 1000, "times": 1})
    side.pod("a", driver)
    side.wait(driver.arrivals, 30, "prepare at the driver")
    _held()
    return driver


def _unpreparing(side: Side, seconds: int) -> Driver:
    driver = side.make()
    driver.rules({"op": "unprepare", "sleepMs": seconds * 1000, "times": 1})
    side.pod("a", driver)
    side.running("a")
    side.delete("a")
    side.wait(lambda: driver.arrivals("NodeUnprepareResources"), 30, "unprepare at the driver")
    _held()
    return driver


def _back(driver: Driver) -> None:
    driver.heal()
    time.sleep(2)
    driver.start()


@scenario("a prepare is in progress when the driver leaves in order")
def preparing_when_driver_leaves(side: Side) -> Iterator[None]:
    driver = _preparing(side, 40)
    driver.stop()
    _back(driver)
    side.running("a", 100)
    side.end("a")
    yield


@scenario("an unprepare is in progress when the driver is killed")
def unpreparing_when_driver_dies(side: Side) -> Iterator[None]:
    driver = _unpreparing(side, 40)
    driver.kill()
    _back(driver)
    side.gone("a", 60)
    side.keep_checkpoint("ended", 0)
    yield


@scenario("an unprepare is in progress when the driver leaves in order")
def unpreparing_when_driver_leaves(side: Side) -> Iterator[None]:
    driver = _unpreparing(side, 40)
    driver.stop()
    _back(driver)
    side.gone("a", 60)
    side.keep_checkpoint("ended", 0)
    yield


# The agent gets SIGTERM, or SIGKILL, at the first yield and runs again after the second


@scenario("an unprepare is in progress when the agent gets SIGTERM", restarts="agent", ci=True)
def unpreparing_when_agent_ends(side: Side) -> Iterator[None]:
    _unpreparing(side, 5)
    yield
    yield
    side.gone("a", 60)
    side.keep_checkpoint("ended", 0)


@scenario("a pod runs while the agent is killed and back", restarts="agent killed")
def agent_killed(side: Side) -> Iterator[None]:
    driver = side.make()
    side.pod("a", driver)
    side.running("a")
    yield
    yield
    side.served(driver)
    side.end("a")
    lifetime(side, "b", driver)


@scenario("a prepare is in progress when the agent is killed", restarts="agent killed")
def preparing_when_agent_is_killed(side: Side) -> Iterator[None]:
    _preparing(side, 5)
    yield
    yield
    side.running("a", 100)
    side.end("a")


@scenario("an unprepare is in progress when the agent is killed", restarts="agent killed")
def unpreparing_when_agent_is_killed(side: Side) -> Iterator[None]:
    _unpreparing(side, 5)
    yield
    yield
    side.gone("a", 60)
    side.keep_checkpoint("ended", 0)
