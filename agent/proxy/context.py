"""What all calls of the proxy share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from agent.aio import Tasks
from agent.core.classify import RuleSet
from agent.core.held import HeldVerdicts
from agent.core.model import CallFact, ClaimRef
from agent.core.plan import Plan, RetryPolicy
from agent.observe.metrics import Metrics
from agent.observe.tracing import Tracing
from agent.proxy.flights import Flights
from agent.settings.model import AgentConfig


class FactSink(Protocol):
    """Where facts go; never blocks and never raises."""

    def submit(self, fact: CallFact) -> None:
        """Take a fact."""


class LogOnly:
    """The sink of a pure proxy: call lines are in the log anyway."""

    def submit(self, fact: CallFact) -> None:
        """Drop the fact."""


@dataclass(slots=True, eq=False)
class LiveCall:
    """A prepare call that kubelet is waiting for."""

    driver: str
    uids: frozenset[str]
    plan: Plan
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self, reason: str, *, at_once: bool = True) -> None:
        """End its retries."""
        self.plan.cancel(reason, at_once=at_once)
        self.wake.set()


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
    sink: FactSink = field(default_factory=LogOnly)
    live: set[LiveCall] = field(default_factory=set)
    unpreparing: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
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

    def cancel_retries(self, uids: Iterable[str], reason: str, driver: str = "") -> None:
        """No more attempts for calls that hold any of these claims."""
        wanted = set(uids)
        for call in self.live:
            if wanted & call.uids and driver in ("", call.driver):
                call.cancel(reason)

    def forget(self, claims: Iterable[ClaimRef], driver: str = "") -> None:
        """Drop everything remembered about claims (unprepared, or their pod is gone)."""
        for claim in claims:
            self.held.drop_claim(claim.uid)
            self.passed.discard((claim.namespace, claim.name))
            for key in [k for k in self.previous if k[1] == claim.uid]:
                del self.previous[key]
