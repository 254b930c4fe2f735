"""What the proxy sees of tracing: a span per call, a span per attempt, or nothing at all.

`make` decides from settings and the standard OTEL_* variables. Without an endpoint it returns
`NullTracing`, and the OpenTelemetry SDK (agent/observe/otel.py) is never imported.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agent.core.model import ClaimOutcome, ClaimRef, Verdict
from agent.core.text import clean
from agent.errors import UserError
from agent.settings.model import NodeIdentity
from agent.settings.model import Tracing as TracingSettings

log = logging.getLogger(__name__)

EXPORTERS = ("otlp", "console", "none")


class Batch(NamedTuple):
    """Arguments of the SDK's batches, in its order; the specification's defaults."""

    queue_size: int = 2048
    delay_ms: int = 5000
    batch_size: int = 512
    timeout_ms: int = 30000


_BATCH = {
    "OTEL_BSP_MAX_QUEUE_SIZE": "queue_size",
    "OTEL_BSP_SCHEDULE_DELAY": "delay_ms",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "batch_size",
    "OTEL_BSP_EXPORT_TIMEOUT": "timeout_ms",
}


class AttemptSpan(Protocol):
    """One call to the driver. `end` is called exactly once."""

    def end(
        self,
        code: int | None,
        error_text: str = "",
        verdict: Verdict | None = None,
        *,
        error_type: str = "",
    ) -> None:
        """Finish. `code` is the gRPC status, None when no answer came; `error_type` then names
        what happened (a `Transport` value). `verdict` is that of the first failing claim."""


class CallSpan(Protocol):
    """One call kubelet made. `end` is called exactly once."""

    @property
    def trace_id(self) -> str:
        """32 hex digits; "" when this call is not recorded."""

    def attempt(self, number: int, claims: Sequence[ClaimRef], address: str) -> AttemptSpan:
        """Begin a child span for attempt `number` (1, 2, …) at the driver socket `address`."""

    def end(self, code: int, outcomes: Sequence[ClaimOutcome] = ()) -> None:
        """Finish with the gRPC status kubelet got and how each claim stood then."""


class Tracing(Protocol):
    """Makes call spans. No method raises; `call` and all of a span's never block."""

    def call(
        self, method: str, driver: str, claims: Sequence[ClaimRef], wall: float | None = None
    ) -> CallSpan:
        """Begin a root span; `method` is `/pkg.Service/Method`, `wall` its start in unix seconds
        (None: now)."""

    async def close(self, limit: float) -> None:
        """Send what is left, for at most `limit` seconds. Later spans are lost."""


class _NullAttempt:
    __slots__ = ()

    def end(
        self,
        code: int | None,
        error_text: str = "",
        verdict: Verdict | None = None,
        *,
        error_type: str = "",
    ) -> None:
        """Do nothing."""


class _NullCall:
    __slots__ = ()
    trace_id = ""

    def attempt(self, number: int, claims: Sequence[ClaimRef], address: str) -> AttemptSpan:
        """Return a span that records nothing."""
        return _NULL_ATTEMPT

    def end(self, code: int, outcomes: Sequence[ClaimOutcome] = ()) -> None:
        """Do nothing."""


_NULL_ATTEMPT = _NullAttempt()
_NULL_CALL = _NullCall()


class NullTracing:
    """Tracing that is off; costs nothing."""

    def call(
        self, method: str, driver: str, claims: Sequence[ClaimRef], wall: float | None = None
    ) -> CallSpan:
        """Return a span that records nothing."""
        return _NULL_CALL

    async def close(self, limit: float) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where spans go: `url` for OTLP over HTTP ("" for none), `console` for standard output."""

    url: str
    console: bool


def plan(settings: TracingSettings, env: Mapping[str, str]) -> Plan:
    """Decide from settings and OTEL_* variables (which win). Raises UserError for a bad URL."""
    off = Plan("", console=False)
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return off
    wanted = [
        w.strip() for w in env.get("OTEL_TRACES_EXPORTER", "").lower().split(",") if w.strip()
    ]
    for word in wanted:
        if word not in EXPORTERS:
            # The OTel specification asks to warn about and ignore values that are not known.
            log.warning("OTEL_TRACES_EXPORTER: ignored, not one of %s", ", ".join(EXPORTERS))
    wanted = [w for w in wanted if w in EXPORTERS] or ["otlp"]
    if "none" in wanted:
        return off
    url = _url(settings, env) if "otlp" in wanted else ""
    if url and _protocol(env) not in ("", "http/protobuf"):
        log.warning("OTLP is sent as http/protobuf; other protocols are not in this program")
    return Plan(url, console="console" in wanted)


def _protocol(env: Mapping[str, str]) -> str:
    general = env.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    return env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general).strip()


def _url(settings: TracingSettings, env: Mapping[str, str]) -> str:
    """The traces URL; only the signal's own variable is taken as it is (OTLP specification)."""
    exact = env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    general = env.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    if exact:
        source, url = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", exact
    elif general:
        source, url = "OTEL_EXPORTER_OTLP_ENDPOINT", general.rstrip("/") + "/v1/traces"
    elif settings.endpoint:
        source, url = "tracing.endpoint", settings.endpoint.rstrip("/") + "/v1/traces"
    else:
        return ""
    if not url.startswith(("http://", "https://")):
        raise UserError(f"{source}: not an http(s) URL; write it as http://collector:4318")
    return url


def batch(env: Mapping[str, str]) -> Batch:
    """Read OTEL_BSP_*. The SDK itself logs a traceback for a word that is no number, and ends the
    program over a queue that is smaller than a batch.
    """
    found = Batch()
    for variable, name in _BATCH.items():
        said = env.get(variable, "").strip()
        if re.fullmatch("0*[1-9][0-9]{0,8}", said):
            found = found._replace(**{name: int(said)})
        elif said:
            held = getattr(found, name)
            log.warning("%s: ignored, not a whole number above 0; %d holds", variable, held)
    return found._replace(batch_size=min(found.batch_size, found.queue_size))


def make(settings: TracingSettings, identity: NodeIdentity, env: Mapping[str, str]) -> Tracing:
    """Build tracing. The SDK reads its own OTEL_* variables (sampler, batches, headers) from the
    process environment. Raises UserError for an endpoint that is no URL and for variables that
    the SDK refuses."""
    wanted = plan(settings, env)
    if not wanted.url and not wanted.console:
        return NullTracing()
    from agent.observe import otel

    try:
        return otel.OtelTracing(otel.exporters(wanted.url, console=wanted.console), identity, env)
    except Exception as exc:  # a number or word in OTEL_* that the SDK cannot read
        line = clean(str(exc), 300) or type(exc).__name__
        raise UserError(f"tracing: an OTEL_* variable cannot be used: {line}") from exc
