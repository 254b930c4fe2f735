"""The scenarios: what is done on each side. What is to be seen is not said here but compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..harness import steps
from ..harness.driver import Driver
from ..harness.steps import TRANSIENT
from .side import Side

UNKNOWN = "the flux capacitor is empty"
Steps = Callable[[Side], Iterator[None]]


@dataclass(frozen=True)
class Scenario:
    """`restarts` is what ends at the first yield and is back after the second."""

    name: str
    title: str
    run: Steps
    restarts: str
    ci: bool
    retire_after: str = ""  # of the agent, where it is not as usual

    @property
    def health(self) -> bool:
        """Whether it is about devices' health."""
        return self.name.startswith("health-")


ALL: dict[str, Scenario] = {}


def scenario(
    title: str, *, restarts: str = "", ci: bool = False, retire_after: str = ""
) -> Callable[[Steps], Steps]:
    def keep(run: Steps) -> Steps:
        name = run.__name__.replace("_", "-")
        ALL[name] = Scenario(name, title, run, restarts, ci, retire_after)
        return run

    return keep


def lifetime(side: Side, role: str, *drivers: Driver) -> None:
    side.pod(role, *drivers)
    side.running(role)
    side.end(role)


def _across_driver_restart(side: Side, driver: Driver) -> None:
    side.pod("a", driver)
    side.running("a")
    driver.stop()
    time.sleep(3)
    driver.start()
    side.served(driver)
    side.end("a")
    lifetime(side, "b", driver)


# Nothing of the node is restarted


@scenario("a pod starts and ends", ci=True)
def healthy(side: Side) -> Iterator[None]:
    driver = side.make()
    side.pod("a", driver)
    side.running("a")
    side.keep_checkpoint("running", 1)
    side.end("a")
    side.keep_checkpoint("ended", 0)
    yield


@scenario("prepare fails twice, then works", ci=True)
def fails_then_works(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.fail(TRANSIENT, times=2)
    lifetime(side, "a", driver)
    yield


@scenario("a text that no rule knows, then prepare works", ci=True)
def unknown_then_works(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.fail(UNKNOWN)
    side.pod("a", driver)
    side.event("a")
    side.keep_checkpoint("failing", 1)
    driver.heal()
    side.running("a")
    side.keep_checkpoint("running", 1)
    side.end("a")
    yield


@scenario("a pod is deleted while its prepare fails", ci=True)
def deleted_while_failing(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.fail(TRANSIENT)
    # The kubelet ends pods at its own pace, of up to 7 s where a cgroup is slow to go. What the
    # agent can add is before the unprepare, and it adds it to each.
    roles = ("a", "b", "c")
    for role in roles:
        side.pod(role, driver)
    failing = len(roles)
    side.wait(lambda: len({each.uid for each in driver.prepares()}) == failing, 30, "failures")
    time.sleep(2)
    began = time.time()
    for role in roles:
        side.delete(role)
    for role in roles:
        side.gone(role, 60)
    side.seconds["unprepare"] = min(call.began for call in driver.unprepares()) - began
    side.seconds["delete"] = min(side.gone_at(role) for role in roles) - began
    side.keep_checkpoint("ended", 0)
    yield


@scenario("the whole call fails with a code", ci=True)
def call_fails(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.fail(UNKNOWN, code=9)
    side.pod("a", driver)
    side.event("a")
    side.end("a")
    yield


@scenario("the whole call fails with UNAVAILABLE", ci=True)
def call_unavailable(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.fail(UNKNOWN, code=14)
    side.pod("a", driver)
    side.event("a")
    side.end("a")
    yield


@scenario("prepare times out, the next works", ci=True)
def times_out(side: Side) -> Iterator[None]:
    driver = side.make()
    # Whatever the kubelet does at 45 s: an answer at that very moment might win the race.
    driver.rules({"op": "prepare", "sleepMs": 47_000, "stubborn": True, "times": 1})
    side.pod("a", driver)
    side.event("a", 70)
    side.running("a", 90)
    side.end("a")
    yield


@scenario("unprepare fails twice, then works", ci=True)
def unprepare_fails(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.rules({"op": "unprepare", "text": UNKNOWN, "times": 2})
    side.pod("a", driver)
    side.running("a")
    side.end("a", 60)
    side.keep_checkpoint("ended", 0)
    yield


@scenario("two drivers, one failing", ci=True)
def two_drivers(side: Side) -> Iterator[None]:
    good, bad = side.make(), side.make("-bad")
    bad.fail(UNKNOWN)
    side.pod("a", good, bad)
    side.event("a")
    side.keep_checkpoint("failing", 2)
    bad.heal()
    side.running("a")
    side.end("a")
    yield


@scenario("two claims of one driver, one failing")
def two_claims(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.fail(UNKNOWN, claim="-t1-")
    side.pod("a", driver, driver)
    side.event("a")
    driver.heal()
    side.running("a")
    side.keep_checkpoint("running", 2)
    side.end("a")
    yield


@scenario("two pods share a claim")
def shared_claim(side: Side) -> Iterator[None]:
    driver = side.make()
    claim = side.claim("shared", driver)
    for role in ("a", "b"):
        side.pod(role, claims=(claim,))
        side.running(role)
    side.keep_checkpoint("running", 1)
    side.end("a")
    side.end("b")
    side.keep_checkpoint("ended", 0)
    yield


@scenario("the driver restarts and is back in 3 s", ci=True)
def driver_restarts(side: Side) -> Iterator[None]:
    _across_driver_restart(side, side.make())
    yield


@scenario("the driver is killed, a pod arrives, the driver is back", ci=True)
def driver_killed_briefly(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.kill()
    side.pod("a", driver)
    side.scheduled("a")
    time.sleep(3)
    driver.start()
    side.running("a", 60)
    side.end("a")
    yield


@scenario("the driver has left in order when a pod arrives")
def driver_left(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.stop()
    time.sleep(2)
    side.pod("a", driver)
    side.event("a")
    driver.start()
    side.running("a", 60)
    side.end("a")
    yield


@scenario("a pod is deleted while its driver has left")
def deleted_without_driver(side: Side) -> Iterator[None]:
    driver = side.make()
    side.pod("a", driver)
    side.running("a")
    driver.stop()
    time.sleep(2)
    side.delete("a")
    time.sleep(8)
    driver.start()
    side.gone("a", 60)
    yield


@scenario("a driver dies in a prepare and is back")
def driver_dies_in_prepare(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.rules({"op": "prepare", "sleepMs": 40_000})
    side.pod("a", driver)
    side.wait(driver.arrivals, 30, "prepare at the driver")
    driver.kill()
    driver.heal()
    time.sleep(2)
    driver.start()
    side.running("a", 60)
    side.end("a")
    yield


@scenario("rolling update: a second instance takes over", ci=True)
def rolling_update(side: Side) -> Iterator[None]:
    old = side.make(instance="old")
    side.pod("a", old)
    side.running("a")
    new = side.make(instance="new")
    side.pod("b", new)
    side.running("b")
    old.stop()
    time.sleep(1)
    side.end("a")
    side.end("b")
    yield


@scenario("one socket for registration and calls", ci=True)
def one_socket(side: Side) -> Iterator[None]:
    _across_driver_restart(side, side.make(one_socket=True))
    yield


@scenario("a driver of v1beta1 only", ci=True)
def v1beta1_only(side: Side) -> Iterator[None]:
    lifetime(side, "a", side.make(versions="v1beta1"))
    yield


@scenario("a driver of v1 only")
def v1_only(side: Side) -> Iterator[None]:
    lifetime(side, "a", side.make(versions="v1"))
    yield


def watched(side: Side, versions: str) -> Driver:
    """A driver with these versions of the health service, and a running pod with a claim."""
    driver = side.make(health=versions)
    side.pod("a", claims=(side.claim("a", driver),))
    side.running("a")
    return driver


def _health(side: Side, versions: str) -> None:
    driver = watched(side, versions)
    if versions == "none" or (versions == "v1" and not side.node.kube.health_v1):
        time.sleep(10)  # nothing is to come
        side.end("a")
        return
    side.shows("a", "Healthy")
    driver.rules({"op": "health", "text": "too hot"})
    side.shows("a", "Unhealthy")
    driver.heal()
    side.shows("a", "Healthy")
    side.end("a")


@scenario("health: both versions", ci=True)
def health_both(side: Side) -> Iterator[None]:
    _health(side, "v1,v1alpha1")
    yield


@scenario("health: v1 only")
def health_v1(side: Side) -> Iterator[None]:
    _health(side, "v1")
    yield


@scenario("health: v1alpha1 only")
def health_v1alpha1(side: Side) -> Iterator[None]:
    _health(side, "v1alpha1")
    yield


@scenario("health: none")
def health_none(side: Side) -> Iterator[None]:
    _health(side, "none")
    yield


@scenario("health: the stream ends and is resumed")
def health_ends(side: Side) -> Iterator[None]:
    driver = watched(side, "v1,v1alpha1")
    side.shows("a", "Healthy")
    driver.rules({"op": "health", "text": "end"})
    side.shows("a", "Unknown")
    driver.heal()
    side.shows("a", "Healthy")
    side.end("a")
    yield


@scenario("health: heartbeats stop for longer than their time limit")
def health_silent(side: Side) -> Iterator[None]:
    driver = watched(side, "v1,v1alpha1")
    side.shows("a", "Healthy")
    driver.rules({"op": "health", "text": "silent"})
    side.shows("a", "Unknown", 60)  # a kubelet 1.34 knows no limit but its own 30 s
    driver.heal()
    side.shows("a", "Healthy")
    side.end("a")
    yield


def _refused(side: Side, driver: Driver, method: str) -> None:
    """A method of the registration fails until that was met twice, by the kubelet if it asks.

    Once is enough for a kubelet that leaves it at one notice; it uses the driver all the same.
    """
    driver.rules({"op": method, "text": UNKNOWN})
    once = _told_once(side, method)
    enough = 1 if once else 2

    def met() -> bool:
        if side.registry is not None and method == "GetInfo":
            return len([each for each in driver.answers(method) if each["code"]]) >= enough
        lines = steps.kubelet_log(side.node, "RegisterPlugin error", UNKNOWN)
        marks = side.sockets(driver.name)
        mine = [line for line in lines if any(mark in line.text for mark in marks)]
        return len(mine) >= enough

    side.wait(met, 60, f"failures of {method}: {enough}")
    _registers(side, driver, 60, told_again=not once)
    side.served(driver)


def _told_once(side: Side, method: str) -> bool:
    return method != "GetInfo" and not side.node.kube.notifies_again


def _registers(side: Side, driver: Driver, limit: float, *, told_again: bool) -> None:
    """The registration works from now on; waits until the driver is told, if it is."""
    told = len(driver.registrations())
    driver.heal()
    if told_again:
        side.wait(lambda: len(driver.registrations()) > told, limit, "registration after all")


def _registration_fails(side: Side, method: str) -> Driver:
    driver = side.make(start=False)
    driver.rules({"op": method, "text": UNKNOWN})
    driver.start(registered=False)
    return driver


@scenario("GetInfo fails, then works", ci=True)
def getinfo_fails(side: Side) -> Iterator[None]:
    driver = _registration_fails(side, "GetInfo")
    _refused(side, driver, "GetInfo")
    lifetime(side, "a", driver)
    yield


@scenario("NotifyRegistrationStatus fails, then works")
def notify_fails(side: Side) -> Iterator[None]:
    driver = _registration_fails(side, "NotifyRegistrationStatus")
    _refused(side, driver, "NotifyRegistrationStatus")
    lifetime(side, "a", driver)
    yield


def _fails_for_a_minute(side: Side, method: str) -> None:
    """The kubelet tries after 32 s more: the driver's registration comes long after the agent's.

    The pod `a` may then pass the agent by, which the agent must find and mend before `b`: well
    before it would have registered anew in any case, 150 s after the driver's start.
    """
    driver = _registration_fails(side, method)
    time.sleep(60)
    _registers(side, driver, 150, told_again=not _told_once(side, method))
    side.pod("a", driver)
    side.running("a", 90)  # its devices may just have been wiped
    side.served(driver, 50)
    side.end("a")
    lifetime(side, "b", driver)


@scenario("GetInfo fails for a minute, then works")
def getinfo_fails_for_a_minute(side: Side) -> Iterator[None]:
    _fails_for_a_minute(side, "GetInfo")
    yield


@scenario("NotifyRegistrationStatus fails for a minute, then works")
def notify_fails_for_a_minute(side: Side) -> Iterator[None]:
    _fails_for_a_minute(side, "NotifyRegistrationStatus")
    yield


# The kubelet is killed at the first yield and runs again after the second


@scenario("a pod runs across a restart of the kubelet", restarts="kubelet", ci=True)
def kubelet_restarts(side: Side) -> Iterator[None]:
    driver = side.make()
    side.pod("a", driver)
    side.running("a")
    yield
    yield
    side.served(driver)
    side.keep_checkpoint("restarted", 1)
    side.end("a")
    side.wait(lambda: side.sampler.slices(driver.name), 60, "devices published again")
    lifetime(side, "b", driver)


@scenario("a pod is created while the kubelet is down", restarts="kubelet", ci=True)
def created_while_kubelet_is_down(side: Side) -> Iterator[None]:
    driver = side.make()
    yield
    side.pod("a", driver)
    side.scheduled("a")
    yield
    side.running("a", 60)
    side.end("a")


@scenario("a prepare is in progress when the kubelet dies", restarts="kubelet", ci=True)
def preparing_when_kubelet_dies(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.rules({"op": "prepare", "sleepMs": 30_000, "times": 1})
    side.pod("a", driver)
    side.wait(driver.arrivals, 30, "prepare at the driver")
    yield
    yield
    side.running("a", 60)
    side.end("a")


@scenario("an unprepare is in progress when the kubelet dies", restarts="kubelet", ci=True)
def unpreparing_when_kubelet_dies(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.rules({"op": "unprepare", "sleepMs": 30_000, "times": 1})
    side.pod("a", driver)
    side.running("a")
    side.delete("a")
    side.wait(lambda: driver.arrivals("NodeUnprepareResources"), 30, "unprepare at the driver")
    yield
    yield
    side.gone("a", 60)
    side.keep_checkpoint("ended", 0)


@scenario("prepare fails before and after a restart of the kubelet", restarts="kubelet")
def failing_across_restart(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.fail(UNKNOWN)
    side.pod("a", driver)
    side.event("a")
    yield
    calls = len(driver.prepares())
    yield
    side.wait(lambda: len(driver.prepares()) > calls, 60, "prepare after the restart")
    driver.heal()
    side.running("a", 60)
    side.end("a")


@scenario("unprepare of a deleted pod fails across a restart of the kubelet", restarts="kubelet")
def unprepare_fails_across_restart(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.rules({"op": "unprepare", "text": UNKNOWN})
    side.pod("a", driver)
    side.running("a")
    side.delete("a")
    side.wait(driver.unprepares, 30, "first unprepare")
    yield
    calls = len(driver.unprepares())
    yield
    side.wait(lambda: len(driver.unprepares()) > calls, 90, "unprepare after the restart")
    driver.heal()
    side.gone("a", 90)
    side.keep_checkpoint("ended", 0)


@scenario("a failing pod is deleted while the kubelet is down", restarts="kubelet")
def deleted_while_kubelet_is_down(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.fail(UNKNOWN)
    side.pod("a", driver)
    side.event("a")
    yield
    side.delete("a", grace=0)
    side.gone("a")
    yield
    side.keep_checkpoint("ended", 0, 90)  # the kubelet looks for such claims once a minute


@scenario("GetInfo fails after a restart of the kubelet", restarts="kubelet")
def getinfo_fails_after_restart(side: Side) -> Iterator[None]:
    driver = side.make()
    yield
    driver.rules({"op": "GetInfo", "text": UNKNOWN})
    told = len(driver.registrations())
    yield
    if side.registry is None:
        _refused(side, driver, "GetInfo")
    else:  # the agent remembers the answer and registers at once
        side.wait(lambda: len(driver.registrations()) > told, 60, "registration")
        side.served(driver)


@scenario("NotifyRegistrationStatus fails after a restart of the kubelet", restarts="kubelet")
def notify_fails_after_restart(side: Side) -> Iterator[None]:
    driver = side.make()
    yield
    driver.rules({"op": "NotifyRegistrationStatus", "text": UNKNOWN})
    yield
    _refused(side, driver, "NotifyRegistrationStatus")


# The agent gets SIGTERM at the first yield and runs again after the second


@scenario("a pod runs across a restart of the agent", restarts="agent", ci=True)
def agent_restarts(side: Side) -> Iterator[None]:
    driver = side.make()
    side.pod("a", driver)
    side.running("a")
    yield
    yield
    side.served(driver)
    side.end("a")
    lifetime(side, "b", driver)


@scenario("a pod is created while the agent is down", restarts="agent", ci=True)
def created_while_agent_is_down(side: Side) -> Iterator[None]:
    driver = side.make()
    yield
    side.pod("a", driver)
    side.scheduled("a")
    if side.registry is None:
        side.running("a")
    yield
    side.running("a", 60)
    side.end("a")


@scenario("a prepare is in progress when the agent gets SIGTERM", restarts="agent", ci=True)
def preparing_when_agent_ends(side: Side) -> Iterator[None]:
    driver = side.make()
    driver.rules({"op": "prepare", "sleepMs": 5_000, "times": 1})
    side.pod("a", driver)
    side.wait(driver.arrivals, 30, "prepare at the driver")
    yield
    yield
    side.running("a", 60)
    side.end("a")


@scenario("a pod ends while the agent is down", restarts="agent")
def ended_while_agent_is_down(side: Side) -> Iterator[None]:
    driver = side.make()
    side.pod("a", driver)
    side.running("a")
    yield
    side.delete("a")
    if side.registry is None:
        side.gone("a")
    yield
    side.gone("a", 60)
    side.keep_checkpoint("ended", 0)
