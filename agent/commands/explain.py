"""`dra-agent explain`: what a failure text means, and what the agent would do about it.

The JSON form is API (docs/classification.md): fields are added, never renamed.
"""

from __future__ import annotations

import json
from dataclasses import replace

from agent import names
from agent.commands.outlook import Plan, would_do
from agent.core import marker, text
from agent.core.classify import Explanation, RuleSet
from agent.core.model import Failure, Verdict
from agent.settings.model import AgentConfig

KIND = "Explanation"

_MAX_NOTES = 3


def explain(failure: Failure, rules: RuleSet, config: AgentConfig, *, as_json: bool = False) -> str:
    """Return the whole explanation, for a person or as one JSON object."""
    found = rules.explain(failure)
    plan = would_do(found, config, failure)
    notes = _notes(failure, found, rules)
    if as_json:
        return _json(failure, found, plan, notes, config)
    return _readable(failure, found, plan, notes, config)


def _notes(failure: Failure, found: Explanation, rules: RuleSet) -> list[str]:
    """Say what was not believed, and which drivers' own rules would judge otherwise."""
    other = sorted({one.claim for one in marker.markers(failure.text)} - {failure.claim})
    if other:
        named = text.clean(other[0], 80)
        return [f"a marker for claim {named} counts only with that claim: --claim {named}"]
    if failure.driver or failure.transport is not None:
        return []
    drivers = sorted({glob for rule in rules.rules if not rule.generic for glob in rule.drivers})
    notes = []
    for driver in drivers:
        special = rules.explain(replace(failure, driver=driver))
        if special.matched and special.rule != found.rule:
            verdict = special.verdict
            notes.append(
                f"with --driver {driver}: {verdict.kind}, {verdict.culprit} ({verdict.rule})"
            )
    return notes[:_MAX_NOTES]


def _json(
    failure: Failure, found: Explanation, plan: Plan, notes: list[str], config: AgentConfig
) -> str:
    verdict = found.verdict
    body = {
        "apiVersion": names.CONFIG_API_VERSION,
        "kind": KIND,
        "text": text.clean(failure.text, 4096),
        "driver": failure.driver,
        "operation": failure.operation,
        "surface": str(failure.surface),
        "code": failure.code,
        "verdict": str(verdict.kind),
        "culprit": str(verdict.culprit),
        "device": verdict.device and text.clean(verdict.device, 253),
        "rule": verdict.rule,
        "matched": found.matched,
        "explicit": verdict.explicit,
        "singleAttempt": verdict.single_attempt,
        "maxAttempts": verdict.max_attempts,
        "retryAfterSeconds": verdict.retry_after,
        "blamed": verdict.blamed and text.clean(verdict.blamed, 253),
        "repeat": _repeat(found),
        "hint": verdict.hint,
        "source": found.rule.source if found.rule else "",
        "mode": config.mode_of(failure.driver),
        "attempts": plan.attempts,
        "outcome": plan.outcome,
        "held": plan.held,
        "notes": notes,
    }
    return json.dumps(body, indent=2, ensure_ascii=False)


def _device(verdict: Verdict) -> str:
    if verdict.device is None:
        return ""
    name = text.clean(verdict.device, 253)
    return name if verdict.blamed else f"{name} (named, not at fault)"


def _repeat(found: Explanation) -> dict[str, str] | None:
    pack = found.pack
    if pack is None:
        return None
    return {"withinCall": pack.repeat, "reason": pack.reason, "source": pack.source}


def _repeats(found: Explanation) -> str:
    """What the driver's pack says about asking twice, where that limits this failure."""
    pack = found.pack
    if pack is None or found.verdict.max_attempts is None:
        return ""
    return f"{pack.repeat} within a call. {pack.reason} ({pack.source})"


def _readable(
    failure: Failure, found: Explanation, plan: Plan, notes: list[str], config: AgentConfig
) -> str:
    verdict = found.verdict
    explicit = " (the driver said permanent_error)" if verdict.explicit else ""
    default = "no rule knows this text" if found.rule is None and not explicit else ""
    rows = [
        ("verdict", f"{verdict.kind}{explicit}"),
        ("culprit", str(verdict.culprit)),
        ("device", _device(verdict)),
        ("rule", f"{verdict.rule}{f' ({default})' if default else ''}"),
        ("matched", text.quote(found.matched, 200) if found.matched else ""),
        ("hint", verdict.hint),
        ("source", found.rule.source if found.rule else ""),
        ("repeats", _repeats(found)),
    ]
    lines = [f"{name + ':':<9} {value}" for name, value in rows if value]
    lines.append(f"\nThe agent, in {config.mode_of(failure.driver)} mode:")
    lines.extend(f"  - {line}" for line in plan.lines)
    if notes:
        lines.append("\nNotes:")
        lines.extend(f"  - {note}" for note in notes)
    return "\n".join(lines)
