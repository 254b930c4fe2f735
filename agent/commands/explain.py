"""`dra-agent explain`: what a failure text means, and what the agent would do about it.

The JSON form is API (docs/classification.md): fields are added, never renamed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace

from agent import names
from agent.core import marker, text
from agent.core.classify import Explanation, RuleSet
from agent.core.model import Culprit, Failure, Kind, Verdict
from agent.errors import UserError
from agent.settings import durations
from agent.settings.model import AgentConfig, Retry

KIND = "Explanation"

MAX_INPUT = 1 << 20
"""Bytes read from standard input or a file."""

_MAX_NOTES = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What the agent would do: `attempts` is `once`, `limited`, `untilDeadline` or `none`."""

    attempts: str
    outcome: str  # "Report", "FailPod" or "Default" (depends on the pod's owner)
    held: bool
    lines: tuple[str, ...]


def explain(failure: Failure, rules: RuleSet, config: AgentConfig, *, as_json: bool = False) -> str:
    """Return the whole explanation, for a person or as one JSON object."""
    found = rules.explain(failure)
    plan = would_do(found, config, failure)
    notes = _notes(failure, found, rules)
    if as_json:
        return _json(failure, found, plan, notes, config)
    return _readable(failure, found, plan, notes, config)


def read_stdin() -> str:
    """Read the text from standard input, whatever its bytes are."""
    return sys.stdin.buffer.read(MAX_INPUT).decode("utf-8", "replace").rstrip("\n")


def read_file(path: str) -> str:
    """Read the text from a file; UserError where that is not possible."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_INPUT).decode("utf-8", "replace").rstrip("\n")
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def would_do(found: Explanation, config: AgentConfig, failure: Failure) -> Plan:
    """Say what the agent would do about this failure under this config."""
    if failure.operation == "unprepare":
        line = "Passes it on: kubelet repeats an unprepare itself, and only the driver may answer."
        return Plan("once", "Report", False, (line,))
    if found.verdict.kind is Kind.PERMANENT:
        return _permanent(found.verdict, config, failure.driver)
    return _retried(found.verdict, config.retry_of(failure.driver))


def _retried(verdict: Verdict, retry: Retry) -> Plan:
    report = "Tells it in the pod's status; the pod is never failed for this."
    if verdict.single_attempt:
        once = "Asks the driver once per kubelet call: a repeat is a risk with this driver."
        return Plan("once", "Report", False, (once, report))
    if verdict.max_attempts is not None:
        twice = "Repeats it once per kubelet call: more is a risk with this driver."
        return Plan("limited", "Report", False, (twice, report))
    pace = (
        f"waiting {durations.render(retry.initial_delay)}, doubling to "
        f"{durations.render(retry.max_delay)}"
    )
    if verdict.kind is Kind.TRANSIENT:
        until = f"until {durations.render(retry.margin)} before kubelet's deadline"
        line = f"Asks the driver again inside the same kubelet call, {pace}, {until}."
        return Plan("untilDeadline", "Report", False, (line, report))
    limit = (
        f"at most {retry.ambiguous_attempts} attempts or "
        f"{durations.render(retry.ambiguous_time)} per kubelet call"
    )
    return Plan("limited", "Report", False, (f"Asks again, {pace}, {limit}.", report))


def _permanent(verdict: Verdict, config: AgentConfig, driver: str) -> Plan:
    acts = verdict.explicit or config.mode_of(driver) == "enforce"
    outcome = _outcome(verdict.culprit, config)
    hold = (
        f"Answers kubelet's repeats itself for {durations.render(config.outcome.hold)}, doubling "
        f"to {durations.render(config.outcome.hold_max)}; the driver is not asked."
    )
    if acts:
        return Plan(
            "none", outcome, True, ("Does not ask again.", hold, _says(outcome, verdict.culprit))
        )
    return Plan(
        "none",
        "Report",
        False,
        (
            "Does not ask again within this kubelet call; kubelet's next call (60-90 s later) "
            "reaches the driver.",
            "Tells it in the pod's status.",
            f"In enforce mode: {_lower(hold)} {_says(outcome, verdict.culprit)}",
        ),
    )


def _outcome(culprit: Culprit, config: AgentConfig) -> str:
    if culprit is Culprit.PARAMETERS:
        return config.outcome.parameters
    if culprit is Culprit.CLAIM:
        return config.outcome.claim
    return "Report"


def _says(outcome: str, culprit: Culprit) -> str:
    if outcome == "FailPod":
        return "Fails the pod, where its kind and state allow it."
    if outcome == "Default":
        return "Fails the pod of a Job or a bare pod, where its state allows it; else tells it."
    if culprit is Culprit.DEVICE:
        return "Tells it in the pod's status; without a taint a new pod could get the same device."
    return "Tells it in the pod's status; a new pod on this node would meet the same."


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


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
