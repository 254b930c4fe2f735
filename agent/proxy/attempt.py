"""One attempt: sends claims to the driver and judges what came back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core import marker, wire
from agent.core.answer import RawAnswer
from agent.core.model import ClaimRef, ClaimResult, Failure, Status, Surface, Transport
from agent.errors import TransportError
from agent.node.link import Link
from agent.observe.tracing import CallSpan
from agent.proxy.context import Context
from agent.proxy.flights import Attempt
from agent.rpc.call import UNAVAILABLE, Answer, Request, service_of

NOBODY = "no instance of the driver is connected"


def nobody(link: Link) -> Status:
    """What a call gets whose driver is away."""
    return Status(UNAVAILABLE, f"dra-agent: {link.name}: {NOBODY}")


class Sender:
    """Makes the attempts of one call."""

    def __init__(
        self,
        ctx: Context,
        link: Link,
        request: Request,
        claims: Sequence[ClaimRef],
        span: CallSpan,
    ) -> None:
        self._ctx = ctx
        self._link = link
        self._request = request
        self._asked = len(claims)
        self._span = span
        self._number = 0

    async def send(self, timeout: float, claims: tuple[ClaimRef, ...]) -> Attempt:
        """Ask the driver once. Nothing that driver or connection do raises."""
        self._number += 1
        request, name = self._request, self._link.name
        channel = self._link.pick(service_of(request.method))
        span = self._span.attempt(self._number, claims, channel.path if channel else "")
        got: Answer | None = None
        kind = ""
        raw: RawAnswer | None = None
        try:
            if channel is None:
                raise TransportError(Transport.GONE, NOBODY, sent=False)
            body = request.body
            if len(claims) != self._asked:
                body = wire.subset(body, {claim.uid for claim in claims})
            got = await channel.unary(
                request.method, body, metadata=request.metadata, timeout=timeout
            )
            if got.status is not None:
                results = self._refused(claims, got, got.status)
            else:
                entries = wire.entries(got.body or b"")
                results = await self._judge(claims, entries)
                uids = frozenset(claim.uid for claim in claims)
                exact = uids if entries.keys() == uids else None
                raw = RawAnswer(exact, got.body or b"", got.initial, got.trailers)
        except TransportError as error:
            kind, results = error.kind, self.failed(claims, error.kind, error.text)
        except wire.WireError as error:
            kind, results = Transport.PROTOCOL, self.failed(claims, Transport.PROTOCOL, str(error))
        code = None if got is None else got.code
        bad = next((result for result in results if result.failure), None)
        text = bad.failure.text if bad and bad.failure else ""
        span.end(code, text, bad.verdict if bad else None, error_type=kind)
        self._ctx.metrics.attempt(name, request.method, UNAVAILABLE if code is None else code)
        return Attempt({result.claim.uid: result for result in results}, raw)

    def failed(self, claims: Iterable[ClaimRef], kind: Transport, text: str) -> list[ClaimResult]:
        """Results of claims for which no answer came."""
        failure = Failure(self._link.name, "prepare", Surface.TRANSPORT, text, transport=kind)
        return self._all(claims, failure)

    def _refused(
        self, claims: Iterable[ClaimRef], got: Answer, status: Status
    ) -> list[ClaimResult]:
        failure = Failure(
            *(self._link.name, "prepare", Surface.CALL_ERROR, status.message, status.code),
            details=status.details,
        )
        trailers = got.trailers or status.trailers
        kept = replace(status, initial=got.initial, trailers=trailers)
        return self._all(claims, failure, kept)

    async def _judge(
        self, claims: Iterable[ClaimRef], entries: Mapping[str, wire.Entry]
    ) -> list[ClaimResult]:
        """One by one, for a call may have hundreds of claims with errors of many kilobytes."""
        results = []
        for claim in claims:
            entry = entries.get(claim.uid)
            if entry is not None and not entry.error:
                results.append(ClaimResult(claim, entry.raw, devices=entry.devices))
                continue
            text = entry.error if entry else "the driver's answer has no entry for this claim"
            failure = Failure(
                self._link.name,
                "prepare",
                Surface.CLAIM_ERROR,
                text,
                permanent_error=entry is not None and entry.permanent_error,
                claim=claim.uid,
            )
            raw = entry.raw if entry else None
            results.append(ClaimResult(claim, raw, failure, self._ctx.rules.classify(failure)))
            await asyncio.sleep(0)  # other drivers' calls and the probes go on meanwhile
        return results

    def _all(
        self, claims: Iterable[ClaimRef], failure: Failure, status: Status | None = None
    ) -> list[ClaimResult]:
        """The same failure for all, but for a claim that a marker in its text speaks of."""
        verdict = self._ctx.rules.classify(failure)
        marked = {one.claim for one in marker.markers(failure.text)}
        results = []
        for claim in claims:
            own, judged = failure, verdict
            if claim.uid in marked:
                own = replace(failure, claim=claim.uid)
                judged = self._ctx.rules.classify(own)
            results.append(ClaimResult(claim, None, own, judged, status))
        return results
