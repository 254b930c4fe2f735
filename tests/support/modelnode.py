"""The proxy between a kubelet and a driver that both do only what a test tells them to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from agent import names
from agent.aio import Tasks
from agent.core.classify import RuleSet
from agent.core.held import HeldVerdicts
from agent.core.model import (
    CallFact,
    ClaimRef,
    Culprit,
    Failure,
    Kind,
    Metadata,
    Status,
    Surface,
    Transport,
    Verdict,
)
from agent.errors import TransportError
from agent.node.link import Link
from agent.observe.metrics import Metrics
from agent.observe.tracing import NullTracing
from agent.pb import dra_v1_pb2 as pb
from agent.proxy.context import Context, LiveCall
from agent.proxy.flights import Flights
from agent.proxy.proxy import Proxy
from agent.rpc.call import UNAVAILABLE, Answer, Request
from agent.settings.model import AgentConfig
from tests.support.ledger import PREPARE, UNPREPARE, Ask, Ledger, Sent
from tests.support.virtual import VirtualLoop

DRIVER = "gpu.example.com"
METHODS = {
    PREPARE: f"/{names.SERVICE_V1}/{names.PREPARE}",
    UNPREPARE: f"/{names.SERVICE_V1}/{names.UNPREPARE}",
}
CLAIMS = tuple(
    ClaimRef("ns", f"00000000-0000-4000-8000-00000000000{letter}", f"claim-{letter}")
    for letter in "abc"
)


def body_of(claims: tuple[ClaimRef, ...], mark: int) -> bytes:
    """Kubelet's request, unlike every other one by an unknown field."""
    message = pb.NodePrepareResourcesRequest()
    for claim in claims:
        message.claims.add(namespace=claim.namespace, uid=claim.uid, name=claim.name)
    number = mark.to_bytes(4, "little")
    return message.SerializeToString() + b"\x7d" + number  # field 15, fixed32


class ByWord:
    """The first word of an error is the verdict's kind; transport faults are transient."""

    def classify(self, failure: Failure) -> Verdict:
        word = failure.text.partition(" ")[0]
        kind = Kind(word) if word in list(Kind) else Kind.AMBIGUOUS
        if failure.surface is Surface.TRANSPORT:
            kind = Kind.TRANSIENT
        culprit = Culprit.PARAMETERS if kind is Kind.PERMANENT else Culprit.DRIVER
        return Verdict(kind, culprit, f"rule-{kind}")


class InOrder(set[LiveCall]):
    """A set that is walked in the order of insertion, so that a run can be repeated."""

    def __init__(self) -> None:
        super().__init__()
        self._order: dict[LiveCall, None] = {}

    def add(self, element: LiveCall) -> None:
        super().add(element)
        self._order[element] = None

    def discard(self, element: object) -> None:
        super().discard(element)
        self._order.pop(cast(LiveCall, element), None)

    def __iter__(self) -> Iterator[LiveCall]:
        return iter(list(self._order))


@dataclass(eq=False)
class Pending:
    """A call that the driver has and has not answered."""

    sent: Sent
    answer: asyncio.Future[Answer]


@dataclass
class ModelLink:
    """A driver that answers when it is told to."""

    ledger: Ledger
    name: str = DRIVER
    path: str = "/driver.sock"
    away_since: float | None = None
    registered: bool = True
    pending: list[Pending] = field(default_factory=list)
    back: asyncio.Event = field(default_factory=asyncio.Event)
    given: int = 0

    def pick(self, service: str) -> ModelLink | None:
        assert service == names.SERVICE_V1
        return None if self.away_since is not None else self

    async def unary(
        self, method: str, body: bytes, *, metadata: Metadata = (), timeout: float
    ) -> Answer:
        if timeout <= 0:
            raise TransportError(Transport.DEADLINE, "no time is left", sent=False)
        op = PREPARE if method == METHODS[PREPARE] else UNPREPARE
        sent = self.ledger.reached(op, body)
        mine = Pending(sent, asyncio.get_running_loop().create_future())
        self.pending.append(mine)
        try:
            async with asyncio.timeout(timeout):
                return await mine.answer
        except TimeoutError as error:
            raise TransportError(Transport.DEADLINE, "no answer in time", sent=True) from error
        finally:
            self.pending.remove(mine)
            self.ledger.left(sent)

    async def wait_connected(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                while self.away_since is not None:
                    await self.back.wait()
        except TimeoutError:
            return False
        return True

    def results(self, sent: Sent, errors: Mapping[str, str]) -> pb.NodePrepareResourcesResponse:
        """The driver's response: an error for some claims, a device of its own for the others."""
        message = pb.NodePrepareResourcesResponse()
        for uid in sent.uids:
            if errors.get(uid):
                message.claims[uid].error = errors[uid]
                continue
            self.given += 1
            sent.granted[uid] = f"dev-{self.given}"
            message.claims[uid].devices.add(pool_name="node", device_name=sent.granted[uid])
        return message

    def lose(self, now: float) -> None:
        """The driver is killed."""
        self.away_since = now
        self.back.clear()
        for one in list(self.pending):
            if not one.answer.done():
                error = TransportError(Transport.RESET, "connection lost", sent=True)
                one.answer.set_exception(error)

    def return_(self) -> None:
        """It is back."""
        self.away_since = None
        self.back.set()


class ModelNode:
    """One agent at a time; everything runs only when the loop is driven."""

    def __init__(self, settings: AgentConfig, *, seed: int = 0, watched: str = "") -> None:
        self.loop = VirtualLoop()
        self.crashes: list[BaseException] = []
        self.ledger = Ledger(self.loop.time, watched=watched)
        self.link = ModelLink(self.ledger)
        self.kubelet = Tasks(lambda _, error: self.crashes.append(error))
        self.running: dict[Ask, asyncio.Task[None]] = {}
        self._settings = settings
        self._random = random.Random(seed)
        self._made = 0
        self.start_agent()

    def start_agent(self) -> None:
        """A new agent, which remembers nothing."""
        self.tasks = Tasks(lambda _, error: self.crashes.append(error))
        self.ctx = Context(
            settings=self._settings,
            rules=cast(RuleSet, ByWord()),
            metrics=Metrics(),
            tracing=NullTracing(),
            tasks=self.tasks,
            flights=Flights(self.tasks),
            held=HeldVerdicts(self._settings.outcome.hold, self._settings.outcome.hold_max),
            random=self._random.random,
            wall=lambda: 1000.0 + self.loop.time(),
            sink=self,
            live=InOrder(),
        )
        self.proxy = Proxy(self.ctx, lambda: [cast(Link, self.link)])

    def submit(self, fact: CallFact) -> None:
        assert fact.driver == DRIVER

    def call(self, op: str, claims: tuple[ClaimRef, ...], deadline: float) -> Ask:
        """Kubelet calls; it waits `deadline` seconds at most."""
        self._made += 1
        body = body_of(claims, self._made)
        until = self.loop.time() + deadline
        ask = self.ledger.ask(op, body, until)
        request = Request(METHODS[op], (("x-from", "kubelet"),), until, body)

        async def begin() -> None:
            self.running[ask] = self.kubelet.start(op, self._run(ask, request))

        self.loop.run_until_complete(begin())
        self.settle()
        return ask

    async def _run(self, ask: Ask, request: Request) -> None:
        handler = self.proxy.unary(cast(Link, self.link))(request.method)
        assert handler is not None
        try:
            answer = await handler(request)
        except asyncio.CancelledError:
            raise
        self.ledger.answered(ask, answer)

    def cancel(self, ask: Ask, why: str = "cancelled") -> None:
        """Kubelet gives up: RST_STREAM, or the end of its connection."""
        self.ledger.cut(ask, why)
        self.running.pop(ask).cancel()
        self.settle()

    def kill_agent(self) -> None:
        """SIGKILL: kubelet's calls and the driver's end at once; then another agent starts."""
        for ask in self.ledger.waiting():
            self.ledger.cut(ask, "the agent died")
            self.running.pop(ask).cancel()
        self.loop.run_until_complete(self.tasks.close())
        self.settle()
        self.start_agent()

    def resolve(self, pending: Pending, answer: Answer | Exception) -> None:
        """The driver answers, or its connection ends."""
        if isinstance(answer, Answer):
            pending.answer.set_result(answer)
        else:
            pending.answer.set_exception(answer)
        self.settle()

    def settle(self) -> None:
        """Let everything happen that is due."""
        self.loop.settle()
        self._raise()

    def pass_time(self, seconds: float) -> None:
        """Let time go by."""
        self.loop.pass_time(seconds)
        self.settle()

    def _raise(self) -> None:
        for task in [t for t in self.running.values() if t.done() and not t.cancelled()]:
            if (error := task.exception()) is not None:
                raise error
        if self.crashes:
            raise self.crashes[0]

    def close(self) -> None:
        """End all tasks and the loop."""
        self.loop.run_until_complete(self.kubelet.close())
        self.loop.run_until_complete(self.tasks.close())
        self.loop.close()


def unavailable(text: str) -> Answer:
    """A whole-call error of the driver."""
    return Answer(None, Status(UNAVAILABLE, text))
