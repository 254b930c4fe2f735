"""Faults planted into the agent's code, each of which the model must see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.aio import Tasks
from agent.core import answer as answers
from agent.core import wire
from agent.core.model import ClaimRef
from agent.core.plan import Forward, Plan, Step
from agent.node.link import Link
from agent.proxy import prepare as prepares
from agent.proxy import unprepare as unprepares
from agent.proxy.attempt import Sender
from agent.proxy.context import Context, LiveCall
from agent.proxy.flights import Attempt, Flights
from agent.proxy.prepare import PrepareCall
from agent.rpc.call import Answer, Request

Plant = Callable[[pytest.MonkeyPatch], None]


def no_joining(patch: pytest.MonkeyPatch) -> None:
    """Each call makes attempts of its own, whatever is in flight."""

    async def ask(
        self: Flights,
        driver: str,
        claims: Sequence[ClaimRef],
        send: Callable[[tuple[ClaimRef, ...]], Awaitable[Attempt]],
        timeout: float,
    ) -> list[Attempt]:
        return [await send(tuple(claims))]

    patch.setattr(Flights, "ask", ask)


def warm_up(patch: pytest.MonkeyPatch) -> None:
    """The driver is asked once more a second after kubelet has its answer."""
    run = PrepareCall.run

    async def run_and_again(self: PrepareCall) -> Answer:
        answer = await run(self)

        async def again() -> None:
            await asyncio.sleep(1.0)
            await self._sender.send(5.0, self._claims)

        self._ctx.tasks.start("again", again())
        return answer

    patch.setattr(PrepareCall, "run", run_and_again)


def orphans(patch: pytest.MonkeyPatch) -> None:
    """Kubelet gives up and the call goes on."""
    run = PrepareCall.run

    async def shielded(self: PrepareCall) -> Answer:
        task: asyncio.Task[Answer] = self._ctx.tasks.start("orphan", run(self))
        return await asyncio.shield(task)

    patch.setattr(PrepareCall, "run", shielded)


def unprepare_twice(patch: pytest.MonkeyPatch) -> None:
    """A failed unprepare is repeated by the agent."""
    forward = unprepares._forward

    async def twice(*args: Any) -> Answer:
        answer = await forward(*args)
        return await forward(*args) if answer.status is not None else answer

    patch.setattr(unprepares, "_forward", twice)


def deaf_to_unprepare(patch: pytest.MonkeyPatch) -> None:
    """Retries go on when an unprepare comes."""

    def cancel(self: LiveCall, reason: str, *, at_once: bool = True) -> None:
        if "unprepare" not in reason:
            self.plan.cancel(reason, at_once=at_once)
            self.wake.set()

    patch.setattr(LiveCall, "cancel", cancel)


def overtaking(patch: pytest.MonkeyPatch) -> None:
    """A prepare does not wait for the unprepare before it."""
    patch.setattr(Context, "being_undone", lambda self, driver, uids: False)


def late(patch: pytest.MonkeyPatch) -> None:
    """Attempts may run on after kubelet's deadline."""
    step = Plan.next

    def next_(self: Plan, now: float, jitter: float, away_since: float | None) -> Step:
        found = step(self, now, jitter, away_since)
        return replace(found, timeout=found.timeout + 20.0) if isinstance(found, Forward) else found

    patch.setattr(Plan, "next", next_)


def swallowed(patch: pytest.MonkeyPatch) -> None:
    """A call that ends in a whole-call error is never answered."""
    finish = PrepareCall.run

    async def run(self: PrepareCall) -> Answer:
        answer = await finish(self)
        if answer.status is not None:
            await asyncio.get_running_loop().create_future()
        return answer

    patch.setattr(PrepareCall, "run", run)


def forgotten(patch: pytest.MonkeyPatch) -> None:
    """The answer holds only what the last attempt brought."""

    def compose(
        driver: str, results: Sequence[Any], raw: answers.RawAnswer | None, *more: Any
    ) -> Any:
        if raw is not None:
            return answers.Answer(raw.body)
        return answers.compose(driver, results, raw, *more)

    class Module:
        pass

    module: Any = Module()
    module.compose, module.RawAnswer = compose, answers.RawAnswer
    patch.setattr(prepares, "answer", module)


def from_memory(patch: pytest.MonkeyPatch) -> None:
    """A claim that was prepared once is prepared for ever."""
    send = Sender.send

    def kept(ctx: Context) -> dict[str, Any]:
        found: dict[str, Any] = vars(ctx.held).setdefault("kept", {})
        return found

    async def remembered(self: Sender, timeout: float, claims: tuple[ClaimRef, ...]) -> Attempt:
        known = kept(self._ctx)
        if all(claim.uid in known for claim in claims):
            return Attempt({claim.uid: known[claim.uid] for claim in claims})
        attempt = await send(self, timeout, claims)
        known.update({uid: r for uid, r in attempt.results.items() if r.ok})
        return attempt

    patch.setattr(Sender, "send", remembered)
    patch.setattr(Context, "forget", lambda self, claims: kept(self).clear())


def made_up(patch: pytest.MonkeyPatch) -> None:
    """An error becomes a device."""
    ask = Flights.ask

    async def fine(self: Flights, driver: str, *args: Any) -> list[Attempt]:
        found = await ask(self, driver, *args)
        return [Attempt({uid: _well(r) for uid, r in a.results.items()}) for a in found]

    def _well(result: Any) -> Any:
        if result.failure is None or result.status is not None:
            return result
        return replace(result, failure=None, entry=b"\x0a\x05\x1a\x03dev")

    patch.setattr(Flights, "ask", fine)


def lock_per_driver(patch: pytest.MonkeyPatch) -> None:
    """One prepare per driver at a time."""
    ask, locks = Flights.ask, dict[Tasks, asyncio.Lock]()

    async def locked(self: Flights, driver: str, *args: Any) -> list[Attempt]:
        async with locks.setdefault(self._tasks, asyncio.Lock()):
            return await ask(self, driver, *args)

    patch.setattr(Flights, "ask", locked)


def unprepare_not_sent(patch: pytest.MonkeyPatch) -> None:
    """A claim that was never prepared through us is not unprepared either."""
    forward = unprepares._forward

    async def maybe(
        ctx: Context, link: Link, request: Request, span: Any, deadline: float
    ) -> Answer:
        names = {(c.namespace, c.name) for c in wire.parse_claims(request.body)}
        if not _any(names, ctx.passed):
            return Answer(b"")
        return await forward(ctx, link, request, span, deadline)

    patch.setattr(unprepares, "_forward", maybe)


def leak(patch: pytest.MonkeyPatch) -> None:
    """Something runs on after each call."""
    run = PrepareCall.run

    async def leaking(self: PrepareCall) -> Answer:
        self._ctx.tasks.start("leak", asyncio.sleep(3600.0))
        return await run(self)

    patch.setattr(PrepareCall, "run", leaking)


def _any(wanted: set[tuple[str, str]], known: Iterable[tuple[str, str]]) -> bool:
    return any(name in wanted for name in known)


FAULTS: dict[Plant, str] = {
    no_joining: "one prepare",
    warm_up: "asked",
    orphans: "asked",
    unprepare_twice: "asked",
    deaf_to_unprepare: "order",
    overtaking: "overtaken",
    late: "in time",
    swallowed: "in time",
    forgotten: "exact",
    from_memory: "source",
    made_up: "source",
    lock_per_driver: "independent",
    unprepare_not_sent: "forwarded",
    leak: "nothing left",
}
"""Fault -> the rule that must be the one to see it."""
