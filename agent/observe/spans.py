"""A call's span and its attempts' spans: attributes, events and status.

Names are those of the RPC conventions that agent/names.py cites. Made by agent/observe/otel.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from agent import names
from agent.core.model import ClaimOutcome, ClaimRef, DeviceState, Verdict
from agent.core.text import clean
from agent.observe import methods
from agent.observe.tracing import AttemptSpan

TEXT_LIMIT = 1024  # bytes of an error text in a span
FEW = 8  # claims that each get an event though they did not fail
CLAIM_EVENT = "dra.claim"
ATTR_STATE = "dra.claim.state"
ATTR_HELD = "dra.claim.held"
ERROR_CLAIM = "claim_error"
"""error.type of a call that gRPC calls OK while a claim in the answer failed."""

# The RPC conventions call the other codes the caller's mistake, not the server's.
_SERVER_ERRORS = frozenset((2, 4, 12, 13, 14, 15))


def claim_attributes(claim: ClaimRef) -> dict[str, AttributeValue]:
    """What names a claim, on spans, events and links alike."""
    return {
        names.ATTR_CLAIM_UID: clean(claim.uid, 128),
        names.ATTR_CLAIM_NAME: clean(claim.name, 256),
        names.ATTR_CLAIM_NAMESPACE: clean(claim.namespace, 256),
    }


def _verdict(verdict: Verdict) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {
        names.ATTR_VERDICT: verdict.kind.value,
        names.ATTR_CULPRIT: verdict.culprit.value,
        names.ATTR_RULE: verdict.rule,
    }
    if verdict.device:
        found[names.ATTR_DEVICE] = clean(verdict.device, 256)
    return found


def _fail(span: Span, error_type: str, text: str) -> None:
    span.set_attribute(names.ATTR_ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, clean(text, TEXT_LIMIT) or None))


class OtelAttempt:
    """A CLIENT span."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(
        self,
        code: int | None,
        error_text: str = "",
        verdict: Verdict | None = None,
        *,
        error_type: str = "",
    ) -> None:
        """See tracing.AttemptSpan."""
        span = self._span
        if span.is_recording():
            if code is not None:
                span.set_attribute(names.ATTR_RPC_STATUS, methods.spec_code(code))
            if verdict is not None:
                span.set_attributes(_verdict(verdict))
            if code is None:
                _fail(span, error_type or "transport", error_text)
            elif code != 0:
                _fail(span, methods.spec_code(code), error_text)
            elif error_text or verdict is not None:
                _fail(span, ERROR_CLAIM, error_text)
        span.end()


class OtelCall:
    """A SERVER span and the tracer for its attempts."""

    def __init__(self, tracer: Tracer, span: Span, common: dict[str, AttributeValue]) -> None:
        self._tracer = tracer
        self._span = span
        self._common = common
        self._context = set_span_in_context(span, Context())

    @property
    def trace_id(self) -> str:
        """See tracing.CallSpan."""
        if not self._span.is_recording():
            return ""
        return format(self._span.get_span_context().trace_id, "032x")

    def attempt(self, number: int, claims: Sequence[ClaimRef], address: str) -> AttemptSpan:
        """See tracing.CallSpan."""
        attributes = {
            **self._common,
            names.ATTR_ATTEMPT: number,
            names.ATTR_CLAIM_COUNT: len(claims),
            names.ATTR_SERVER_ADDRESS: address,
            names.ATTR_PEER_ADDRESS: address,
        }
        if len(claims) == 1:
            attributes.update(claim_attributes(claims[0]))
        name = str(self._common[names.ATTR_RPC_METHOD])
        span = self._tracer.start_span(
            name, self._context, kind=SpanKind.CLIENT, attributes=attributes
        )
        return OtelAttempt(span)

    def end(self, code: int, outcomes: Sequence[ClaimOutcome] = ()) -> None:
        """See tracing.CallSpan.

        A claim that failed makes the span ERROR though gRPC says OK: the pod could not start.
        """
        span = self._span
        if span.is_recording():
            span.set_attribute(names.ATTR_RPC_STATUS, methods.spec_code(code))
            if outcomes:
                span.set_attribute(names.ATTR_ATTEMPTS, max(o.attempts for o in outcomes))
            for outcome in _telling(outcomes):
                span.add_event(CLAIM_EVENT, _outcome(outcome))
            failed = [o for o in outcomes if o.state is DeviceState.FAILED]
            text = failed[0].last_error if failed else ""
            if failed and failed[0].verdict is not None:
                span.set_attributes(_verdict(failed[0].verdict))
            if code in _SERVER_ERRORS:
                _fail(span, methods.spec_code(code), text)
            elif failed:
                _fail(span, ERROR_CLAIM if code == 0 else methods.spec_code(code), text)
            elif code != 0:
                span.set_attribute(names.ATTR_ERROR_TYPE, methods.spec_code(code))
        span.end()


def _telling(outcomes: Sequence[ClaimOutcome]) -> Sequence[ClaimOutcome]:
    """Of many claims those that failed; of a few all."""
    if len(outcomes) <= FEW:
        return outcomes
    return [o for o in outcomes if o.state is DeviceState.FAILED][:FEW]


def _outcome(outcome: ClaimOutcome) -> dict[str, AttributeValue]:
    found = claim_attributes(outcome.claim)
    found[ATTR_STATE] = outcome.state.value
    found[names.ATTR_ATTEMPTS] = outcome.attempts
    if outcome.held:
        found[ATTR_HELD] = True
    if outcome.verdict is not None:
        found.update(_verdict(outcome.verdict))
    if outcome.last_error:
        found["exception.message"] = clean(outcome.last_error, TEXT_LIMIT)
    return found
