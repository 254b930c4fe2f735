"""From raw observations to facts that can be compared: a path for each, names made equal.

Paths (DRIVER is "main" or the suffix of its name, POD the pod's role):

    registration.DRIVER.services      the service that the kubelet chose, each once
    registration.DRIVER.number        registrations
    registration.DRIVER.failures      what the kubelet said of failed ones, each once
    registration.DRIVER.timeouts      how many of them ran out of time
    registration.DRIVER.unregistered  how often the kubelet said that one has gone
    registration.DRIVER.notified      what the driver was told, repeats left out
    events.POD.REASON                 types and messages, each once
    calls.DRIVER.METHOD.CODE          the kubelet's calls, by its own metric
    skipped.DRIVER.METRIC             calls that it says it left out
    bypassed.DRIVER                   calls that the kubelet made at the driver's own endpoint
    checkpoint.MARK                   claims in dra_manager_state at a moment
    in_use.MARK                       claims of each driver by the kubelet's metric at that moment
    slices.DRIVER.wipes, .kept        how often all went; whether the first are still there
    pods.POD.phases, .reasons, .restarts, .annotations, .health
    pods.POD.conditions               their kinds; the kubelet's own only of one that ran
    pods.POD.waiting                  why containers waited, but for what all wait for
    pods.POD.last                     the kubelet's conditions of one that ran, before its end
    driver.DRIVER.calls.CLAIM         what it was asked and answered in order by which instance,
                                      repeats left out
    driver.DRIVER.attempts.OP         how often
    driver.DRIVER.restarted.OP        of these, how often after the kubelet's restart
    driver.DRIVER.services, .deadline
    driver.DRIVER.connections         the most at the same time at its service's socket
    seconds.NAME                      measured by the scenario

The kubelet's dra_operations_duration_seconds is left out: it names no driver, and both sides share
a kubelet.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

from .side import DIRECT, NOISE

# The controller that makes claims had not seen the template yet, and tries again: its own race.
NOT_SEEN_YET = "FailedResourceClaimCreation"

Raw = dict[str, Any]
Facts = dict[str, Any]

FULL_DEADLINE = 40.0  # seconds; the kubelet gives 45
_GENERATED = re.compile(r"(-t\d+)-[a-z0-9]{5}\b")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SOCKET = re.compile(r"(?:unix:)?(?:/[\w.~-]+)+\.sock")
_ADDRESS = re.compile(r"\b\d+\.\d+\.\d+\.\d+(?::\d+)?\b")
_FAILURE = re.compile(r"RegisterPlugin error[^\"]*")
_SERVICE = re.compile(r'chosenService="([^"]*)"')
_ENDPOINT = re.compile(r'"Done calling Node\w+ rpc".* endpoint="([^"]*)"')
KUBELETS = {"ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"}
USUAL = {"", "ContainerCreating", "PodInitializing"}
OWN = "dra-agent.io/"
METHODS = ("NodePrepareResources", "NodeUnprepareResources")


def facts(raw: Raw) -> Facts:
    """All facts of one side of a scenario."""
    found: Facts = {}
    for name in raw["driver_log"]:
        driver = _driver(raw, name)
        found |= {f"registration.{driver}.{k}": v for k, v in _registration(raw, name).items()}
        found |= {f"driver.{driver}.{k}": v for k, v in _driver_side(raw, name).items()}
        found |= {f"slices.{driver}.{k}": v for k, v in _slices(raw["slices"][name]).items()}
        calls = raw["kubelet_calls"].get(name, {})
        for method, codes in calls.items():
            found |= {f"calls.{driver}.{method}.{code}": n for code, n in codes.items()}
        skips = raw["skipped"].get(name, {})
        found |= {f"skipped.{driver}.{metric}": number for metric, number in skips.items()}
        found[f"bypassed.{driver}"] = _bypassed(raw, name)
    for name, changes in raw["pods"].items():
        role = name.removeprefix(f"{raw['scenario']}-{raw['side']}-")
        found |= {f"pods.{role}.{key}": value for key, value in _pod(raw, changes).items()}
        for event in raw["events"][name]:
            if event["reason"] == NOT_SEEN_YET:
                continue
            messages = found.setdefault(f"events.{role}.{event['reason']}", [])
            if NOISE not in event["message"]:
                messages.append(f"{event['type']}: {_equal(raw, event['message'])}")
    for path in [path for path in found if path.startswith("events.")]:
        found[path] = sorted(set(found[path])) or None
    for mark, claims in raw["checkpoints"].items():
        found[f"checkpoint.{mark}"] = sorted((_claim(raw, each) for each in claims), key=repr)
    for mark, numbers in raw["in_use"].items():
        found[f"in_use.{mark}"] = {_driver(raw, name): n for name, n in sorted(numbers.items())}
    return found | {f"seconds.{name}": value for name, value in raw["seconds"].items()}


def _equal(raw: Raw, text: str) -> str:
    """A text without what must differ between the sides."""
    text = text.replace(f"{raw['scenario']}-{raw['side']}", raw["scenario"])
    text = _SOCKET.sub("SOCKET", _UUID.sub("UID", _GENERATED.sub(r"\1", text)))
    return _ADDRESS.sub("ADDRESS", text)


def _driver(raw: Raw, name: str) -> str:
    rest, _, _ = name.removeprefix(f"{raw['scenario']}-{raw['side']}").partition(".")
    return rest.strip("-") or "main"


def _runs(values: Iterable[Any]) -> list[Any]:
    """Without repeats of the one before."""
    return [value for value, _ in itertools.groupby(values)]


def _registration(raw: Raw, name: str) -> Facts:
    lines = raw["kubelet_log"][name]
    registered = [line for line in lines if "Registered DRA plugin" in line]
    chosen = [match[1] for line in registered if (match := _SERVICE.search(line))]
    errors = [match[0] for line in lines if (match := _FAILURE.search(line))]
    arrivals = [e for e in raw["driver_log"][name] if e["m"] == "arrive"]
    told = [e["registered"] for e in arrivals if e["method"] == "NotifyRegistrationStatus"]
    return {
        "services": sorted(set(chosen)),
        "number": len(chosen),
        "failures": sorted({_equal(raw, error) for error in errors}),
        "timeouts": sum("deadline exceeded" in error for error in errors),
        "unregistered": sum("Unregistered DRA plugin" in line for line in lines),
        "notified": _runs(told),
    }


def _driver_side(raw: Raw, name: str) -> Facts:
    log = raw["driver_log"][name]
    done = [entry for entry in log if entry["m"] in ("prepare", "unprepare")]
    found: Facts = {}
    for claim in {entry["claim"] for entry in done}:
        sequence = [
            (e["m"], f"{e['code']} {e['error']}" if e["error"] else "ok", *_instance(e))
            for e in sorted(done, key=lambda e: float(e["began"]))
            if e["claim"] == claim
        ]
        found[f"calls.{_equal(raw, claim)}"] = [list(each) for each in _runs(sequence)]
    for op in ("prepare", "unprepare"):
        found[f"attempts.{op}"] = sum(entry["m"] == op for entry in done)
        if raw["restarted"]:
            found[f"restarted.{op}"] = sum(
                entry["m"] == op and entry["began"] > raw["restarted"] for entry in done
            )
    found["connections"] = max((e["open"] for e in log if e["m"] == "connections"), default=0)
    came = [e for e in log if e["m"] == "arrive" and e["method"] in METHODS]
    found["services"] = sorted({e["service"] for e in came})
    longest = max((entry.get("deadline", 0.0) for entry in done), default=None)
    if longest is not None:
        found["deadline"] = "full" if longest > FULL_DEADLINE else "short"
    return found


def _instance(entry: Raw) -> list[str]:
    return [entry["instance"]] if entry["instance"] else []


def _bypassed(raw: Raw, name: str) -> int:
    """The kubelet's finished calls that the middle did not get; directly 0 by definition."""
    if raw["side"] == DIRECT:
        return 0
    called = [found[1] for line in raw["kubelet_log"][name] if (found := _ENDPOINT.search(line))]
    return len([endpoint for endpoint in called if f"/{name}" in endpoint])


def _slices(changes: list[list[Any]]) -> Facts:
    states = [uids for _, uids in changes if uids or changes]
    seen = list(itertools.dropwhile(lambda uids: not uids, states))
    wipes = sum(bool(before) and not after for before, after in itertools.pairwise(seen))
    return {"wipes": wipes, "kept": bool(seen) and set(seen[0]) <= set(seen[-1])}


def _pod(raw: Raw, changes: list[list[Any]]) -> Facts:
    states = [state for _, state in changes]
    there = [state for state in states if state["phase"] != "gone"]
    last = there[-1] if there else {}
    ran = [s for s in there if s["phase"] == "Running" and not s["deleting"]]
    shown = [sorted({tuple(each) for each in state["health"]}) for state in there]
    health = _runs([list(each) for each in state] for state in shown if state)
    return {
        "phases": _phases([state["phase"] for state in states]),
        "reasons": _runs(state["reason"] for state in there),
        "restarts": last.get("restarts", 0),
        "conditions": _kinds(there, ran=bool(ran)),
        "last": _conditions(ran[-1]) if ran else {},
        "waiting": sorted({why for state in there for why in state["waiting"]} - USUAL),
        "annotations": sorted({key for state in there for key in state["annotations"]}),
        "health": health,
    }


def _kinds(states: list[Raw], *, ran: bool) -> list[str]:
    """Kinds of conditions. One that never ran may go before the kubelet has written its own."""
    kinds = {kind for state in states for kind in state["conditions"]}
    return sorted(kinds if ran else kinds - KUBELETS)


def _conditions(state: Raw) -> dict[str, str]:
    return {kind: it for kind, it in state["conditions"].items() if not kind.startswith(OWN)}


def _phases(phases: list[str]) -> list[str]:
    """Those that every observer sees: Pending may be too short, and an end just before the end."""
    if phases[-1:] == ["gone"]:
        phases = [phase for phase in phases if phase not in ("Succeeded", "Failed")]
    return _runs(phase for phase in phases if phase != "Pending" or phases[-1] == "Pending")


def _claim(raw: Raw, entry: Raw) -> Raw:
    drivers = {
        _driver(raw, name): [
            {key: value for key, value in device.items() if key != "DeviceName"}
            for device in state["Devices"] or []
        ]
        for name, state in entry["DriverState"].items()
    }
    pods = len(entry.get("PodUIDs") or [])
    return {"claim": _equal(raw, entry["ClaimName"]), "pods": pods, "devices": drivers}
