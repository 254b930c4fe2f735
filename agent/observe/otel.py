"""Spans by the OpenTelemetry SDK. With spans.py the only import of opentelemetry.

Every call is a root span of its own, but all calls about one claim share a trace id: the claim's
UID is the trace id. So kubelet's repeats, minutes apart, are found together, and whoever has the
claim has the trace. A call for several claims belongs to the smallest UID and links to the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
)
from opentelemetry.util.types import Attributes, AttributeValue

import agent
from agent import names
from agent.aio import wait
from agent.core.model import ClaimRef
from agent.core.text import clean
from agent.observe import methods
from agent.observe.spans import OtelCall, claim_attributes
from agent.observe.tracing import CallSpan, batch
from agent.settings.model import NodeIdentity

log = logging.getLogger(__name__)

MANY = 32
"""Claims of a call that its span names; a call for hundreds must not cost milliseconds."""

_chosen: ContextVar[int] = ContextVar("trace_id", default=0)


def trace_id_of(uid: str) -> int:
    """A claim UID as 128 bits: a UUID as it is, anything else hashed; never 0."""
    try:
        number = uuid.UUID(uid).int
    except ValueError:
        number = 0
    if number == 0:
        digest = hashlib.blake2b(uid.encode("utf-8", "replace"), digest_size=16)
        number = int.from_bytes(digest.digest(), "big")
    return number or 1


class _ClaimIds(RandomIdGenerator):
    """Takes the trace id that `OtelTracing.call` chose, so that the span is a true root."""

    def generate_trace_id(self) -> int:
        return _chosen.get() or super().generate_trace_id()

    def is_trace_id_random(self) -> bool:
        return False  # W3C's flag would promise 56 random bits, which a UID need not have


class _Spread(Sampler):
    """Gives the configured sampler a hash of the trace id.

    Ratio samplers compare the low 64 bits with a bound, and those of a random UUID always begin
    with the variant bits 10: a ratio of 0.5 would keep nothing and 0.75 everything.
    """

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        digest = hashlib.blake2b(trace_id.to_bytes(16, "big"), digest_size=16).digest()
        spread = int.from_bytes(digest, "big")
        return self._inner.should_sample(
            parent_context, spread, name, kind, attributes, links, trace_state
        )

    def get_description(self) -> str:
        return self._inner.get_description()


def exporters(url: str, *, console: bool) -> list[SpanExporter]:
    """The exporters for a plan. Headers, timeout, compression and TLS come from OTEL_*."""
    found: list[SpanExporter] = [OTLPSpanExporter(endpoint=url)] if url else []
    if console:
        found.append(ConsoleSpanExporter())
    return found


def resource(identity: NodeIdentity, env: Mapping[str, str]) -> Resource:
    """Who sends: from the downward API; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    container = env.get("CONTAINER_NAME", "")
    pod = (identity.pod_namespace, identity.pod_name, container)
    ours = {
        "service.name": names.PRODUCT,
        "service.version": agent.__version__,
        "service.instance.id": ".".join(p for p in pod if p) or identity.node_name,
        "k8s.node.name": identity.node_name,
        "k8s.namespace.name": identity.pod_namespace,
        "k8s.pod.name": identity.pod_name,
        "k8s.pod.uid": identity.pod_uid,
        "k8s.container.name": container,
    }
    given = OTELResourceDetector().detect().attributes
    known = {key: value for key, value in ours.items() if value}
    return Resource.create({**known, **given}, names.OTEL_SCHEMA_URL)


class OtelTracing:
    """Spans that are batched and sent by a thread of the SDK."""

    def __init__(
        self, exporters: Sequence[SpanExporter], identity: NodeIdentity, env: Mapping[str, str]
    ) -> None:
        # shutdown_on_exit would block the interpreter's end for as long as the exporter retries.
        self._provider = TracerProvider(
            resource=resource(identity, env), id_generator=_ClaimIds(), shutdown_on_exit=False
        )
        self._provider.sampler = _Spread(self._provider.sampler)
        for exporter in exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter, *batch(env)))
        self._tracer = self._provider.get_tracer(
            names.PRODUCT, agent.__version__, schema_url=names.OTEL_SCHEMA_URL
        )

    def call(
        self, method: str, driver: str, claims: Sequence[ClaimRef], wall: float | None = None
    ) -> CallSpan:
        """See tracing.Tracing."""
        label = methods.method_label(method).lstrip("/")
        common: dict[str, AttributeValue] = {
            names.ATTR_RPC_SYSTEM: "grpc",
            names.ATTR_RPC_METHOD: label,
            names.ATTR_DRIVER: driver,
        }
        if label == methods.OTHER:
            common[names.ATTR_RPC_METHOD_ORIGINAL] = clean(method, 256).lstrip("/")
        attributes = dict(common)
        ordered = sorted(claims, key=lambda claim: claim.uid)
        if ordered:
            attributes.update(claim_attributes(ordered[0]))
            attributes[names.ATTR_CLAIM_COUNT] = len(ordered)
        links = [Link(_context_of(claim.uid), claim_attributes(claim)) for claim in ordered[1:MANY]]
        token = _chosen.set(trace_id_of(ordered[0].uid) if ordered else 0)
        try:
            span = self._tracer.start_span(
                label,
                Context(),
                kind=SpanKind.SERVER,
                attributes=attributes,
                links=links,
                start_time=None if wall is None else int(wall * 1e9),
            )
        finally:
            _chosen.reset(token)
        return OtelCall(self._tracer, span, common)

    async def close(self, limit: float) -> None:
        """See tracing.Tracing.

        The exporter retries for up to a minute while the collector is away
        (open-telemetry/opentelemetry-python#3309, #4043) and its shutdown waits for that, so it
        runs in a daemon thread that is left behind when time is up. An executor's thread would
        not do: the interpreter joins those at its end.
        """
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def work() -> None:
            try:
                self._provider.shutdown()
            finally:
                with contextlib.suppress(RuntimeError):  # the loop ended: nobody waits any more
                    loop.call_soon_threadsafe(done.set)

        threading.Thread(target=work, name="tracing-close", daemon=True).start()
        if not await wait(done, limit):
            log.warning("tracing: spans left unsent after %.1f s", limit)


def _context_of(uid: str) -> SpanContext:
    """A link's target: the claim's trace. Any of its spans will do: the id is half of the UID."""
    number = trace_id_of(uid)
    return SpanContext(
        trace_id=number,
        span_id=(number & (2**64 - 1)) or 1,
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
