"""The sections of the config file; `agent.settings.model` puts them together.

Durations are strings such as `250ms`, `5s`, `10m`, `1h`; in the program they are seconds (float).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agent.settings.durations import Duration

Mode = Literal["observe", "enforce"]


class Section(
    msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True, kw_only=True
):
    """Base of all sections: strict keys, camelCase in YAML, frozen."""


class Retry(Section, frozen=True):
    """How a failed prepare is tried again inside kubelet's own call."""

    initial_delay: Annotated[
        Duration, Meta(description="Wait before the second attempt; doubles each time.")
    ] = Duration(0.25)
    max_delay: Annotated[Duration, Meta(description="Longest wait between two attempts.")] = (
        Duration(5.0)
    )
    jitter: Annotated[float, Meta(ge=0, le=1, description="Share of each wait that is random.")] = (
        0.5
    )
    margin: Annotated[
        Duration,
        Meta(
            description=(
                "No attempt begins later than this before kubelet's deadline; one in flight may "
                "last until 0.5 s before it."
            )
        ),
    ] = Duration(3.0)
    ambiguous_attempts: Annotated[
        int, Meta(ge=1, description="Attempts per call for a failure that no rule knows.")
    ] = 4
    ambiguous_time: Annotated[
        Duration, Meta(description="Time per call for a failure that no rule knows.")
    ] = Duration(5.0)
    unprepare_wait: Annotated[
        Duration,
        Meta(
            description=(
                "An unprepare waits for its claim's prepare in flight until its own deadline "
                "less this."
            )
        ),
    ] = Duration(10.0)


class PerDriver(Section, frozen=True):
    """What differs for one driver name; what is not given is taken from the top level."""

    mode: Annotated[Mode | None, Meta(description="Mode for this driver.")] = None
    retry: Annotated[Retry | None, Meta(description="Any keys of `retry`, for this driver.")] = None


class Drivers(Section, frozen=True):
    """Which drivers are served, and how they are found."""

    allow: Annotated[list[str], Meta(description="Driver names to serve; `*` and `?` match.")] = (
        msgspec.field(default_factory=lambda: ["*"])
    )
    deny: Annotated[
        list[str], Meta(description="Driver names never to serve; wins over `allow`.")
    ] = msgspec.field(default_factory=list)
    rescan: Annotated[
        Duration,
        Meta(description="The registry is read again this often, in case inotify lost something."),
    ] = Duration(30.0)
    driver_absence_hold: Annotated[
        Duration, Meta(description="How long prepares wait for a driver that is away.")
    ] = Duration(10.0)
    reconnect: Annotated[
        Duration, Meta(description="A driver that is away is tried this often, beside inotify.")
    ] = Duration(0.25)
    per_driver: Annotated[dict[str, PerDriver], Meta(description="By exact driver name.")] = (
        msgspec.field(default_factory=dict)
    )


class Overlay(Section, frozen=True):
    """Periods of the overlay registration (see docs/registration.md)."""

    get_info_delay: Annotated[
        Duration,
        Meta(
            description=(
                "GetInfo is answered this late, to come after the driver; kubelet's limit is 1 s."
            )
        ),
    ] = Duration(0.3)
    renew_delay: Annotated[
        Duration, Meta(description="A renewal comes this long after its trigger.")
    ] = Duration(2.0)
    renew_again: Annotated[
        list[Duration],
        Meta(description="After a kubelet or driver restart, renew again after these."),
    ] = msgspec.field(default_factory=lambda: [Duration(10.0), Duration(150.0)])
    retire_after: Annotated[
        Duration,
        Meta(description="An older generation stays this long once kubelet uses a newer one."),
    ] = Duration(60.0)
    max_generations: Annotated[
        int, Meta(ge=2, le=8, description="At most this many generations of one driver.")
    ] = 3


class Registration(Section, frozen=True):
    """Where the agent stands between kubelet and driver."""

    kind: Annotated[
        Literal["overlay", "intake"],
        Meta(
            description=(
                "overlay: register after the driver; intake: the driver registers with the agent."
            )
        ),
    ] = "overlay"
    intake_dir: Annotated[
        str,
        Meta(
            description=(
                "intake only: the directory drivers register in; default <kubelet "
                "root>/plugins/dra-agent.io/intake."
            )
        ),
    ] = ""
    overlay: Overlay = msgspec.field(default_factory=Overlay)


class Rules(Section, frozen=True):
    """Failure classification."""

    files: Annotated[
        list[str], Meta(description="Rule files that come before the built-in rules.")
    ] = msgspec.field(default_factory=list)
    builtin: Annotated[bool, Meta(description="Use the rules that ship with the agent.")] = True


Action = Literal["Report", "FailPod"]


class Outcome(Section, frozen=True):
    """What enforce mode does about a permanent failure, by culprit."""

    parameters: Annotated[
        Literal["Report", "FailPod", "Default"],
        Meta(description="Default: FailPod for Jobs and bare pods, Report for others."),
    ] = "Default"
    claim: Annotated[
        Literal["Report", "FailPod", "Default"], Meta(description="As `parameters`.")
    ] = "Default"
    fail_delay: Annotated[
        Duration,
        Meta(
            description=(
                "Shortest time between the answer to kubelet and the Failed patch; at least 1.2 s, "
                "or the pod's phase may flap."
            )
        ),
    ] = Duration(1.2)
    min_between_failures: Annotated[
        Duration, Meta(description="Shortest time between two failed pods of one owner.")
    ] = Duration(60.0)
    hold: Annotated[
        Duration,
        Meta(description="How long a permanent verdict answers kubelet's repeats; doubles."),
    ] = Duration(600.0)
    hold_max: Annotated[Duration, Meta(description="Longest hold.")] = Duration(3600.0)
    kubelet_versions: Annotated[
        list[str], Meta(description="Minor versions of kubelet on which FailPod is allowed.")
    ] = msgspec.field(default_factory=lambda: ["1.34", "1.37"])


class Taint(Section, frozen=True):
    """Device taints. Not active yet: a device at fault is reported."""

    enabled: Annotated[bool, Meta(description="No effect yet.")] = False
