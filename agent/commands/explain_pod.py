"""`dra-agent explain --pod`: what became of each device of a pod, read from the cluster.

The agent's annotation and conditions say it best. Without them kubelet's last event about the pod
is explained by the rules, so this works where no agent runs, too. Rights and address are those of
the user's kubeconfig.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from agent import names
from agent.commands import pod_text
from agent.commands.pod_events import Said, failures_in
from agent.commands.pod_text import Found
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
from agent.settings.model import AgentConfig

EVENT = "FailedPrepareDynamicResources"


def explain_pod(
    target: str,
    *,
    kubeconfig: str,
    env: Mapping[str, str],
    rules: RuleSet,
    config: AgentConfig,
    as_json: bool = False,
) -> str:
    """Return the explanation of the pod `namespace/name`. Raises UserError with one line."""
    namespace, slash, name = target.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise UserError(f"--pod: write NAMESPACE/NAME, not {clean(target, 100)!r}")
    path, option = (kubeconfig, "--kubeconfig") if kubeconfig else access.users_kubeconfig(env)
    found = asyncio.run(_read(path, option, namespace, name, rules=rules))
    plans = pod_text.plans(found.devices, rules, config)
    return pod_text.as_json(found, plans) if as_json else pod_text.readable(found, plans)


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
            if verdict.device or verdict.where:
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
