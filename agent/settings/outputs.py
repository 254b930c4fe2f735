"""The sections of the config file about what the agent tells: reports, traces, HTTP, logs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agent.settings.durations import Duration
from agent.settings.sections import Section


class Nudge(Section, frozen=True):
    """Makes kubelet look at a waiting pod at once when what it waited for is over."""

    enabled: Annotated[bool, Meta(description="false: kubelet looks again after 60-90 s.")] = True
    min_between: Annotated[
        Duration, Meta(description="Shortest time between two nudges of one pod.")
    ] = Duration(10.0)
    older_than: Annotated[
        Duration,
        Meta(
            description=(
                "After the agent's start only pods that have waited this long are nudged; their "
                "call may have been cut when an earlier agent ended."
            )
        ),
    ] = Duration(10.0)


class Report(Section, frozen=True):
    """What is written to the API server."""

    enabled: Annotated[bool, Meta(description="false: a pure proxy, facts go to the log only.")] = (
        True
    )
    kubeconfig: Annotated[
        str,
        Meta(description="Empty: the service account of the pod; without one, reporting is off."),
    ] = ""
    events: Annotated[bool, Meta(description="Write an Event when a device failed.")] = True
    retrying_after: Annotated[
        Duration,
        Meta(
            description=(
                "A prepare that is still being retried is said in the pod's status after this long."
            )
        ),
    ] = Duration(2.0)
    escalate_after_attempts: Annotated[
        int,
        Meta(
            ge=2,
            description=(
                "The same unknown failure of a claim is called no longer normal after so many "
                "attempts and escalateAfter."
            ),
        ),
    ] = 6
    escalate_after: Annotated[
        Duration, Meta(description="As above: both must be reached. It is told, never acted on.")
    ] = Duration(600.0)
    queue: Annotated[
        int,
        Meta(
            ge=1,
            le=100000,
            description="Facts waiting to be written; the oldest are dropped and counted.",
        ),
    ] = 1000
    nudge: Nudge = msgspec.field(default_factory=Nudge)


class Tracing(Section, frozen=True):
    """OpenTelemetry; the standard OTEL_* variables win."""

    endpoint: Annotated[
        str,
        Meta(
            description=(
                "OTLP/HTTP base URL, such as http://collector:4318; empty: no traces unless "
                "OTEL_EXPORTER_OTLP_ENDPOINT is set."
            )
        ),
    ] = ""


class Http(Section, frozen=True):
    """Health, metrics and state."""

    listen: Annotated[
        str, Meta(description="host:port; port 0 takes a free one; empty: no HTTP.")
    ] = "127.0.0.1:9880"


class Log(Section, frozen=True):
    """Logging to standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least serious level that is written."),
    ] = "info"
    format: Annotated[Literal["text", "json"], Meta(description="json: one object per line.")] = (
        "text"
    )
