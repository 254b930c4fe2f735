"""A scripted link for tests of the proxy: the driver is a list of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import cast

from agent import names
from agent.aio import Tasks
from agent.core import wire
from agent.core.classify import RuleSet
from agent.core.held import HeldVerdicts
from agent.core.model import CallFact, ClaimRef, Culprit, Failure, Kind, Metadata, Verdict
from agent.node.link import Link
from agent.observe.metrics import Metrics
from agent.observe.tracing import NullTracing
from agent.pb import dra_v1_pb2 as pb
from agent.proxy.context import Context
from agent.proxy.flights import Flights
from agent.proxy.proxy import Proxy
from agent.rpc.call import Answer, Request
from agent.settings.model import AgentConfig, Duration, Retry

DRIVER = "gpu.example.com"
PREPARE = f"/{names.SERVICE_V1}/{names.PREPARE}"
UNPREPARE = f"/{names.SERVICE_V1}/{names.UNPREPARE}"
A = ClaimRef("ns", "00000000-0000-4000-8000-00000000000a", "claim-a")
B = ClaimRef("ns", "00000000-0000-4000-8000-00000000000b", "claim-b")
FAST = AgentConfig(retry=Retry(initial_delay=Duration(0.01), max_delay=Duration(0.02), jitter=0.0))

Step = Answer | Exception | Callable[[], Awaitable[Answer]]


def request(*claims: ClaimRef, method: str = PREPARE, deadline: float = 45.0) -> Request:
    """Kubelet's call for some claims."""
    message = pb.NodePrepareResourcesRequest()
    for claim in claims:
        message.claims.add(namespace=claim.namespace, uid=claim.uid, name=claim.name)
    at = asyncio.get_running_loop().time() + deadline
    return Request(method, (("x-from", "kubelet"),), at, message.SerializeToString())


def prepared(*claims: ClaimRef) -> Answer:
    """A driver's answer: one device per claim."""
    message = pb.NodePrepareResourcesResponse()
    for claim in claims:
        message.claims[claim.uid].devices.add(pool_name="node-a", device_name=f"{claim.name}-dev")
    return Answer(message.SerializeToString(), trailers=(("x-driver", "yes"),))


def refused(claim: ClaimRef, text: str, *more: ClaimRef, permanent: bool = False) -> Answer:
    """A driver's answer: an error for one claim, the others prepared."""
    message = pb.NodePrepareResourcesResponse()
    message.claims[claim.uid].error = text
    message.claims[claim.uid].permanent_error = permanent
    for other in more:
        message.claims[other.uid].devices.add(device_name=f"{other.name}-dev")
    return Answer(message.SerializeToString())


class Rules:
    """Text decides: the first word is the verdict's kind."""

    def classify(self, failure: Failure) -> Verdict:
        word = failure.text.partition(" ")[0]
        kind = Kind(word) if word in list(Kind) else Kind.AMBIGUOUS
        if failure.permanent_error:
            return Verdict(Kind.PERMANENT, Culprit.UNKNOWN, "explicit", explicit=True)
        culprit = Culprit.PARAMETERS if kind is Kind.PERMANENT else Culprit.DRIVER
        return Verdict(kind, culprit, f"rule-{word}")


@dataclass
class ScriptedLink:
    """Plays its script, one step per call; remembers what it was asked."""

    script: list[Step] = field(default_factory=list)
    name: str = DRIVER
    path: str = "/driver.sock"
    away_since: float | None = None
    registered: bool = True
    asked: list[tuple[str, ...]] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    metadata: Metadata = ()
    back: asyncio.Event = field(default_factory=asyncio.Event)

    def pick(self, service: str) -> ScriptedLink | None:
        assert service == names.SERVICE_V1
        return None if self.away_since is not None else self

    async def unary(
        self, method: str, body: bytes, *, metadata: Metadata = (), timeout: float
    ) -> Answer:
        word = "" if method == PREPARE else "unprepare "
        self.asked.append(tuple(word + claim.name for claim in wire.parse_claims(body)))
        self.timeouts.append(timeout)
        self.metadata = metadata
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, Answer) else await step()

    async def wait_connected(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self.back.wait()
        except TimeoutError:
            return False
        return True

    @property
    def link(self) -> Link:
        return cast(Link, self)


class Bench:
    """A proxy over one scripted link."""

    def __init__(self, *script: Step, settings: AgentConfig = FAST) -> None:
        self.tasks = Tasks()
        self.facts: list[CallFact] = []
        self.scripted = ScriptedLink(list(script))
        self.ctx = Context(
            settings=settings,
            rules=cast(RuleSet, Rules()),
            metrics=Metrics(),
            tracing=NullTracing(),
            tasks=self.tasks,
            flights=Flights(self.tasks),
            held=HeldVerdicts(settings.outcome.hold, settings.outcome.hold_max),
            random=lambda: 0.0,
            wall=lambda: 1000.0,
            sink=self,
        )
        self.proxy = Proxy(self.ctx, lambda: [self.scripted.link])

    def submit(self, fact: CallFact) -> None:
        self.facts.append(fact)

    async def call(
        self, *claims: ClaimRef, method: str = PREPARE, deadline: float = 45.0
    ) -> Answer:
        """Make kubelet's call through the handler that the endpoint would use."""
        handler = self.proxy.unary(self.scripted.link)(method)
        assert handler is not None
        return await handler(request(*claims, method=method, deadline=deadline))


def enforcing() -> AgentConfig:
    """FAST in mode enforce."""
    return AgentConfig(mode="enforce", retry=replace_retry())


def replace_retry(**changes: float) -> Retry:
    """FAST's retry settings with changes."""
    import msgspec

    return msgspec.structs.replace(FAST.retry, **{k: Duration(v) for k, v in changes.items()})


__all__ = ["Bench", "enforcing", "prepared", "refused", "replace", "request"]
