"""The real registry and proxy between the stand-in kubelet and a scripted driver, on sockets."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable
from typing import cast

from agent.aio import Tasks
from agent.core.classify import RuleSet
from agent.core.held import HeldVerdicts
from agent.core.model import ClaimRef
from agent.errors import TransportError
from agent.node.link import Link
from agent.node.registry import Registry
from agent.observe.metrics import Metrics
from agent.observe.tracing import NullTracing
from agent.proxy.context import Context, LogOnly
from agent.proxy.flights import Flights
from agent.proxy.proxy import Proxy
from agent.settings.model import (
    AgentConfig,
    Drivers,
    Duration,
    NodeIdentity,
    Overlay,
    Registration,
    Retry,
)
from tests.support.ledger import Ask, Ledger
from tests.support.modelnode import DRIVER, METHODS, ByWord, body_of
from tests.support.node_standins import Kubelet
from tests.support.realparts import Noted, ToldDriver, patient_unary
from tests.support.waiting import until

SLACK = 0.5  # seconds that either side may learn of something later than the other
BEAT = 0.02  # seconds between two looks at the clock
QUICK = AgentConfig(
    registration=Registration(
        overlay=Overlay(
            get_info_delay=Duration(0.0),
            renew_delay=Duration(0.02),
            renew_again=[Duration(0.05)],
            retire_after=Duration(0.05),
        )
    ),
    drivers=Drivers(driver_absence_hold=Duration(0.3), reconnect=Duration(0.02)),
    retry=Retry(
        initial_delay=Duration(0.01), max_delay=Duration(0.05), margin=Duration(0.1), jitter=0.0
    ),
)


class RealNode:
    """One driver, one agent, one kubelet; `start` and `stop` are coroutines."""

    def __init__(self, *, watched: str = "") -> None:
        loop = asyncio.get_running_loop()
        self._folder = tempfile.TemporaryDirectory(prefix="dra")  # short: paths end at 107 bytes
        self.root = self._folder.name
        for name in ("plugins_registry", "plugins", f"plugins/{DRIVER}"):
            os.makedirs(os.path.join(self.root, name))
        self.ledger = Ledger(loop.time, slack=self.slack, watched=watched)
        self.kubelet = Kubelet(self.root, tick=0.02)
        self.driver = self._new_driver()
        self.calls = Tasks(lambda _, error: self.crashes.append(error))
        self.crashes: list[BaseException] = []
        self.arrived: set[bytes] = set()  # bodies of kubelet's calls that the agent has read
        self.running: dict[Ask, asyncio.Task[None]] = {}
        self.agent: Tasks | None = None
        self._stood_still = 0.0  # seconds in which nothing ran here, up to the last beat
        self._beat_due = loop.time()
        self._loop = loop
        self._made = 0

    def _new_driver(self) -> ToldDriver:
        return ToldDriver(self.root, DRIVER, ledger=self.ledger)

    async def start(self) -> None:
        self._beat_due = self._loop.time()
        self.calls.start("beat", self._beat())
        self.kubelet.start()
        await self.driver.start()
        await self.start_agent()
        await until(lambda: self.kubelet.through_agent(DRIVER))

    async def _beat(self) -> None:
        while True:
            self._beat_due = self._loop.time() + BEAT
            await asyncio.sleep(BEAT)
            self._stood_still += self._overdue

    @property
    def _overdue(self) -> float:
        return max(0.0, self._loop.time() - self._beat_due)

    def slack(self) -> float:
        """What either side may be late: SLACK, and what a busy machine, or hypothesis between two
        steps, took from both. A machine that stood still proves nothing.
        """
        return SLACK + self._stood_still + self._overdue

    async def start_agent(self) -> None:
        """A new agent that knows nothing of an earlier one."""
        self.agent = Tasks(lambda _, error: self.crashes.append(error))
        calls = Tasks(lambda _, error: self.crashes.append(error))
        self.ctx = Context(
            settings=QUICK,
            rules=cast(RuleSet, ByWord()),
            metrics=Metrics(),
            tracing=NullTracing(),
            tasks=calls,
            flights=Flights(calls),
            held=HeldVerdicts(60.0, 60.0),
            random=lambda: 0.5,
            wall=lambda: 1000.0,
            sink=LogOnly(),
        )
        self.proxy = Proxy(self.ctx, self._links)
        self.registry = Registry(
            settings=QUICK,
            identity=NodeIdentity(node_name="node-a", kubelet_root=self.root),
            handlers=Noted(self.proxy, self.arrived),
            on_trigger=lambda driver, reason: self.proxy.trigger(driver),
        )
        self.agent.start("agent", self.registry.run())

    def _links(self) -> Iterable[Link]:
        return self.registry.links.values()

    async def kill_agent(self) -> None:
        """All at once, as far as one process can: kubelet's calls through it end."""
        for ask in self.ledger.waiting():
            self.ledger.cut(ask, "the agent died")
        assert self.agent is not None
        await self.agent.close()
        await self.ctx.tasks.close()

    async def restart_driver(self, *, kill: bool) -> None:
        """By SIGKILL or in order; its calls end without an answer."""
        await (self.driver.kill() if kill else self.driver.stop())
        given, self.driver = self.driver.given, self._new_driver()
        self.driver.given = given
        await self.driver.start()

    def renew(self) -> None:
        """Have a new generation made."""
        self.registry.renew(DRIVER, "bypass")

    def call(self, op: str, claims: tuple[ClaimRef, ...], seconds: float) -> None:
        """Kubelet calls whoever it takes for the newest."""
        plugin = self.kubelet.newest(DRIVER)
        if plugin is None or not plugin.channel.connected or not plugin.ours:
            return
        self._made += 1
        body = body_of(claims, self._made)
        ask = self.ledger.ask(op, body, asyncio.get_running_loop().time() + seconds)
        channel = plugin.channel

        async def run() -> None:
            try:
                answer = await patient_unary(channel, METHODS[op], body, seconds)
            except TransportError as error:
                if body not in self.arrived:
                    # Written while the agent let go of the connection: nobody can tell kubelet.
                    self.ledger.cut(ask, "the agent never read it")
                if not ask.cut:
                    text = f"{op} {ask.uids} through {plugin.path}: {error}"
                    self.ledger.broken("renewal", text)
                return
            self.ledger.answered(ask, answer)

        self.running[ask] = self.calls.start(op, run())

    def cancel(self, ask: Ask) -> None:
        """Kubelet gives up."""
        self.ledger.cut(ask, "cancelled")
        self.running[ask].cancel()

    async def finish(self) -> None:
        """The driver answers all; every call of kubelet must end."""
        end = self._loop.time() + 8.0
        while self.ledger.waiting() and not self.crashes:
            if self._loop.time() > end + self.slack():
                break
            for at in range(len(self.driver.pending)):
                self.driver.answer(at)
            await asyncio.sleep(0.01)
        self.check()
        for ask in self.ledger.waiting():
            self.ledger.broken("in time", f"{ask.op} {ask.uids} is never answered")

    def check(self) -> None:
        """Raise what went wrong in a task."""
        for error in self.crashes:
            raise error
        self.ledger.check_open()

    async def stop(self) -> None:
        await self.calls.close()
        if self.agent is not None:
            await self.agent.close()
            await self.ctx.tasks.close()
        await self.kubelet.stop()
        await self.driver.stop()
        self._folder.cleanup()
