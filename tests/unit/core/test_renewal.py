from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.renewal import Periods, Publish, Renewal, Sleep, Step, Stop, Unlink
from agent.core.retire import View


class World:
    """A link, a kubelet and a clock; does at once what the machine says."""

    def __init__(self, periods: Periods | None = None) -> None:
        self.renewal = Renewal(periods or Periods())
        self.now = 1000.0
        self.in_flight: dict[str, int] = {}
        self.connected: dict[str, bool] = {}
        self.notified: dict[str, int] = {}
        self.driver_socket = True
        self.kubelet = True
        self.made = 0
        self.order: list[str] = []  # as kubelet registered them, the last one last
        self.stopped: set[str] = set()
        self.removed: set[str] = set()  # somebody has removed their registration sockets
        self.steps: list[Step] = []
        self.published: list[float] = []

    @property
    def present(self) -> list[str]:
        return list(self.connected)

    @property
    def live(self) -> list[str]:
        return [name for name in self.present if name not in self.stopped]

    def register(self, name: str) -> bool:
        self.connected[name] = name not in self.stopped
        if self.connected[name]:
            self.renewal.connected(name, self.now)
        self.notified[name] += 1
        self.order = [*(n for n in self.order if n != name), name]
        return self.renewal.notified(name, True, self.now)

    def remove(self, *names: str) -> None:
        """Somebody removes registration sockets; kubelet, if it runs, closes its connections."""
        for name in names:
            self.removed.add(name)
            self.connected[name], self.in_flight[name] = False, 0
            self.renewal.removed(name)
        if names and names[-1] == self.present[-1]:
            self.renewal.trigger(self.now, "socket-removed", restart=False)

    def settle(self) -> float | None:
        """Do all steps; return until when there is nothing to do."""
        for _ in range(100):
            views = {n: View(self.in_flight[n], self.connected[n]) for n in self.present}
            step = self.renewal.next(self.now, views, driver_socket=self.driver_socket)
            if isinstance(step, Sleep):
                assert step.until is None or step.until > self.now
                return step.until
            self.steps.append(step)
            self._do(step)
        raise AssertionError("the machine does not come to rest")

    def _do(self, step: Step) -> None:
        match step:
            case Publish():
                self.made += 1
                name = f"g{self.made}"
                self.in_flight[name], self.connected[name], self.notified[name] = 0, False, 0
                self.published.append(self.now)
                self.renewal.published(name, self.now)
                assert len(self.present) <= self.renewal.periods.max_generations
                if self.kubelet:
                    assert not self.register(name), "a first Notify(true) triggered"
            case Stop(generation=name, reason=reason):
                assert name in self.live
                if self.renewal.away_since is None and name in self.removed:
                    assert not self.in_flight[name]
                elif self.renewal.away_since is None:
                    known = [n for n in self.order if n in self.live and n not in self.removed]
                    # The last that kubelet registered, or the last made if it has none.
                    assert name != (known or self.live)[-1]
                    assert name in known or name != self.live[-1]
                    assert not self.in_flight[name]
                    assert len(self.live) > 1, reason
                self.stopped.add(name)
                self.connected[name], self.in_flight[name] = False, 0
            case Unlink(generation=name):
                assert name in self.stopped, "unlinked before its connections were aborted"
                del self.connected[name]

    def run(self, seconds: float) -> None:
        """Let time pass, waking when the machine asks for it."""
        end = self.now + seconds
        while True:
            until = self.settle()
            if until is None or until > end:
                break
            self.now = until
        self.now = end
        self.settle()


def started() -> World:
    world = World()
    world.renewal.start(world.now)
    world.run(0)
    assert world.live == ["g1"]
    return world


def test_a_driver_that_was_there_is_published_at_once_and_then_all_is_quiet() -> None:
    world = started()
    assert world.settle() is None


def test_a_restart_renews_after_2_10_and_150_seconds_and_the_older_ones_go() -> None:
    world = started()
    begin = world.now
    world.renewal.trigger(world.now, "driver-registered", restart=True)
    world.run(400)
    assert [t - begin for t in world.published] == [0, 2, 10, 150]
    assert world.live == ["g4"]
    assert world.settle() is None


def test_other_triggers_renew_once() -> None:
    world = started()
    begin = world.now
    world.renewal.trigger(world.now, "bypass", restart=False)
    world.run(400)
    assert [t - begin for t in world.published] == [0, 2]


def test_triggers_in_a_row_make_one_renewal_within_twice_the_delay() -> None:
    world = started()
    begin = world.now
    for _ in range(8):
        world.renewal.trigger(world.now, "bypass", restart=False)
        world.run(0.5)
    world.run(1)
    assert [t - begin for t in world.published] == [0, 4]


def test_only_the_second_notify_of_a_generation_triggers() -> None:
    world = started()
    assert world.notified == {"g1": 1}
    assert world.renewal.due == []
    assert world.register("g1")
    assert world.renewal.due == [world.now + 2, world.now + 10, world.now + 150]


def test_intake_never_renews_on_notify() -> None:
    world = World(Periods(renew_delay=0, renew_again=(), renew_on_notify=False))
    world.renewal.start(world.now)
    world.run(0)
    assert not world.register("g1")
    assert world.settle() is None


def test_a_refused_registration_is_not_registered() -> None:
    world = started()
    said = [world.renewal.registered]
    assert not world.renewal.notified("g1", False, world.now)
    said.append(world.renewal.registered)
    assert said == [True, False]
    assert not world.renewal.notified("unknown", True, world.now)


def test_a_fourth_generation_waits_for_a_place() -> None:
    world = started()
    begin = world.now
    world.renewal.trigger(world.now, "driver-registered", restart=True)
    world.run(20)
    assert world.live == ["g1", "g2", "g3"]
    world.renewal.trigger(world.now, "bypass", restart=False)
    world.run(30)
    assert world.renewal.delayed
    assert world.live == ["g1", "g2", "g3"]
    world.run(20)
    # g1 could go 60 s after g2 was taken, that is at 62 s.
    assert world.published[-1] - begin == 62
    assert not world.renewal.delayed


def test_removed_registration_sockets_hold_no_place() -> None:
    world = started()
    world.renewal.trigger(world.now, "driver-registered", restart=True)
    world.run(20)
    assert world.live == ["g1", "g2", "g3"]
    world.remove("g1", "g2", "g3")
    assert not world.renewal.registered
    world.run(2)
    assert world.present == ["g4"]
    assert world.renewal.registered


def test_a_removed_one_keeps_the_call_that_is_in_flight() -> None:
    world = started()
    world.removed.add("g1")
    world.renewal.removed("g1")  # kubelet has not looked yet, and is still connected
    assert not world.renewal.notified("g1", True, world.now)
    assert not world.renewal.registered
    world.in_flight["g1"] = 1
    world.run(5)
    assert world.live == ["g1"]
    world.in_flight["g1"], world.connected["g1"] = 0, False
    world.run(0.1)
    assert world.present == []


def test_generations_that_kubelet_never_took_make_place() -> None:
    world = started()
    world.kubelet = False
    world.connected["g1"] = False
    for _ in range(4):
        world.renewal.trigger(world.now, "driver-registered", restart=True)
        world.run(300)
    assert world.live[0] == "g1"  # kubelet had it: it may come back to it
    assert len(world.live) == 3


def test_a_call_in_flight_delays_the_retirement() -> None:
    world = started()
    world.in_flight["g1"] = 1
    world.renewal.trigger(world.now, "bypass", restart=False)
    world.run(300)
    assert world.live == ["g1", "g2"]
    world.in_flight["g1"] = 0
    world.run(0.1)
    assert world.live == ["g2"]


def test_away_is_held_then_withdrawn_and_a_new_generation_comes_after_it() -> None:
    world = started()
    begin = world.now
    world.renewal.went_away(world.now)
    world.run(9.9)
    assert world.live == ["g1"]
    world.in_flight["g1"] = 1
    world.run(0.5)
    assert world.live == ["g1"], "held calls are answered first"
    world.in_flight["g1"] = 0
    world.run(0.1)
    assert world.live == []
    assert world.present == ["g1"], "the driver's registration socket exists, so ours stays"
    assert world.renewal.withdrawn
    assert world.settle() is None
    world.run(100)
    assert world.renewal.came_back(world.now)
    assert not world.renewal.came_back(world.now)
    world.run(2)
    assert world.present == ["g2"]
    assert world.published[-1] - begin > 100


def test_a_call_that_does_not_end_does_not_delay_the_withdrawal_for_ever() -> None:
    world = started()
    world.in_flight["g1"] = 1
    world.renewal.went_away(world.now)
    world.run(11.0)
    assert world.live == []


def test_away_in_order_unlinks_ours_too_at_once_or_later() -> None:
    world = started()
    world.renewal.went_away(world.now)
    world.driver_socket = False
    world.run(10)
    assert world.present == []
    world = started()
    world.renewal.went_away(world.now)
    world.run(20)
    assert world.present == ["g1"]
    world.driver_socket = False
    world.run(0)
    assert world.present == []


def test_back_within_the_hold_changes_nothing() -> None:
    world = started()
    world.renewal.went_away(world.now)
    world.run(9)
    assert not world.renewal.came_back(world.now)
    world.run(60)
    assert world.live == ["g1"]


def test_a_renewal_due_while_away_comes_afterwards() -> None:
    world = started()
    world.renewal.trigger(world.now, "bypass", restart=False)
    world.renewal.went_away(world.now)
    world.run(5)
    assert world.live == ["g1"]
    world.renewal.came_back(world.now)
    world.run(0)
    assert world.live == ["g1", "g2"]


def test_a_generation_that_could_not_be_made_is_tried_again() -> None:
    renewal = Renewal(Periods())
    renewal.start(0.0)
    assert renewal.next(0.0, {}, driver_socket=True) == Publish("start")
    renewal.retry_at(5.0)
    assert renewal.next(0.0, {}, driver_socket=True) == Sleep(5.0)
    assert renewal.next(5.0, {}, driver_socket=True) == Publish("start")


def _kubelet_down(world: World) -> None:
    world.kubelet = False
    for name in world.present:
        world.connected[name] = False
        world.in_flight[name] = 0


def _kubelet_up(world: World, *, reverse: bool) -> None:
    _kubelet_down(world)
    world.kubelet = True
    for name in sorted(set(world.present) - world.removed, reverse=reverse):
        before = world.notified[name]
        assert world.register(name) == (before > 0)
        world.now += 0.3


ACTIONS: dict[str, Callable[[World], object]] = {
    "bypass": lambda w: w.renewal.trigger(w.now, "bypass", restart=False),
    "driver restart": lambda w: w.renewal.trigger(w.now, "driver-registered", restart=True),
    "away": lambda w: w.renewal.went_away(w.now),
    "back": lambda w: w.renewal.came_back(w.now),
    "driver socket gone": lambda w: setattr(w, "driver_socket", False),
    "driver socket there": lambda w: setattr(w, "driver_socket", True),
    "kubelet down": _kubelet_down,
    "kubelet up": lambda w: _kubelet_up(w, reverse=False),
    "kubelet up, other order": lambda w: _kubelet_up(w, reverse=True),
    "newest socket removed": lambda w: w.remove(*w.live[-1:]),
    "all sockets removed": lambda w: w.remove(*w.live),
    "call": lambda w: w.in_flight.update(dict.fromkeys(w.live[:1], 1)),
    "call on the newest": lambda w: w.in_flight.update(dict.fromkeys(w.live[-1:], 1)),
    "calls end": lambda w: w.in_flight.update(dict.fromkeys(w.in_flight, 0)),
}


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(ACTIONS)), st.sampled_from([0.0, 0.5, 3.0, 20.0, 200.0])),
        max_size=40,
    ),
    st.integers(2, 4),
)
def test_invariants_hold_whatever_happens(script: list[tuple[str, float]], most: int) -> None:
    world = World(Periods(max_generations=most))
    world.renewal.start(world.now)
    world.run(0)
    for action, pause in script:
        ACTIONS[action](world)
        world.run(pause)
    # However it went: when driver and kubelet are well, it ends with one generation and quiet.
    world.driver_socket = True
    world.renewal.came_back(world.now)
    world.in_flight.update(dict.fromkeys(world.in_flight, 0))
    _kubelet_up(world, reverse=False)
    if not world.live:
        world.renewal.trigger(world.now, "driver-registered", restart=True)
    world.run(1000)
    assert len(world.live) == 1
    assert world.present == world.live
    assert world.settle() is None


def test_ready_takes_registration_and_connection() -> None:
    renewal = Renewal(Periods())
    renewal.published("a", 1.0)
    said = [(renewal.registered, renewal.ready)]
    renewal.notified("a", True, 2.0)
    said.append((renewal.registered, renewal.ready))
    renewal.connected("a", 2.1)
    said.append((renewal.registered, renewal.ready))
    renewal.notified("a", False, 3.0)
    said.append((renewal.registered, renewal.ready))
    assert said == [(False, False), (True, False), (True, True), (False, False)]
