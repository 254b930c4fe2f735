"""`dra-agent explain --pod`: what became of each device of a pod, read from the cluster.

The agent's annotation and conditions say it best. Without them kubelet's last event about the pod
is explained by the rules, so this works where no agent runs, too. Rights and address are those of
the user's kubeconfig.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent import names
from agent.commands.pod_events import Said, failures_in
from agent.core import annotation
from agent.core.classify import RuleSet
from agent.core.context import Context
from agent.core.history import History, Key
from agent.core.model import DeviceState, Verdict
from agent.core.pods import Claim, Pod
from agent.core.record import build
from agent.core.text import clean
from agent.errors import UserError
from agent.kube import access
from agent.kube.client import Kube
from agent.kube.errors import Denied, KubeError, NotFound
from agent.kube.parse import parse_claim, parse_pod, parse_slice

KIND = "PodExplanation"
EVENT = "FailedPrepareDynamicResources"

_ROWS = (
    ("cause", "cause"),
    ("verdict", "verdict"),
    ("culprit", "culprit"),
    ("rule", "rule"),
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


def explain_pod(
    target: str, *, kubeconfig: str, env: Mapping[str, str], rules: RuleSet, as_json: bool = False
) -> str:
    """Return the explanation of the pod `namespace/name`. Raises UserError with one line."""
    namespace, slash, name = target.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise UserError(f"--pod: write NAMESPACE/NAME, not {clean(target, 100)!r}")
    path = kubeconfig or access.users_kubeconfig(env)
    option = "--kubeconfig" if kubeconfig else "KUBECONFIG"
    found = asyncio.run(_read(path, option, namespace, name, rules=rules))
    return _json(found) if as_json else _readable(found)


async def _read(path: str, option: str, namespace: str, name: str, *, rules: RuleSet) -> Found:
    kube = await Kube.open(kubeconfig=path, option=option)
    assert kube is not None  # a path was given
    try:
        return await _Reader(kube, rules).find(namespace, name)
    except NotFound as exc:
        raise UserError(f"pod {namespace}/{name}: there is no such pod in this cluster") from exc
    except Denied as exc:
        raise UserError(f"the API server refuses: {clean(str(exc), 300)}") from exc
    except KubeError as exc:
        what = "does not accept the credentials" if exc.code == 401 else "gives no answer"
        raise UserError(f"{option}: the API server {what}: {clean(str(exc), 300)}") from exc
    finally:
        await kube.close()


class _Reader:
    def __init__(self, kube: Kube, rules: RuleSet) -> None:
        self._kube = kube
        self._rules = rules
        self._notes: list[str] = []

    async def find(self, namespace: str, name: str) -> Found:
        pod = parse_pod(await self._kube.get_pod(namespace, name))
        written = pod.annotation(names.ANNOTATION_FAILURES)
        devices = annotation.read(written)
        if devices:
            return Found(pod, "annotation", devices, outcome=_outcome(written))
        said = pod.condition(names.CONDITION_PREPARED)
        event = await self._event(pod)
        if event and not (said and said.status == "True"):
            devices = await self._from_event(pod, event)
            return Found(pod, "event", devices, event, notes=tuple(self._notes))
        return Found(pod, "condition" if said else "none", [], notes=tuple(self._notes))

    async def _event(self, pod: Pod) -> str:
        """Return kubelet's latest words about the pod's devices."""
        try:
            events = await self._kube.list_events(pod.namespace, pod.uid, EVENT)
        except Denied:
            self._notes.append("kubelet's events cannot be read: no right to list events")
            return ""
        latest = max(events, key=_time, default={})
        return str(latest.get("message") or "")

    async def _from_event(self, pod: Pod, event: str) -> list[dict[str, Any]]:
        claims = await self._claims(pod)
        histories: dict[Key, History] = {}
        inventory = []
        for said, claim, driver in _whose(failures_in(event), claims, self._notes):
            verdict = self._rules.classify(said.failure(driver))
            histories[driver, claim.uid] = _history(said, verdict)
            if verdict.device:
                inventory += await self._slices(driver, pod)
        record = build(claims, histories, context=Context(tuple(inventory)))
        return annotation.entries(record)

    async def _claims(self, pod: Pod) -> list[Claim]:
        found = []
        for name in pod.claims:
            try:
                found.append(parse_claim(await self._kube.get_claim(pod.namespace, name)))
            except NotFound:
                self._notes.append(f"claim {name} does not exist any more")
        return found

    async def _slices(self, driver: str, pod: Pod) -> list[Any]:
        try:
            raw = await self._kube.list_slices(driver, pod.node)
        except Denied:
            self._notes.append("ResourceSlices cannot be read: no right to list resourceslices")
            return []
        return [device for each in raw for device in parse_slice(each)]


def _whose(
    failures: list[Said], claims: list[Claim], notes: list[str]
) -> list[tuple[Said, Claim, str]]:
    """Find claim and driver of what was said. An event tells them only in part."""
    found = []
    for said in failures:
        for claim in claims:
            if said.claim and said.claim != claim.name:
                continue
            drivers = sorted(d for d in claim.drivers if not said.driver or d == said.driver)
            if len(drivers) > 1:
                notes.append(
                    f"the event does not say which driver of claim {claim.name} failed; "
                    "all of them are shown"
                )
            found += [(said, claim, driver) for driver in drivers]
    return found


def _history(said: Said, verdict: Verdict) -> History:
    text = clean(said.text, 1024)
    return History(DeviceState.FAILED, verdict, first_error=text, last_error=text)


def _outcome(written: str) -> str:
    document = json.loads(written)
    return ": ".join(str(document[k]) for k in ("outcome", "reason") if document.get(k))


def _time(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _readable(found: Found) -> str:
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


def _json(found: Found) -> str:
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
        "notes": list(dict.fromkeys(found.notes)),
    }
    return json.dumps(body, indent=2, ensure_ascii=False)
