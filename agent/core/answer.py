"""The answer to kubelet, made from what each claim has. The driver's shape is kept (rule 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.core import wire
from agent.core.model import ClaimRef, ClaimResult, Metadata, Status, Surface, Transport, Verdict

# gRPC codes of answers that the driver never gave; what grpc-go reports in the same case
_TRANSPORT_CODES = {
    Transport.REFUSED: 14,
    Transport.GONE: 14,
    Transport.RESET: 14,
    Transport.DEADLINE: 4,
    Transport.PROTOCOL: 13,
    Transport.CANCELLED: 1,
}


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A driver's response as it came, and the claims it answers.

    `claims` are those it was asked for, None when it holds others or misses some.
    """

    claims: frozenset[str] | None
    body: bytes
    initial: Metadata = ()
    trailers: Metadata = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Exactly one of the two is set."""

    body: bytes | None = None
    status: Status | None = None
    initial: Metadata = ()
    trailers: Metadata = ()


def prefix(driver: str, verdict: Verdict | None) -> str:
    """What stands before a driver's text, so that events tell who says what."""
    if verdict is None:
        return f"dra-agent: {driver}: "
    blamed = f"{verdict.culprit}" + (f" {verdict.device}" if verdict.device else "")
    return f"dra-agent: {driver}: {verdict.kind} ({blamed}): "


def compose(
    driver: str,
    results: Sequence[tuple[ClaimRef, ClaimResult | None]],
    raw: RawAnswer | None,
    reason: str = "",
) -> Answer:
    """Build the answer. `results` are in the call's order; None stands for a claim never asked.

    `reason` is why the call ends, which is told where no claim's failure tells it.
    """
    whole = whole_call_failure([result for _, result in results])
    if whole is not None:
        status = status_of(driver, whole)
        return Answer(None, status, status.initial, status.trailers)
    healthy = all(result is not None and result.ok for _, result in results)
    if raw is not None and healthy and raw.claims == frozenset(claim.uid for claim, _ in results):
        return Answer(raw.body, None, raw.initial, raw.trailers)
    failed = [claim.name for claim, result in results if result is not None and not result.ok]
    why = f", because of {', '.join(sorted(failed)[:3])}" if failed else f": {reason}"
    blocked = f"dra-agent: {driver}: not asked{why}"
    entries = [(claim.uid, _entry(driver, result, blocked)) for claim, result in results]
    if raw is None:
        return Answer(wire.response(entries))
    return Answer(wire.response(entries, wire.rest(raw.body)), None, raw.initial, raw.trailers)


def whole_call_failure(results: Sequence[ClaimResult | None]) -> ClaimResult | None:
    """The failure that makes the whole answer a gRPC status, if there is one.

    The driver's shape is kept: a call error stays one, even where siblings had succeeded in an
    earlier attempt, for kubelet then asks for all of them again (drivers must be idempotent).
    """
    for result in results:
        if (
            result is not None
            and result.failure
            and result.failure.surface is not Surface.CLAIM_ERROR
        ):
            return result
    return None


def status_of(driver: str, result: ClaimResult) -> Status:
    """The status that tells a whole-call failure, details and trailers as the driver sent them."""
    assert result.failure is not None
    text = prefix(driver, result.verdict) + result.failure.text
    if result.status is not None:
        details = _retold(result.status.details, result.status.message, text)
        return replace(result.status, message=text, details=details)
    transport = result.failure.transport or Transport.RESET
    return Status(_TRANSPORT_CODES[transport], text)


def _retold(details: bytes | None, old: str, new: str) -> bytes | None:
    """The google.rpc.Status of a refused call with our text, all else as it came.

    grpc-go shows the text in there (message = 2) instead of grpc-message.
    """
    try:
        # Field 2 is a string there as in a claim's answer, which is all that these two look at.
        if details and wire.entry(details).error == old:
            return wire.with_error(details, new, False)
    except wire.WireError:
        pass  # what cannot be read passes as it is
    return details


def _entry(driver: str, result: ClaimResult | None, blocked: str) -> bytes:
    if result is None:
        return wire.with_error(b"", blocked, False)
    if result.failure is None:
        return result.entry or b""
    text = prefix(driver, result.verdict) + result.failure.text
    permanent = result.verdict is not None and result.verdict.permanent
    return wire.with_error(result.entry or b"", text, permanent)
