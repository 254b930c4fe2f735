"""The same model on real sockets: kubelet's and the driver's bytes, restarts, renewals."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

import uvloop
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from agent.core.model import ClaimRef
from tests.model.machine import claims, index
from tests.support.ledger import PREPARE, UNPREPARE
from tests.support.realnode import RealNode

seconds = st.sampled_from([4.0, 4.0, 4.0, 0.4])
words = st.sampled_from(["", "", "transient busy", "ambiguous odd"])


class Sockets(RuleBasedStateMachine):
    """Each step takes a few milliseconds of real time."""

    node: RealNode
    watched = ""
    seen: ClassVar[list[str]] = []  # rules that were broken

    def __init__(self) -> None:
        super().__init__()
        self.loop = uvloop.new_event_loop()

    def _run(self, coro: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(coro)

    def _then(self, pause: float = 0.003) -> None:
        self._run(asyncio.sleep(pause))
        self.node.check()

    @initialize()
    def start(self) -> None:
        async def begin() -> None:
            self.node = RealNode(watched=self.watched)
            await self.node.start()

        self._run(begin())

    @rule(wanted=claims, limit=seconds)
    def prepare(self, wanted: tuple[ClaimRef, ...], limit: float) -> None:
        self._run(self._call(PREPARE, wanted, limit))

    @rule(wanted=claims, limit=seconds)
    def unprepare(self, wanted: tuple[ClaimRef, ...], limit: float) -> None:
        self._run(self._call(UNPREPARE, wanted, limit))

    async def _call(self, op: str, wanted: tuple[ClaimRef, ...], limit: float) -> None:
        self.node.call(op, wanted, limit)
        await asyncio.sleep(0.003)

    @rule(at=index)
    def kubelet_gives_up(self, at: int) -> None:
        waiting = self.node.ledger.waiting()
        if waiting:
            self.node.cancel(waiting[at % len(waiting)])
        self._then()

    @rule(at=index, word=words)
    def driver_answers(self, at: int, word: str) -> None:
        if self.node.driver.pending:
            self.node.driver.answer(at, word)
        self._then()

    @rule(at=index)
    def driver_refuses(self, at: int) -> None:
        if self.node.driver.pending:
            self.node.driver.refuse(at, "transient busy")
        self._then()

    @rule(pause=st.sampled_from([0.01, 0.06, 0.2]))
    def time_passes(self, pause: float) -> None:
        self._then(pause)

    @rule()
    def renewal(self) -> None:
        self.node.renew()
        self._then(0.08)

    @rule(kill=st.booleans())
    def driver_restarts(self, kill: bool) -> None:
        self._run(self.node.restart_driver(kill=kill))
        self._then()

    @rule()
    def agent_restarts(self) -> None:
        async def again() -> None:
            await self.node.kill_agent()
            await self.node.start_agent()

        self._run(again())
        self._then(0.1)

    @rule()
    def kubelet_restarts(self) -> None:
        for ask in self.node.ledger.waiting():
            self.node.cancel(ask)
        self._run(self.node.kubelet.restart())
        self._then(0.1)

    def teardown(self) -> None:
        if not hasattr(self, "node"):
            self.loop.close()
            return
        try:
            self._run(self.node.finish())
        finally:
            if self.node.ledger.found is not None:
                self.seen.append(self.node.ledger.found.rule)
            self._run(self.node.stop())
            self.loop.close()
