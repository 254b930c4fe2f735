"""One driver name as the agent serves it: its instances, and its generations towards kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from agent.aio import Tasks
from agent.core.instances import Candidate, choose
from agent.core.renewal import Periods, Publish, Renewal, Sleep, Stop, Unlink
from agent.errors import UserError
from agent.node.generation import Generation
from agent.node.hooks import Hooks, Told
from agent.node.instance import Instance, State
from agent.rpc.channel import Channel

log = logging.getLogger(__name__)

# A socket that could not be made is tried again after this, in seconds.
_PUBLISH_AGAIN = 5.0


class Link:
    """Chooses the instance for each call and keeps the agent the newest for kubelet."""

    def __init__(
        self,
        name: str,
        *,
        periods: Periods,
        make: Callable[[Link], Generation],
        hooks: Hooks,
        on_idle: Callable[[Link], None] = lambda link: None,
    ) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self.renewal = Renewal(periods, away_since=self._loop.time())
        self.instances: list[Instance] = []
        self.generations: dict[str, Generation] = {}
        self._make = make
        self._hooks = hooks
        self._on_idle = on_idle
        self._told = Told()
        self._kicked = asyncio.Event()
        self._present = asyncio.Event()
        self._tasks = Tasks(hooks.on_crash)

    def start(self) -> None:
        """Begin to publish and retire."""
        self._tasks.start(f"link {self.name}", self._run())

    # For the proxy

    @property
    def away_since(self) -> float | None:
        """loop.time() since when no instance is connected nor can be; None: not away."""
        return self.renewal.away_since

    @property
    def registered(self) -> bool:
        """True while kubelet has a generation of ours that listens."""
        return self.renewal.registered

    def pick(self, service: str) -> Channel | None:
        """Connection for the next attempt, chosen as kubelet would; None: nobody fit.

        `service` is the gRPC service kubelet chose, such as "k8s...v1.DRAPlugin".
        """
        fit = choose(
            (
                Candidate(at, one.appeared, one.connected, one.info.versions)
                for at, one in enumerate(self.instances)
                if one.info is not None
            ),
            service,
        )
        return self.instances[fit.key].channel if fit else None

    async def wait_connected(self, timeout: float) -> bool:
        """Wait until an instance is connected, at most `timeout` seconds. True when one is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                # It may be gone again when this task runs: a socket that is made anew.
                while not self._present.is_set():
                    await self._present.wait()
        return self._present.is_set()

    def renew(self, reason: str, *, restart: bool = False) -> None:
        """Trigger a renewal (evidence of a bypass: a prepare that did not pass us)."""
        self.renewal.trigger(self._loop.time(), reason, restart=restart)
        self._triggered(reason)

    def look(self) -> None:
        """Let generations go whose registration socket somebody has removed; register again where
        the newest is among them."""
        removed = [one for one in self.generations.values() if one.removed]
        for one in removed:
            self.renewal.removed(one.name)
        if removed:
            if removed[-1] is next(reversed(self.generations.values())):
                self.renewal.trigger(self._loop.time(), "socket-removed", restart=False)
            self.kick()

    def describe(self) -> dict[str, Any]:
        """State for people, as JSON types; times in seconds from now."""
        now = self._loop.time()
        away = self.away_since
        return {
            "driver": self.name,
            "registered": self.registered,
            "awayFor": None if away is None else round(now - away, 3),
            "withdrawn": self.renewal.withdrawn,
            "renewalsIn": [round(at - now, 3) for at in self.renewal.due],
            "renewalDelayed": self.renewal.delayed,
            "instances": [one.describe() for one in self.instances],
            "generations": [one.describe() for one in self.generations.values()],
        }

    @property
    def endpoints(self) -> list[str]:
        """Paths of the endpoints that listen, the newest last (for the liveness self-dial)."""
        return [one.sockets.endpoint for one in self.generations.values() if not one.stopped]

    # For the registry

    def add(self, instance: Instance) -> None:
        """An instance of this driver has told who it is."""
        self.instances.append(instance)
        if not instance.at_start:
            self.renew("driver-registered", restart=True)
        elif self.generations:
            self.renew("start")
        else:
            self.renewal.start(self._loop.time())
        self.changed()

    def remove(self, instance: Instance) -> None:
        """An instance's registration is gone."""
        if instance in self.instances:
            self.instances.remove(instance)
        self.changed()

    def changed(self) -> None:
        """An instance connected or was lost."""
        now = self._loop.time()
        if any(one.connected for one in self.instances):
            self._present.set()
            if self.renewal.came_back(now):
                self._triggered("driver-back")
        else:
            self._present.clear()
            if all(one.state is State.DOWN for one in self.instances):
                self.renewal.went_away(now)
        self.kick()

    def on_connect(self, generation: str) -> None:
        """Somebody connected to a generation's endpoint."""
        self.renewal.connected(generation, self._loop.time())
        # Later, for the liveness probe's own connection is gone then and counts for nothing.
        self._loop.call_later(self.renewal.periods.recheck, self.kick)

    def on_notify(self, generation: str, registered: bool) -> None:
        """Kubelet told a generation how its registration went."""
        if self.renewal.notified(generation, registered, self._loop.time()):
            self._triggered("kubelet-restart")
        self.kick()

    @property
    def newest(self) -> Instance | None:
        """The most recently appeared instance, a connected one before all others."""
        return max(self.instances, key=lambda one: (one.connected, one.appeared), default=None)

    def kick(self) -> None:
        """Have the next step decided anew."""
        self._kicked.set()
        self._tell()

    async def drain(self, limit: float) -> None:
        """Retire each generation when it has no call in flight, or after `limit` seconds."""
        await self._tasks.close()
        until = self._loop.time() + limit
        drains = [
            self._tasks.start(f"drain {self.name} {one.name}", one.drain(until))
            for one in self.generations.values()
        ]
        await asyncio.gather(*drains, return_exceptions=True)  # each is logged by its owner
        self.generations.clear()

    async def close(self) -> None:
        """End at once; the instances are the registry's."""
        await self._tasks.close()
        for generation in list(self.generations.values()):
            generation.stop()
            await generation.unlink()
        self.generations.clear()

    async def _run(self) -> None:
        while True:
            self._kicked.clear()
            views = {name: one.view() for name, one in self.generations.items()}
            now = self._loop.time()
            step = self.renewal.next(now, views, driver_socket=bool(self.instances))
            match step:
                case Publish():
                    await self._publish(step.reason)
                case Stop():
                    log.info("%s: generation %s: %s", self.name, step.generation, step.reason)
                    self.generations[step.generation].stop()
                case Unlink():
                    await self.generations.pop(step.generation).unlink()
                case Sleep(until=until):
                    if not self.instances and not self.generations:
                        self._on_idle(self)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(until):
                            await self._kicked.wait()
            self._tell()

    async def _publish(self, reason: str) -> None:
        generation = self._make(self)
        try:
            await generation.publish()
        except (UserError, OSError) as error:
            log.error("%s: cannot register with kubelet: %s", self.name, error)
            self.renewal.retry_at(self._loop.time() + _PUBLISH_AGAIN)
            return
        self.generations[generation.name] = generation
        self.renewal.published(generation.name, self._loop.time())
        for instance in self.instances:
            instance.settled = True
        log.info("%s: generation %s published: %s", self.name, generation.name, reason)
        self._hooks.on_generation(self.name, reason)

    def _triggered(self, reason: str) -> None:
        self._hooks.on_trigger(self.name, reason)
        self.kick()

    def _tell(self) -> None:
        self._told.tell(self._hooks, self, up=self._present.is_set())
