"""Runs one NodeUnprepareResources call: always forwarded once, never answered for the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agent.core import wire
from agent.core.model import CallFact, ClaimOutcome, ClaimRef, DeviceState, Status
from agent.core.text import KEPT, ends
from agent.errors import TransportError
from agent.node.link import Link
from agent.observe.tracing import CallSpan
from agent.proxy import calllog
from agent.proxy.attempt import nobody
from agent.proxy.context import NO_DEADLINE, Context, LiveCall, Undoing
from agent.rpc.call import Answer, Request, service_of, status_of

_RESERVE = 0.5  # seconds left to hand the answer back
_UNSAID = "the driver's answer does not say how it ended"  # kubelet takes it as a failure, too


async def unprepare(ctx: Context, link: Link, request: Request) -> Answer:
    """Forward it after the claim's prepare in flight has landed (rule 9). WireError: not ours."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    deadline = request.deadline or began + NO_DEADLINE
    claims = wire.parse_claims(request.body)
    span = ctx.tracing.call(request.method, link.name, claims, ctx.wall())
    uids = [claim.uid for claim in claims]
    mine = Undoing(link.name, tuple({claim.uid: claim for claim in claims}.values()), began)
    ctx.undoing.add(mine)
    try:
        for call in _of_same(ctx, mine):
            call.cancel("an unprepare of the claim came")
        wait = deadline - began - ctx.settings.retry_of(link.name).unprepare_wait
        if not await ctx.flights.landed(link.name, uids, wait):
            calllog.log.warning(
                "unprepare goes out while the prepare of its claim is unanswered",
                extra={"driver": link.name, "claims": len(claims)},
            )
            ctx.metrics.unprepare_early(link.name)
        answer = await _forward(ctx, link, request, span, deadline)
    finally:
        ctx.undoing.discard(mine)
        for call in _of_same(ctx, mine):
            call.wake.set()
    outcomes, code = _outcomes(claims, answer), answer.code
    released = [each.claim for each in outcomes if each.state is not DeviceState.FAILED]
    for call in ctx.live:
        if released and call.driver == link.name:
            call.hurry(released)  # it may have waited for what they have just given back
    ctx.forget(claims)
    ctx.metrics.held(link.name, ctx.held.of_driver(link.name))
    span.end(code, outcomes)
    error = next((each.last_error for each in outcomes if each.last_error), "")
    calllog.unprepared(link.name, len(claims), loop.time() - began, error)
    ctx.sink.submit(
        CallFact(
            link.name,
            "unprepare",
            request.method,
            outcomes,
            final=True,
            wall=ctx.wall(),
            code=code,
            trace_id=span.trace_id,
        )
    )
    return answer


def _of_same(ctx: Context, undoing: Undoing) -> list[LiveCall]:
    """Prepare calls that ask for any of its claims."""
    uids = {claim.uid for claim in undoing.claims}
    return [call for call in ctx.live if call.driver == undoing.driver and call.uids & uids]


async def _forward(
    ctx: Context, link: Link, request: Request, span: CallSpan, deadline: float
) -> Answer:
    loop = asyncio.get_running_loop()
    hold = ctx.settings.drivers.driver_absence_hold
    left = deadline - _RESERVE - loop.time()
    if link.away_since is not None:
        await link.wait_connected(max(0.0, min(left, link.away_since + hold - loop.time())))
    channel = link.pick(service_of(request.method))
    if channel is None:
        return Answer(None, nobody(link))
    attempt = span.attempt(1, (), channel.path)
    try:
        answer = await channel.unary(
            request.method,
            request.body,
            metadata=request.metadata,
            timeout=max(0.0, deadline - _RESERVE - loop.time()),
        )
    except TransportError as error:
        text = f"dra-agent: {link.name}: {error.text}"
        answer = Answer(None, Status(status_of(error).code, text))
    code = answer.code
    attempt.end(code, answer.status.message if answer.status else "")
    ctx.metrics.attempt(link.name, request.method, code)
    return answer


def _outcomes(claims: Sequence[ClaimRef], answer: Answer) -> tuple[ClaimOutcome, ...]:
    """How each claim stands: one that failed keeps nothing from what the others gave back."""
    errors = dict.fromkeys((claim.uid for claim in claims), _UNSAID)
    if answer.status is not None:
        errors = dict.fromkeys(errors, answer.status.message or _UNSAID)
    else:
        try:
            errors |= wire.unprepare_errors(answer.body or b"")
        except wire.WireError as error:
            errors = dict.fromkeys(errors, str(error))
    return tuple(_outcome(claim, errors[claim.uid]) for claim in claims)


def _outcome(claim: ClaimRef, error: str) -> ClaimOutcome:
    state = DeviceState.FAILED if error else DeviceState.PREPARED
    return ClaimOutcome(claim, state, attempts=1, last_error=ends(error, KEPT))
