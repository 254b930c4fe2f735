"""The agent's container in deploy/30-daemonset.yaml, for a process that stands for it.

There is no image to run, so the process is this checkout's Python. What it is started with (words,
environment, user, rights) is read from the manifest, and only what names a place is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .api import Api, Object

FILE = Path(__file__).resolve().parents[3] / "deploy" / "30-daemonset.yaml"


def documents() -> dict[str, Object]:
    """What the file holds, by kind."""
    return {found["kind"]: found for found in yaml.safe_load_all(FILE.read_text())}


def container() -> Object:
    """The agent's."""
    (only,) = documents()["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    found: Object = only
    return found


def accepted(api: Api) -> dict[str, Object]:
    """What the API server would keep, by kind. Nothing is kept, so no pod starts."""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    return {kind: api.apply(body, **query) for kind, body in documents().items()}


def arguments(places: Mapping[str, object]) -> list[str]:
    """The container's words; `places` are other values for some of its flags, all of them there."""
    words: list[str] = container()["args"]
    flags = {word.partition("=")[0] for word in words}
    assert places.keys() <= flags, f"not in {FILE.name}: {places.keys() - flags}"
    return [
        f"{flag}={places[flag]}" if flag in places else word
        for word in words
        for flag in [word.partition("=")[0]]
    ]


def environment(pod: Object) -> dict[str, str]:
    """The container's environment in a pod: all of it is from the downward API."""
    return {
        each["name"]: str(_field(pod, each["valueFrom"]["fieldRef"]["fieldPath"]))
        for each in container()["env"]
    }


def _field(pod: Object, path: str) -> Any:
    value: Any = pod
    for key in path.split("."):
        value = value[key]
    return value


def setpriv() -> list[str]:
    """The command that gives a process the user and the rights of the container."""
    security = container()["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}, "the harness can only drop all of them"
    command = [
        "setpriv",
        f"--reuid={security['runAsUser']}",
        f"--regid={security['runAsGroup']}",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--ambient-caps=-all",
    ]
    return command if security["allowPrivilegeEscalation"] else [*command, "--no-new-privs"]
