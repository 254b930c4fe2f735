"""What a good config says that does nothing, or less than its reader may think."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from agent.settings.model import AgentConfig


def enforces(config: AgentConfig) -> bool:
    """True where mode enforce holds for any driver."""
    modes = (special.mode for special in config.drivers.per_driver.values())
    return "enforce" in (config.mode, *modes)


def notes(config: AgentConfig) -> Iterator[str]:
    """One line for each; none of them is a mistake that keeps the agent from starting."""
    if _nothing_served(config):
        yield "drivers.deny leaves no driver of drivers.allow: none is served"
    registration = config.registration_settings
    if registration.kind == "overlay" and registration.intake_dir:
        yield "registration.intakeDir has no effect: it is for `intake`, and `overlay` holds"
    if config.taint.enabled:
        yield "taint.enabled has no effect yet: no device is tainted"
    if enforces(config) and not config.report.enabled:
        yield "report.enabled is false: no pod is failed, in mode enforce neither"


def failing(config: AgentConfig) -> str:
    """Where mode enforce fails pods."""
    outcome = config.outcome
    if outcome.parameters == outcome.claim == "Report":
        return "never failed: outcome.parameters and outcome.claim are Report"
    if not outcome.kubelet_versions:
        return "never failed: outcome.kubeletVersions is empty"
    versions = ", ".join(outcome.kubelet_versions)
    return f"failed only on kubelet {versions} (outcome.kubeletVersions); on others only told"


def _nothing_served(config: AgentConfig) -> bool:
    deny = config.drivers.deny
    return all(
        glob in deny or any(fnmatchcase(glob, denied) for denied in deny if "?" not in denied)
        for glob in config.drivers.allow
    )
