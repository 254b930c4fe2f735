"""The words and the JSON of `dra-agent explain --pod`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent import names
from agent.commands.outlook import Plan, would_do
from agent.core import evidence
from agent.core.classify import Explanation, RuleSet
from agent.core.model import Culprit, Failure, Kind, Surface, Verdict
from agent.core.pods import Pod
from agent.core.text import clean
from agent.settings.model import AgentConfig

KIND = "PodExplanation"

_ROWS = (
    ("cause", "cause"),
    ("verdict", "verdict"),
    ("culprit", "culprit"),
    ("rule", "rule"),
    ("matched", "matched"),
    ("matched at", "matchedAt"),
    ("hint", "hint"),
    ("parameters", "parametersFrom"),
    ("class", "deviceClass"),
    ("suspect", "suspect"),
    ("blocked by", "blockedBy"),
    ("also held by", "alsoHeldBy"),
    ("taints", "taints"),
    ("attempts", "attempts"),
    ("last error", "lastTime"),
    ("trace", "traceID"),
)
_STATES = {
    "blocked": "blocked: not at fault, something else of its claim or call failed",
    "pending": "not asked for yet",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What the cluster knows about the pod."""

    pod: Pod
    source: str  # annotation | event | condition | none
    devices: list[dict[str, Any]]
    event: str = ""
    outcome: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """What the agent would do about one claim's failure of one driver."""

    claim: str
    driver: str
    mode: str
    plan: Plan

    def document(self) -> dict[str, Any]:
        """Its JSON form."""
        return {
            "claim": self.claim,
            "driver": self.driver,
            "mode": self.mode,
            "attempts": self.plan.attempts,
            "outcome": self.plan.outcome,
            "held": self.plan.held,
            "would": list(self.plan.lines),
        }


def plans(
    devices: Sequence[Mapping[str, Any]], rules: RuleSet, config: AgentConfig
) -> list[ClaimPlan]:
    """Say for each failed claim and driver what would be done about it under a config."""
    found: dict[tuple[str, str], ClaimPlan] = {}
    for device in devices:
        key = claim, driver = str(device.get("claim")), str(device.get("driver"))
        if device.get("state") != "failed" or key in found:
            continue
        said = str(device.get("cause") or "")
        failure = Failure(driver, "prepare", Surface.CLAIM_ERROR, said)
        explanation = _explanation(device, rules.explain(failure))
        plan = would_do(explanation, config, failure)
        found[key] = ClaimPlan(claim, driver, config.mode_of(driver), plan)
    return list(found.values())


def _explanation(device: Mapping[str, Any], now: Explanation) -> Explanation:
    """What was written decides; where the rules say the same today, they know more."""
    verdict, rule = now.verdict, str(device.get("rule") or "")
    try:
        kind, culprit = Kind(str(device.get("verdict"))), Culprit(str(device.get("culprit")))
    except ValueError:
        return now
    if (verdict.rule, verdict.kind, verdict.culprit) == (rule, kind, culprit):
        return now
    explicit = rule == evidence.PERMANENT_ERROR
    told = Verdict(kind, culprit, rule, explicit=explicit)
    if now.pack is not None and kind is Kind.AMBIGUOUS:
        told = replace(told, max_attempts=now.pack.repeat.max_attempts)
    return replace(now, verdict=told)


def readable(found: Found, plans: Sequence[ClaimPlan]) -> str:
    """Return what a person reads."""
    pod = found.pod
    said = pod.condition(names.CONDITION_PREPARED)
    where = f" on {pod.node}" if pod.node else ""
    lines = [f"pod {pod.namespace}/{pod.name}: {pod.phase}{where}"]
    if said is not None:
        lines.append(f"{said.type}={said.status} ({said.reason}): {clean(said.message, 4096)}")
    if found.source == "event":
        lines.append(f"kubelet says: {clean(found.event, 2048)}")
    if found.outcome:
        lines.append(f"the agent: {clean(found.outcome, 512)}")
    for device in found.devices:
        lines += ["", *_device(device)]
    if not found.devices and found.source == "none":
        lines.append("no failure of its devices is on record: no condition, annotation or event")
    for plan in plans:
        title = f"claim {plan.claim}, {plan.driver}: what the agent does in {plan.mode} mode"
        lines += ["", clean(title, 1024)]
        lines += [f"  - {line}" for line in plan.plan.lines]
    lines += [f"note: {clean(note, 300)}" for note in dict.fromkeys(found.notes)]
    return "\n".join(lines)


def _device(device: Mapping[str, Any]) -> list[str]:
    state = _STATES.get(str(device.get("state")), str(device.get("state")))
    if device.get("atFault"):
        state += ", at fault"
    place = f"{device.get('device')} of {device.get('driver')} (claim {device.get('claim')})"
    lines = [clean(f"{place}: {state}", 1024)]
    for title, key in _ROWS:
        value = device.get(key)
        if value not in (None, "", [], 0):
            lines.append(f"  {title + ':':<13} {clean(_words(value), 1024)}")
    return lines


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def as_json(found: Found, plans: Sequence[ClaimPlan]) -> str:
    """Return one JSON object; fields are added, never renamed."""
    pod = found.pod
    said = pod.condition(names.CONDITION_PREPARED)
    body = {
        "apiVersion": names.CONFIG_API_VERSION,
        "kind": KIND,
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "node": pod.node,
        "phase": pod.phase,
        "source": found.source,
        "condition": said
        and {"status": said.status, "reason": said.reason, "message": said.message},
        "event": clean(found.event, 4096),
        "outcome": found.outcome,
        "devices": found.devices,
        "plans": [plan.document() for plan in plans],
        "notes": list(dict.fromkeys(found.notes)),
    }
    return json.dumps(body, indent=2, ensure_ascii=False)
