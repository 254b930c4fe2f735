"""The config file as types. `docs/configuration.md` and `config/agent.schema.json` come from here.

Durations are strings such as `250ms`, `5s`, `10m`, `1h`; in the program they are seconds (float).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agent import names
from agent.settings.durations import Duration
from agent.settings.outputs import Http, Log, Nudge, Report, Tracing
from agent.settings.sections import (
    Action,
    Drivers,
    Mode,
    Outcome,
    Overlay,
    PerDriver,
    Registration,
    Retry,
    Rules,
    Section,
    Taint,
)

__all__ = [
    "Action",
    "AgentConfig",
    "Drivers",
    "Duration",
    "Http",
    "Log",
    "Mode",
    "NodeIdentity",
    "Nudge",
    "Outcome",
    "Overlay",
    "PerDriver",
    "Registration",
    "Report",
    "Retry",
    "Rules",
    "Section",
    "Taint",
    "Tracing",
]


class AgentConfig(Section, frozen=True):
    """The whole file."""

    api_version: Annotated[
        Literal["dra-agent.io/v1alpha1"], Meta(description="Version of this format.")
    ] = names.CONFIG_API_VERSION  # type: ignore[assignment]  # a str to mypy
    kind: Annotated[Literal["AgentConfig"], Meta(description="Kind of this file.")] = "AgentConfig"
    mode: Annotated[Mode, Meta(description="observe: retry and tell; enforce: also act.")] = (
        "observe"
    )
    registration: Annotated[
        Literal["overlay", "intake"] | Registration,
        Meta(description="A word, or an object with periods."),
    ] = "overlay"
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
