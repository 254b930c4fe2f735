"""Runs one NodePrepareResources call: performs the steps of its plan and answers kubelet."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from dataclasses import replace

from agent.core import answer, wire
from agent.core.model import (
    CallFact,
    ClaimOutcome,
    ClaimRef,
    ClaimResult,
    Kind,
    Transport,
)
from agent.core.plan import Forward, Plan, Reply, Wait
from agent.node.link import Link
from agent.proxy import calllog
from agent.proxy.attempt import NOBODY, Sender
from agent.proxy.context import NO_DEADLINE, Context, LiveCall
from agent.proxy.flights import Attempt
from agent.rpc.call import Answer, Request

_LATE = 0.05  # seconds an attempt may overrun its time before its call stops waiting


class PrepareCall:
    """One call from arrival to answer."""

    def __init__(self, ctx: Context, link: Link, request: Request) -> None:
        """Raises WireError when the request is not a prepare request."""
        self._ctx = ctx
        self._link = link
        self._request = request
        self._claims = tuple({c.uid: c for c in wire.parse_claims(request.body)}.values())
        self._loop = asyncio.get_running_loop()
        self._arrived = self._loop.time()
        self._deadline = request.deadline or self._arrived + NO_DEADLINE
        self._raw: answer.RawAnswer | None = None
        self._span = ctx.tracing.call(request.method, link.name, self._claims, ctx.wall())
        self._sender = Sender(ctx, link, request, self._claims, self._span)

    async def run(self) -> Answer:
        """Answer the call; the handler of rpc.Server awaits this."""
        live = LiveCall(self._link.name, self._claims, self._plan(), began=self._arrived)
        self._ctx.live.add(live)
        try:
            if self._ctx.being_undone(self._link.name, live.uids):
                await self._after_unprepare(live)
            reply = await self._drive(live.plan, live)
        finally:
            self._ctx.live.discard(live)
        return self._finish(live.plan, reply)

    def _plan(self) -> Plan:
        ctx, name, now = self._ctx, self._link.name, self._loop.time()
        found = {claim.uid: ctx.held.get(name, claim.uid, now) for claim in self._claims}
        plan = Plan(
            self._claims,
            arrived_at=self._arrived,
            deadline=self._deadline,
            policy=ctx.policy(name),
            held={uid: held for uid, held in found.items() if held is not None},
            previous={c.uid: ctx.previous.get((name, c.uid), "") for c in self._claims},
        )
        if ctx.stopping:
            plan.cancel("the agent is stopping", at_once=False)
        return plan

    async def _drive(self, plan: Plan, live: LiveCall) -> Reply:
        while True:
            step = plan.next(self._loop.time(), self._ctx.random(), self._link.away_since)
            match step:
                case Reply():
                    return step
                case Wait():
                    if step.until_connected:
                        away = self._sender.failed(plan.unasked, Transport.GONE, NOBODY)
                        plan.driver_away(away, self._ctx.wall())
                    await self._wait(step, live)
                case Forward(claims, timeout):
                    send = functools.partial(self._sender.send, timeout)
                    wait = timeout + min(_LATE, self._left(timeout) / 2)
                    asked = self._ctx.flights.ask(self._link.name, claims, send, wait)
                    results = self._gather(claims, await asked)
                    plan.attempt_ended(results, self._loop.time(), self._ctx.wall())
                    if plan.failed_before:
                        self._ctx.sink.submit(self._fact(plan.outcomes(), final=False, code=0))

    def _left(self, timeout: float) -> float:
        """Seconds between the end of an attempt that begins now and kubelet's deadline."""
        return max(0.0, self._deadline - self._loop.time() - timeout)

    def _gather(self, claims: Iterable[ClaimRef], attempts: list[Attempt]) -> list[ClaimResult]:
        found = {uid: result for attempt in attempts for uid, result in attempt.results.items()}
        for attempt in attempts:
            self._raw = attempt.raw or self._raw
        late = [claim for claim in claims if claim.uid not in found]
        text = "no answer within kubelet's deadline"
        results = self._sender.failed(late, Transport.DEADLINE, text)
        return results + [found[claim.uid] for claim in claims if claim.uid in found]

    async def _wait(self, step: Wait, live: LiveCall) -> None:
        began = self._loop.time()
        live.wake.clear()  # whatever set it was seen by the plan when it decided to wait
        tasks = [self._ctx.tasks.start("prepare wait", live.wake.wait())]
        if step.until_connected:
            waiting = self._link.wait_connected(step.seconds)
            tasks.append(self._ctx.tasks.start("wait for driver", waiting))
        try:
            await asyncio.wait(tasks, timeout=step.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        self._ctx.metrics.retry_wait(self._link.name, self._loop.time() - began)

    async def _after_unprepare(self, live: LiveCall) -> None:
        """A prepare never overtakes an unprepare of its claim that came first.

        One that comes while it waits makes it stale: then it is answered without the driver.
        """
        kind, why = Transport.CANCELLED, "an unprepare of the claim came first"
        latest = self._deadline - min(1.0, 0.1 * (self._deadline - self._arrived))
        try:
            async with asyncio.timeout_at(latest):
                while not live.plan.given_up:
                    if not self._ctx.being_undone(self._link.name, live.uids):
                        live.plan = self._plan()  # the unprepare has ended what was held
                        return
                    live.wake.clear()
                    await live.wake.wait()
        except TimeoutError:
            kind, why = Transport.DEADLINE, "an unprepare of the claim is still unanswered"
        live.cancel(why)
        live.plan.driver_away(self._sender.failed(self._claims, kind, why), self._ctx.wall())

    def _finish(self, plan: Plan, reply: Reply) -> Answer:
        pairs = list(zip(self._claims, reply.results, strict=True))
        composed = answer.compose(self._link.name, pairs, self._raw, reply.reason)
        outcomes = tuple(
            self._settle(outcome, result)
            for outcome, (_, result) in zip(plan.outcomes(), pairs, strict=True)
        )
        fact = self._fact(outcomes, final=True, code=composed.status.code if composed.status else 0)
        self._span.end(fact.code, outcomes)
        self._ctx.metrics.held(self._link.name, self._ctx.held.of_driver(self._link.name))
        calllog.prepared(fact, reply.reason)
        self._ctx.sink.submit(fact)
        return Answer(composed.body, composed.status, composed.initial, composed.trailers)

    def _settle(self, outcome: ClaimOutcome, result: ClaimResult | None) -> ClaimOutcome:
        """Remember what the next call of this claim has to know."""
        ctx, name, claim = self._ctx, self._link.name, outcome.claim
        key = (name, claim.uid)
        if result is not None and result.ok:
            ctx.previous.pop(key, None)
            ctx.passed.add((claim.namespace, claim.name))
            return replace(outcome, devices=result.devices)
        if result is None or result.failure is None or result.verdict is None:
            return outcome
        ctx.remember_error(name, claim.uid, result.failure.text)
        ctx.metrics.verdict(name, result.verdict)
        acts = result.verdict.explicit or ctx.settings.mode_of(name) == "enforce"
        if acts and result.verdict.kind is Kind.PERMANENT and not outcome.held:
            ctx.held.put(result, outcome, self._loop.time())
        return outcome

    def _fact(self, outcomes: tuple[ClaimOutcome, ...], *, final: bool, code: int) -> CallFact:
        now = self._loop.time()
        return CallFact(
            driver=self._link.name,
            operation="prepare",
            method=self._request.method,
            outcomes=outcomes,
            final=final,
            wall=self._ctx.wall(),
            replied_at=now,
            duration=now - self._arrived,
            code=code,
            trace_id=self._span.trace_id,
        )
