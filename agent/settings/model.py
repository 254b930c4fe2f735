"""The config file as types. `docs/configuration.md` and `config/agent.schema.json` come from here.

Durations are strings such as `250ms`, `5s`, `10m`, `1h`; in the program they are seconds (float).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agent import names


class Duration(float):
    """Seconds. Written in config as `250ms`, `3s`, `2m`, `1h`."""


Mode = Literal["observe", "enforce"]


class Section(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True, kw_only=True):
    """Base of all sections: strict keys, camelCase in YAML, frozen."""


class Retry(Section):
    """How a failed prepare is tried again inside kubelet's own call."""

    initial_delay: Annotated[Duration, Meta(description="Wait before the second attempt; doubles each time.")] = Duration(0.25)
    max_delay: Annotated[Duration, Meta(description="Longest wait between two attempts.")] = Duration(5.0)
    jitter: Annotated[float, Meta(ge=0, le=1, description="Share of each wait that is random.")] = 0.5
    margin: Annotated[Duration, Meta(description="Kubelet is answered this long before its own deadline.")] = Duration(3.0)
    ambiguous_attempts: Annotated[int, Meta(ge=1, description="Attempts per call for a failure that no rule knows.")] = 4
    ambiguous_time: Annotated[Duration, Meta(description="Time per call for a failure that no rule knows.")] = Duration(5.0)
    unprepare_wait: Annotated[Duration, Meta(description="An unprepare waits for its claim's prepare in flight until its own deadline less this.")] = Duration(10.0)


class PerDriver(Section):
    """What differs for one driver name; what is not given is taken from the top level."""

    mode: Mode | None = None
    retry: Retry | None = None


class Drivers(Section):
    """Which drivers are served, and how they are found."""

    allow: Annotated[list[str], Meta(description="Driver names to serve; `*` and `?` match.")] = msgspec.field(default_factory=lambda: ["*"])
    deny: Annotated[list[str], Meta(description="Driver names never to serve; wins over `allow`.")] = msgspec.field(default_factory=list)
    rescan: Annotated[Duration, Meta(description="The registry is read again this often, in case inotify lost something.")] = Duration(30.0)
    driver_absence_hold: Annotated[Duration, Meta(description="How long prepares wait for a driver that is away.")] = Duration(10.0)
    reconnect: Annotated[Duration, Meta(description="A driver that is away is tried this often, beside inotify.")] = Duration(0.25)
    per_driver: Annotated[dict[str, PerDriver], Meta(description="By exact driver name.")] = msgspec.field(default_factory=dict)


class Overlay(Section):
    """Periods of the overlay registration (see docs/registration.md)."""

    get_info_delay: Annotated[Duration, Meta(description="GetInfo is answered this late, to come after the driver; kubelet's limit is 1 s.")] = Duration(0.3)
    renew_delay: Annotated[Duration, Meta(description="A renewal comes this long after its trigger.")] = Duration(2.0)
    renew_again: Annotated[list[Duration], Meta(description="After a kubelet or driver restart, renew again after these.")] = msgspec.field(default_factory=lambda: [Duration(10.0), Duration(150.0)])
    retire_after: Annotated[Duration, Meta(description="An older generation stays this long after kubelet connected to a newer one.")] = Duration(60.0)
    max_generations: Annotated[int, Meta(ge=2, le=8, description="At most this many generations of one driver.")] = 3


class Registration(Section):
    """Where the agent stands between kubelet and driver."""

    kind: Annotated[Literal["overlay", "intake"], Meta(description="overlay: register after the driver; intake: the driver registers with the agent.")] = "overlay"
    intake_dir: Annotated[str, Meta(description="intake only: the directory drivers register in; default <kubelet root>/plugins/dra-agent.io/intake.")] = ""
    overlay: Overlay = msgspec.field(default_factory=Overlay)


class Rules(Section):
    """Failure classification."""

    files: Annotated[list[str], Meta(description="Rule files that come before the built-in rules.")] = msgspec.field(default_factory=list)
    builtin: Annotated[bool, Meta(description="Use the rules that ship with the agent.")] = True


Action = Literal["Report", "FailPod"]


class Outcome(Section):
    """What enforce mode does about a permanent failure, by culprit."""

    parameters: Annotated[Literal["Report", "FailPod", "Default"], Meta(description="Default: FailPod for Jobs and bare pods, Report for others.")] = "Default"
    claim: Annotated[Literal["Report", "FailPod", "Default"], Meta(description="As `parameters`.")] = "Default"
    fail_delay: Annotated[Duration, Meta(description="Shortest time between the answer to kubelet and the Failed patch; below 1.2 s kubelet may flap.")] = Duration(1.2)
    min_between_failures: Annotated[Duration, Meta(description="Shortest time between two failed pods of one owner.")] = Duration(60.0)
    hold: Annotated[Duration, Meta(description="How long a permanent verdict answers kubelet's repeats; doubles.")] = Duration(600.0)
    hold_max: Annotated[Duration, Meta(description="Longest hold.")] = Duration(3600.0)
    kubelet_versions: Annotated[list[str], Meta(description="Minor versions of kubelet on which FailPod is allowed.")] = msgspec.field(default_factory=lambda: ["1.34", "1.37"])


class Taint(Section):
    """Device taints. Not active yet: a device at fault is reported."""

    enabled: bool = False


class Report(Section):
    """What is written to the API server."""

    enabled: Annotated[bool, Meta(description="false: a pure proxy, facts go to the log only.")] = True
    kubeconfig: Annotated[str, Meta(description="Empty: the service account of the pod; without one, reporting is off.")] = ""
    events: Annotated[bool, Meta(description="Write an Event when a device failed.")] = True
    retrying_after: Annotated[Duration, Meta(description="A prepare that is still being retried is said in the pod's status after this long.")] = Duration(2.0)
    queue: Annotated[int, Meta(ge=1, le=100000, description="Facts waiting to be written; the oldest are dropped and counted.")] = 1000


class Tracing(Section):
    """OpenTelemetry; the standard OTEL_* variables win."""

    endpoint: Annotated[str, Meta(description="OTLP/HTTP base URL, such as http://collector:4318; empty: no traces unless OTEL_EXPORTER_OTLP_ENDPOINT is set.")] = ""


class Http(Section):
    """Health, metrics and state."""

    listen: Annotated[str, Meta(description="host:port; port 0 takes a free one; empty: no HTTP.")] = "127.0.0.1:9880"


class Log(Section):
    """Logging to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class AgentConfig(Section):
    """The whole file."""

    api_version: Annotated[Literal["dra-agent.io/v1alpha1"], Meta(description="Version of this format.")] = names.CONFIG_API_VERSION  # type: ignore[assignment]
    kind: Literal["AgentConfig"] = "AgentConfig"
    mode: Annotated[Mode, Meta(description="observe: retry and tell; enforce: also act.")] = "observe"
    registration: Annotated[Literal["overlay", "intake"] | Registration, Meta(description="A word, or an object with periods.")] = "overlay"
    drivers: Drivers = msgspec.field(default_factory=Drivers)
    retry: Retry = msgspec.field(default_factory=Retry)
    rules: Rules = msgspec.field(default_factory=Rules)
    outcome: Outcome = msgspec.field(default_factory=Outcome)
    taint: Taint = msgspec.field(default_factory=Taint)
    report: Report = msgspec.field(default_factory=Report)
    tracing: Tracing = msgspec.field(default_factory=Tracing)
    http: Http = msgspec.field(default_factory=Http)
    log: Log = msgspec.field(default_factory=Log)

    def mode_of(self, driver: str) -> Mode:
        """Mode that holds for one driver."""
        special = self.drivers.per_driver.get(driver)
        return (special.mode if special else None) or self.mode

    def retry_of(self, driver: str) -> Retry:
        """Retry settings that hold for one driver."""
        special = self.drivers.per_driver.get(driver)
        return (special.retry if special else None) or self.retry

    @property
    def registration_settings(self) -> Registration:
        """The long form of `registration`."""
        if isinstance(self.registration, Registration):
            return self.registration
        return Registration(kind=self.registration)


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Where we run: from flags and the downward API, never from the file."""

    node_name: str
    kubelet_root: str = "/var/lib/kubelet"
    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    only_driver: str = ""  # sidecar: serve this driver alone
