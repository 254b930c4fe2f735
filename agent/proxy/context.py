"""What all calls of the proxy share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.aio import Tasks
from agent.core.classify import RuleSet
from agent.core.context import InFlight
from agent.core.held import HeldVerdicts
from agent.core.model import CallFact, ClaimRef
from agent.core.plan import Plan, RetryPolicy
from agent.observe.metrics import Metrics
from agent.observe.tracing import Tracing
from agent.proxy.flights import Flights
from agent.settings.model import AgentConfig

NO_DEADLINE = 45.0
"""Seconds for a call that came without a deadline: kubelet's own; other callers may send none."""

_BACKLOG = 256  # facts kept while the API client is being loaded
_PREVIOUS = 1024  # claims whose last error is remembered
_PREVIOUS_TEXT = 4096  # characters of it; longer texts that begin alike count as the same


class FactSink(Protocol):
    """Where facts go; never blocks and never raises."""

    def submit(self, fact: CallFact) -> None:
        """Take a fact."""


class Backlog:
    """The sink until the API is connected: keeps the newest facts for the reporter."""

    def __init__(self) -> None:
        self.facts: deque[CallFact] = deque(maxlen=_BACKLOG)

    def submit(self, fact: CallFact) -> None:
        """Keep the fact; the oldest goes when full."""
        self.facts.append(fact)

    def replay(self, sink: FactSink) -> None:
        """Hand over what was kept."""
        for fact in self.facts:
            sink.submit(fact)


class LogOnly:
    """The sink of a pure proxy: call lines are in the log anyway."""

    def submit(self, fact: CallFact) -> None:
        """Drop the fact."""


@dataclass(slots=True, eq=False)
class LiveCall:
    """A prepare call that kubelet is waiting for."""

    driver: str
    claims: tuple[ClaimRef, ...]
    plan: Plan
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = 0.0  # loop time
    blockers: set[str] = field(default_factory=set)  # UIDs of claims that it was found to wait for

    @property
    def uids(self) -> frozenset[str]:
        """UIDs of its claims."""
        return frozenset(claim.uid for claim in self.claims)

    def uses(self, namespace: str, names: Iterable[str]) -> bool:
        """True when it asks for a claim of that name."""
        wanted = {(namespace, name) for name in names}
        return any((claim.namespace, claim.name) in wanted for claim in self.claims)

    def hurry(self, released: Sequence[ClaimRef]) -> None:
        """What it waits for may be free now: ask again without waiting longer."""
        certain = any(claim.uid in self.blockers for claim in released)
        if self.plan.hurry(released, certain=certain):
            self.wake.set()

    def cancel(self, reason: str, *, at_once: bool = True) -> None:
        """End its retries."""
        self.plan.cancel(reason, at_once=at_once)
        self.wake.set()


@dataclass(frozen=True, slots=True, eq=False)
class Undoing:
    """An unprepare that is not answered yet."""

    driver: str
    claims: tuple[ClaimRef, ...]
    began: float  # loop time


@dataclass(slots=True)
class Context:
    """Shared state and helpers; one per agent."""

    settings: AgentConfig
    rules: RuleSet
    metrics: Metrics
    tracing: Tracing
    tasks: Tasks
    flights: Flights
    held: HeldVerdicts
    random: Callable[[], float]
    wall: Callable[[], float]
    sink: FactSink = field(default_factory=Backlog)
    live: set[LiveCall] = field(default_factory=set)
    undoing: set[Undoing] = field(default_factory=set)
    previous: dict[tuple[str, str], str] = field(default_factory=dict)
    passed: set[tuple[str, str]] = field(default_factory=set)
    stopping: bool = False

    def policy(self, driver: str) -> RetryPolicy:
        """Retry periods that hold for a driver."""
        retry = self.settings.retry_of(driver)
        return RetryPolicy(
            initial_delay=retry.initial_delay,
            max_delay=retry.max_delay,
            jitter=retry.jitter,
            margin=retry.margin,
            ambiguous_attempts=retry.ambiguous_attempts,
            ambiguous_time=retry.ambiguous_time,
            absence_hold=self.settings.drivers.driver_absence_hold,
        )

    def active(self, driver: str, now: float) -> list[InFlight]:
        """Calls of a driver that kubelet waits for, the oldest first; one entry per claim."""
        found = [
            InFlight(claim, "prepare", now - call.began)
            for call in self.live
            if call.driver == driver
            for claim in call.claims
        ]
        found += [
            InFlight(claim, "unprepare", now - call.began)
            for call in self.undoing
            if call.driver == driver
            for claim in call.claims
        ]
        return sorted(found, key=lambda each: (-each.seconds, each.claim.uid))

    def being_undone(self, driver: str, uids: Iterable[str]) -> bool:
        """True while an unprepare of any of these claims is not answered."""
        wanted = set(uids)
        return any(
            call.driver == driver and any(claim.uid in wanted for claim in call.claims)
            for call in self.undoing
        )

    def remember_error(self, driver: str, uid: str, text: str) -> None:
        """Keep the last error of a claim for its next call; the oldest claim goes when full."""
        self.previous.pop((driver, uid), None)
        self.previous[driver, uid] = text[:_PREVIOUS_TEXT]
        if len(self.previous) > _PREVIOUS:
            del self.previous[next(iter(self.previous))]

    def forget(self, claims: Iterable[ClaimRef]) -> None:
        """Drop everything remembered about claims that were unprepared."""
        for claim in claims:
            self.held.drop_claim(claim.uid)
            self.passed.discard((claim.namespace, claim.name))
            for key in [key for key in self.previous if key[1] == claim.uid]:
                del self.previous[key]
