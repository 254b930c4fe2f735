"""One thread that looks at pods, devices and the kubelet's counters, for all scenarios at once."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from ..harness.api import ApiError
from ..harness.cluster import Node

PERIOD = 0.3
METRIC = re.compile(r"^dra_grpc_operations_duration_seconds_count\{(.*)\} (\S+)$", re.M)
SKIPPED = re.compile(r'^dra_node_(\w+)_skips_total\{driver_name="([^"]*)"\} (\S+)$', re.M)
IN_USE = re.compile(r'^dra_resource_claims_in_use\{driver_name="([^"]*)"\} (\S+)$', re.M)
LABEL = re.compile(r'(\w+)="([^"]*)"')
# A new life of the kubelet, or a registration in it.
LIFE = re.compile(
    rb'"(?:(Kubelet version)|Registered DRA plugin".*? driverName="([^"]*)" endpoint="([^"]*))"'
)
# (driver, method, gRPC code)
Key = tuple[str, str, str]


class Sampler:
    """What was seen in one namespace: the last state and every change, with time.time()."""

    def __init__(self, node: Node, namespace: str) -> None:
        self.node = node
        self.namespace = namespace
        self.pods: dict[str, dict[str, Any]] = {}
        self.pod_changes: dict[str, list[list[Any]]] = defaultdict(list)
        self.slice_changes: dict[str, list[list[Any]]] = defaultdict(list)
        self.problems: list[str] = []  # that pass
        self.broken: list[str] = []  # that are mistakes of the tests
        self._lives: list[Counter[Key]] = [Counter()]
        self._skips: list[Counter[tuple[str, str]]] = [Counter()]  # by driver and method
        self._newest: dict[str, str] = {}
        self._read_up_to = node.kubelet.log.stat().st_size
        self._reading = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._look()
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(10)
        self._look()

    def slices(self, driver: str) -> list[str]:
        """UIDs of a driver's ResourceSlices now."""
        changes = self.slice_changes.get(driver)
        return list(changes[-1][1]) if changes else []

    def newest(self, driver: str) -> str:
        """The endpoint that the kubelet registered last in this life: calls go there."""
        with self._reading, self.node.kubelet.log.open("rb") as log:
            log.seek(self._read_up_to)
            whole = log.read().rpartition(b"\n")[0]
            self._read_up_to += len(whole)
            for begins, name, endpoint in LIFE.findall(whole):
                if begins:
                    self._newest.clear()
                else:
                    self._newest[name.decode()] = endpoint.decode()
            return self._newest.get(driver, "")

    def count_calls(self) -> None:
        """Reads the kubelet's counters; they are lost with it."""
        found: Counter[Key] = Counter()
        metrics = self.node.kubelet_metrics()
        for labels, value in METRIC.findall(metrics):
            pairs = dict(LABEL.findall(labels))
            method = pairs["method_name"].rsplit("/", 1)[-1]
            found[pairs["driver_name"], method, pairs["grpc_status_code"]] += int(float(value))
        self._lives[-1] = found
        skipped = SKIPPED.findall(metrics)
        self._skips[-1] = Counter({(name, op): int(float(value)) for op, name, value in skipped})

    def kubelet_ends(self) -> None:
        """To be called before the kubelet is ended."""
        self.count_calls()
        self._lives.append(Counter())
        self._skips.append(Counter())

    def calls(self, driver: str) -> dict[str, dict[str, int]]:
        """The kubelet's calls over all its lives: method, code, number."""
        total: dict[str, dict[str, int]] = {}
        for life in self._lives:
            for (name, method, code), number in life.items():
                if name == driver:
                    codes = total.setdefault(method, {})
                    codes[code] = codes.get(code, 0) + number
        return total

    def skipped(self, driver: str) -> dict[str, int]:
        """Calls that the kubelet left out, over all its lives, by method."""
        total: Counter[tuple[str, str]] = sum(self._skips, Counter())
        return {op: number for (name, op), number in total.items() if name == driver}

    def in_use(self, drivers: Iterable[str]) -> dict[str, int]:
        """Each driver's claims now, by the kubelet's metric."""
        found = dict(IN_USE.findall(self.node.kubelet_metrics()))
        return {name: int(float(found.get(name, 0))) for name in drivers}

    def _run(self) -> None:
        while not self._end.wait(PERIOD):
            try:
                self._look()
            except (OSError, ApiError) as error:  # it looks again
                self.problems.append(repr(error))
            except Exception as error:  # noqa: BLE001  without it all sides would starve silently
                self.broken.append(repr(error))

    def _look(self) -> None:
        now = time.time()
        pods = self.node.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        found = {pod["metadata"]["name"]: pod for pod in pods}
        for name in {*found, *self.pods}:
            state = _state(found[name]) if name in found else {"phase": "gone"}
            _note(self.pod_changes[name], now, state)
        self.pods = found
        slices: dict[str, list[str]] = defaultdict(list)
        for each in self.node.api.items("/apis/resource.k8s.io/v1/resourceslices"):
            slices[each["spec"]["driver"]].append(each["metadata"]["uid"])
        for driver in {*slices, *self.slice_changes}:
            _note(self.slice_changes[driver], now, sorted(slices[driver]))


def _note(changes: list[list[Any]], now: float, state: Any) -> None:
    if not changes or json.dumps(changes[-1][1], sort_keys=True) != json.dumps(
        state, sort_keys=True
    ):
        changes.append([now, state])


def _state(pod: dict[str, Any]) -> dict[str, Any]:
    """What of a pod is compared."""
    status = pod["status"]
    containers = status.get("containerStatuses") or []
    return {
        "phase": status.get("phase", ""),
        "reason": status.get("reason", ""),
        "deleting": "deletionTimestamp" in pod["metadata"],
        "restarts": sum(each["restartCount"] for each in containers),
        "waiting": [
            ((each["state"].get("waiting") or {}).get("reason", "")) for each in containers
        ],
        "conditions": {c["type"]: c["status"] for c in status.get("conditions") or []},
        "annotations": sorted(pod["metadata"].get("annotations") or {}),
        "health": [
            [resource["health"], resource.get("message", "")]
            for each in containers
            for group in each.get("allocatedResourcesStatus") or []
            for resource in group["resources"]
        ],
    }
