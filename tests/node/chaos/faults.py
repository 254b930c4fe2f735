"""What goes wrong. Each fault begins at once and says when and how it ends."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..harness.agent import Agent
from ..harness.cluster import Node
from ..harness.driver import Driver
from ..harness.forward import Forwarder
from ..harness.process import Process

Heal = Callable[[], None]
# In every run, however short.
CERTAIN = ("driver SIGKILL", "agent hangs", "kubelet SIGKILL", "disk full", "registry full")
# In a long run as well, so that the kubelet takes devices away that nobody serves.
AWAY = "driver away"
LOSS = "driver away so long that its devices are gone"
GONE = 50.0  # seconds: the agent's hold, the kubelet's 30 s, and some
FILLED = ".full-"  # the kubelet leaves names with a dot alone
# The DaemonSet's liveness probe.
PERIOD, TIMEOUT, THRESHOLD, GRACE = 3.0, 2.0, 3, 1.0


class Liveness:
    """Ends a hung agent as the kubelet's probe would, and starts it again."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.ended: list[float] = []
        self.lock = threading.RLock()  # held by whoever ends or starts the agent
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(30)

    def _run(self) -> None:
        failures = 0
        while not self._end.wait(PERIOD):
            with self.lock:
                if not self.agent.process.running:
                    failures = 0
                    continue
                pid = self.agent.process.pid
            failures = 0 if self._alive() else failures + 1
            if failures < THRESHOLD:
                continue
            failures = 0
            with self.lock:
                if self.agent.process.pid == pid:  # nobody else has started it anew
                    self.ended.append(time.monotonic())
                    self.agent.process.signal(signal.SIGTERM)
                    time.sleep(GRACE)
                    self.agent.kill()
                    self.agent.start(ready=False)

    def _alive(self) -> bool:
        try:
            return self.agent.http("/livez", timeout=TIMEOUT)[0] == 200
        except OSError:
            return False


@dataclass
class World:
    """Everything that can be hurt. `busy` names what is being hurt now."""

    node: Node
    agent: Agent
    liveness: Liveness
    forwarder: Forwarder
    drivers: list[tuple[Driver, Driver]]  # served by the agent; its twin that is not
    endpoints: Path  # the agent's folder, a small disk of its own
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    busy: set[str] = field(default_factory=set)
    due: list[tuple[float, set[str], Heal]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    certain: tuple[str, ...] = CERTAIN

    @property
    def intake(self) -> bool:
        """Drivers then register in the agent's folder."""
        return self.drivers[0][0].registry.is_relative_to(self.endpoints)

    def hurt(self) -> None:
        """One fault, unless what it is about is being hurt already: first the certain ones."""
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        name = self.certain[0] if self.certain else self.rng.choices(names, weights)[0]
        words, begin = FAULTS[name]
        targets = {*words.split(), *(("driver",) if name == "disk full" and self.intake else ())}
        if targets & self.busy:
            return
        self.certain = self.certain[1:]
        seconds, heal = begin(self)
        self.counts[name] += 1
        self.started.append(f"{time.strftime('%H:%M:%S')} {name} {seconds:.1f} s")
        self.busy |= targets
        self.due.append((time.monotonic() + seconds, targets, heal))

    def heal(self, *, all_of_it: bool = False) -> None:
        """Ends the faults whose time is over."""
        now = time.monotonic()
        over = [one for one in self.due if all_of_it or one[0] <= now]
        self.due = [one for one in self.due if one not in over]
        for _, targets, heal in over:
            heal()
            self.busy -= targets


def _driver_ends(world: World, number: signal.Signals) -> tuple[float, Heal]:
    """The twin has the same fate at the same time, so that its devices can be compared."""
    pair = world.rng.choice(world.drivers)

    def back() -> None:
        for driver in pair:
            driver.start(registered=False)

    for driver in pair:
        if number == signal.SIGKILL:
            driver.kill()
        else:
            driver.stop()
    return world.rng.uniform(0.3, 6), back


def _driver_away(world: World) -> tuple[float, Heal]:
    """Both twins; the kubelet lives on meanwhile, for its timer to end."""
    _, start = _driver_ends(world, signal.SIGKILL)
    began = time.monotonic()

    def back() -> None:
        world.counts[LOSS] += time.monotonic() >= began + GONE
        start()

    return GONE, back


def _paused(world: World, *processes: Process) -> tuple[float, Heal]:
    for process in processes:
        process.signal(signal.SIGSTOP)

    def back() -> None:
        for process in processes:
            process.signal(signal.SIGCONT)

    return world.rng.uniform(1, 5), back


def _driver_killed(world: World) -> tuple[float, Heal]:
    return _driver_ends(world, signal.SIGKILL)


def _driver_terminated(world: World) -> tuple[float, Heal]:
    return _driver_ends(world, signal.SIGTERM)


def _driver_paused(world: World) -> tuple[float, Heal]:
    return _paused(world, *(driver.process for driver in world.rng.choice(world.drivers)))


def _agent_back(world: World) -> Heal:
    def back() -> None:
        with world.liveness.lock:
            if not world.agent.process.running:
                world.agent.start(ready=False)

    return back


def _agent_killed(world: World) -> tuple[float, Heal]:
    with world.liveness.lock:
        world.agent.kill()
    return world.rng.uniform(0, 4), _agent_back(world)


def _agent_terminated(world: World) -> tuple[float, Heal]:
    """The pod's own end: it has 30 s, of which it needs some ten."""
    with world.liveness.lock:
        code = world.agent.stop(30)
    # -SIGTERM: it had not come so far as to handle signals, or to serve anything.
    world.counts["agent ended by SIGKILL after SIGTERM"] += code == -signal.SIGKILL
    return world.rng.uniform(0, 2), _agent_back(world)


def _agent_paused(world: World) -> tuple[float, Heal]:
    return _paused(world, world.agent.process)


def _agent_hangs(world: World) -> tuple[float, Heal]:
    """Until the liveness probe ends it: after 6 to 9 s and the grace."""
    world.agent.process.signal(signal.SIGSTOP)
    ended, limit = len(world.liveness.ended), PERIOD * (THRESHOLD + 1) + TIMEOUT * THRESHOLD + 5

    def back() -> None:
        end = time.monotonic() + limit
        while len(world.liveness.ended) == ended and time.monotonic() < end:
            time.sleep(0.1)
        world.counts["hung agent not ended by its probe"] += len(world.liveness.ended) == ended
        _agent_back(world)()

    return PERIOD * THRESHOLD, back


def _kubelet_killed(world: World) -> tuple[float, Heal]:
    world.node.kill_kubelet()
    return world.rng.uniform(0, 4), world.node.start_kubelet


def _kubelet_terminated(world: World) -> tuple[float, Heal]:
    world.node.stop_kubelet()
    return world.rng.uniform(0, 4), world.node.start_kubelet


def _kubelet_paused(world: World) -> tuple[float, Heal]:
    return _paused(world, world.node.kubelet)


def _api_cut(world: World) -> tuple[float, Heal]:
    world.forwarder.stop()
    return world.rng.uniform(2, 10), world.forwarder.start


def _api_frozen(world: World) -> tuple[float, Heal]:
    world.forwarder.freeze()
    return world.rng.uniform(2, 10), world.forwarder.thaw


def _socket_deleted(world: World) -> tuple[float, Heal]:
    """One of the agent's own, in the registry or an endpoint."""
    found = [*world.node.registry.glob("dra-agent~*.sock"), *world.endpoints.glob("*.sock")]
    if found:
        with contextlib.suppress(FileNotFoundError):
            world.rng.choice(sorted(found)).unlink()
    return 1, lambda: None


def _disk_full(world: World) -> tuple[float, Heal]:
    """No file can be made where the endpoints are."""
    return world.rng.uniform(2, 12), _fill(world.endpoints)


def _registry_full(world: World) -> tuple[float, Heal]:
    """The same where the kubelet looks for drivers, while no driver has to start."""
    return world.rng.uniform(2, 12), _fill(world.node.registry)


def _fill(folder: Path) -> Heal:
    made: list[Path] = []
    try:
        for number in range(10_000):
            file = folder / f"{FILLED}{number}"
            file.touch()
            made.append(file)
    except OSError:
        pass
    else:
        raise AssertionError(f"{folder} takes any number of files")

    def back() -> None:
        for file in made:
            file.unlink(missing_ok=True)

    return back


FAULTS: dict[str, tuple[str, Callable[[World], tuple[float, Heal]]]] = {
    "driver SIGKILL": ("driver", _driver_killed),
    "driver SIGTERM": ("driver", _driver_terminated),
    "driver SIGSTOP": ("driver", _driver_paused),
    AWAY: ("driver kubelet", _driver_away),
    "agent SIGKILL": ("agent", _agent_killed),
    "agent SIGTERM": ("agent", _agent_terminated),
    "agent SIGSTOP": ("agent", _agent_paused),
    "agent hangs": ("agent", _agent_hangs),
    "kubelet SIGKILL": ("kubelet", _kubelet_killed),
    "kubelet SIGTERM": ("kubelet", _kubelet_terminated),
    "kubelet SIGSTOP": ("kubelet", _kubelet_paused),
    "API cut": ("api", _api_cut),
    "API frozen": ("api", _api_frozen),
    "socket deleted": ("socket", _socket_deleted),
    "disk full": ("disk", _disk_full),
    "registry full": ("driver", _registry_full),
}
# The kubelet takes all devices away when it starts, for half a minute: seldom.
WEIGHTS = {
    "driver SIGKILL": 4,
    "driver SIGTERM": 3,
    "driver SIGSTOP": 3,
    "agent SIGKILL": 4,
    "agent SIGTERM": 2,
    "agent SIGSTOP": 3,
    "agent hangs": 1,
    "kubelet SIGKILL": 1,
    "kubelet SIGTERM": 1,
    "kubelet SIGSTOP": 2,
    "API cut": 2,
    "API frozen": 2,
    "socket deleted": 3,
    "disk full": 2,
    "registry full": 2,
}
# Only where it is certain: it is long.
assert WEIGHTS.keys() == FAULTS.keys() - {AWAY}
