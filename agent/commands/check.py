"""`dra-agent check-config`: what a config file means, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping

from agent.commands.settings import gather
from agent.core.classify import RuleSet
from agent.errors import UserError
from agent.settings import durations
from agent.settings.load import dump
from agent.settings.model import AgentConfig
from agent.settings.notes import enforces, failing, notes
from agent.settings.rulefiles import load_rules


def check(path: str, env: Mapping[str, str], *, whole: bool = False) -> str:
    """Return what to print for a good file; UserError with all problems of a bad one."""
    config, problems = gather(path, env=env)
    if problems:
        raise UserError(*problems)
    rules = load_rules(config.rules)
    if whole:
        return dump(config).rstrip("\n")
    return "\n".join([f"{path}: OK", *_highlights(config, rules)])


def _highlights(config: AgentConfig, rules: RuleSet) -> list[str]:
    render = durations.render
    retry, outcome = config.retry, config.outcome
    kind = config.registration_settings.kind
    served = ", ".join(config.drivers.allow)
    if config.drivers.deny:
        served += f"; never {', '.join(config.drivers.deny)}"
    acts = {
        "observe": "retries and tells; holds no verdict and fails no pod",
        "enforce": "also holds permanent verdicts and fails pods",
    }
    rows = [
        ("mode", f"{config.mode} ({acts[config.mode]})"),
        ("registration", kind),
        ("drivers", served),
        (
            "retry",
            f"after {render(retry.initial_delay)}, doubling to {render(retry.max_delay)}, until "
            f"{render(retry.margin)} before kubelet's deadline",
        ),
        ("rules", f"{len(rules.rules)}"),
        ("outcome", f"parameters {outcome.parameters}, claim {outcome.claim}, others Report"),
        *([("pods", failing(config))] if enforces(config) else []),
        ("report", _report(config)),
        ("tracing", config.tracing.endpoint or "off unless OTEL_EXPORTER_OTLP_ENDPOINT is set"),
        ("http", config.http.listen or "off"),
        ("log", f"{config.log.level}, {config.log.format}"),
    ]
    lines = [f"  {name + ':':<14}{value}" for name, value in rows]
    for name, special in sorted(config.drivers.per_driver.items()):
        own = [f"mode {config.mode_of(name)}"] + ["own retry"] * (special.retry is not None)
        lines.append(f"  {name}: {', '.join(own)}")
    return lines + [f"  note: {line}" for line in notes(config)]


def _report(config: AgentConfig) -> str:
    if not config.report.enabled:
        return "off (a pure proxy)"
    events = "with" if config.report.events else "without"
    by = config.report.kubeconfig or "the pod's service account"
    return f"pod status {events} events, by {by}"
