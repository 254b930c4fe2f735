"""One side of a scenario: its own drivers and pods, at the kubelet directly or not."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from agent.core.paths import driver_hash

from .. import build
from ..harness import objects, steps
from ..harness.cluster import Node
from ..harness.driver import Driver
from ..harness.waiting import wait_for
from .middle import Middle
from .sampler import Sampler

T = TypeVar("T")
DIRECT, THROUGH = "direct", "through"
EVERY = 0.2
SHOWN = 5  # of what went wrong while looking
# The API server has not seen yet whose claim it is: a race of the kubelet's, with or without us.
NOISE = "no relationship found between node"
# Whether it has seen new devices when a pod comes is chance; the agent is not in its way.
UNHEARD = ("default-scheduler",)


class Side:
    """What a scenario may do; everything that it sees is kept for the comparison."""

    def __init__(
        self, scenario: str, *, node: Node, sampler: Sampler, middle: Middle | None = None
    ) -> None:
        """Without a `middle` it is the direct side."""
        self.scenario, self.which = scenario, THROUGH if middle else DIRECT
        self.node, self.sampler, self.middle = node, sampler, middle
        self.registry = middle.registry if middle else None
        self.drivers: list[Driver] = []
        self.checkpoints: dict[str, list[dict[str, Any]]] = {}
        self.in_use: dict[str, dict[str, int]] = {}
        self.seconds: dict[str, float] = {}
        self.restarted = 0.0  # time.time() when the kubelet's second life began
        self.failure = ""

    @property
    def prefix(self) -> str:
        return f"{self.scenario}-{self.which}"

    # Drivers

    def make(self, suffix: str = "", *, start: bool = True, **options: Any) -> Driver:
        """A driver of this side; waits until the kubelet's calls reach it."""
        # Of this run alone: the kubelet's log, counters and timers know drivers by their names.
        name = f"{self.prefix}{suffix}.{self.sampler.namespace[-4:]}.test"
        new = Driver(self.node, build.BIN / "driver", name, registry=self.registry, **options)
        self.drivers.append(new)
        if self.middle:
            self.middle.add(new)
        if start:
            new.start(60)
            self.served(new)
        return new

    def served(self, driver: Driver, limit: float = 90) -> None:
        """Waits until calls for the driver go the way that this side is about.

        Long where there are three generations: a fourth waits a minute until the oldest may go.
        """
        middle = self.middle
        if middle:
            self.wait(
                lambda: middle.served(driver.name, self.sampler.newest(driver.name)),
                limit,
                "registration of the agent after the driver",
            )

    # Pods

    def name(self, role: str) -> str:
        return f"{self.prefix}-{role}"

    def claim(self, role: str, driver: Driver) -> str:
        """A claim that is no pod's own."""
        name = self.name(role)
        space = self.sampler.namespace
        self.node.api.create(objects.claim(space, name, objects.claim_spec(driver.name)))
        return name

    def pod(self, role: str, *drivers: Driver, **spec: Any) -> None:
        """A pod with one claim for each driver named (twice: two claims)."""
        templates = []
        for driver in drivers:
            template = driver.name.split(".", maxsplit=1)[0]
            body = objects.claim_template(
                self.sampler.namespace, template, objects.claim_spec(driver.name)
            )
            self.node.api.apply(body)
            templates.append(template)
        space, name = self.sampler.namespace, self.name(role)
        self.node.api.create(objects.pod(space, name, templates=tuple(templates), **spec))

    def delete(self, role: str, grace: int | None = None) -> float:
        """Asks for a pod's end; returns time.monotonic()."""
        path = f"/api/v1/namespaces/{self.sampler.namespace}/pods/{self.name(role)}"
        self.node.api.delete(path, grace=grace)
        return time.monotonic()

    def phase(self, role: str) -> str:
        """As last sampled; "gone" once it was there."""
        name = self.name(role)
        pod = self.sampler.pods.get(name)
        if pod:
            return str(pod["status"].get("phase", ""))
        return "gone" if name in self.sampler.pod_changes else ""

    def running(self, role: str, limit: float = 40) -> None:
        self.wait(lambda: self.phase(role) == "Running", limit, f"{role} running")

    def gone(self, role: str, limit: float = 40) -> None:
        self.wait(lambda: self.phase(role) == "gone", limit, f"{role} gone")

    def gone_at(self, role: str) -> float:
        """When a pod that is gone went; time.time()."""
        return float(self.sampler.pod_changes[self.name(role)][-1][0])

    def end(self, role: str, limit: float = 40) -> None:
        self.delete(role)
        self.gone(role, limit)

    def shows(self, role: str, health: str, limit: float = 20) -> None:
        """Waits for a health of the pod's devices.

        What does not come through the agent is seen when compared; directly it must come, or
        there is nothing to compare with.
        """

        def shown() -> bool:
            _, state = self.sampler.pod_changes[self.name(role)][-1]
            return health in [word for word, _ in state.get("health", [])]

        unseen = () if self.which == DIRECT else (AssertionError,)
        with contextlib.suppress(*unseen):
            self.wait(shown, limit, f"{role} {health}")

    def touch(self, role: str) -> None:
        """A new annotation, at which the kubelet looks at the pod at once."""
        path = f"/api/v1/namespaces/{self.sampler.namespace}/pods/{self.name(role)}"
        self.node.api.patch(path, {"metadata": {"annotations": {"touched": "once"}}})

    def scheduled(self, role: str) -> None:
        def bound() -> bool:
            pod = self.sampler.pods.get(self.name(role))
            return bool(pod and pod["spec"].get("nodeName"))

        self.wait(bound, 40, f"{role} scheduled")

    def event(self, role: str, limit: float = 70) -> None:
        """Waits until the kubelet has said that preparing failed."""
        reason = "FailedPrepareDynamicResources"
        space, name = self.sampler.namespace, self.name(role)
        limit *= self.middle.patience if self.middle else 1

        def said() -> bool:
            events = self.node.api.events(space, name, reason)
            return any(NOISE not in event["message"] for event in events)

        wait_for(said, limit, f"{name}: {reason}", every=1)

    # Looking

    @staticmethod
    def sockets(driver: str) -> tuple[str, str]:
        """What paths of registration sockets contain, the driver's own and the agent's for it."""
        return f"/{driver}-", f"/dra-agent~{driver_hash(driver)}~"

    def wait(self, condition: Callable[[], T], limit: float, what: str) -> T:
        limit *= self.middle.patience if self.middle else 1
        return wait_for(condition, limit, f"{self.prefix}: {what}", every=EVERY)

    def keep_checkpoint(self, mark: str, claims: int, limit: float = 20) -> None:
        """Waits until the kubelet's file holds so many claims of this side, and keeps them."""

        def found() -> bool:
            stored = json.loads((self.node.kubelet_root / "dra_manager_state").read_text())
            entries = json.loads(stored["Data"])["ClaimInfoStateList"] or []
            mine = [e for e in entries if str(e["ClaimName"]).startswith(f"{self.prefix}-")]
            self.checkpoints[mark] = mine
            return len(mine) == claims

        self.wait(found, limit, f"{claims} claims in the checkpoint")
        self.in_use[mark] = self.sampler.in_use(each.name for each in self.drivers)

    def raw(self) -> dict[str, Any]:
        """Everything seen, as JSON."""
        sampler, names = self.sampler, sorted({driver.name for driver in self.drivers})
        roles = [name for name in sampler.pod_changes if name.startswith(f"{self.prefix}-")]
        events = {
            name: [
                {key: event.get(key) for key in ("type", "reason", "message", "count")}
                for event in self.node.api.events(sampler.namespace, name)
                if _speaker(event) not in UNHEARD
            ]
            for name in roles
        }
        return {
            "scenario": self.scenario,
            "side": self.which,
            "failure": self.failure,
            "problems": sampler.problems[-SHOWN:],
            "broken": sampler.broken[-SHOWN:],
            "driver_log": {driver.name: driver.entries() for driver in self.drivers},
            "kubelet_log": {
                name: [
                    line.text
                    for line in steps.kubelet_log(self.node)
                    if any(mark in line.text for mark in (f'"{name}"', *self.sockets(name)))
                ]
                for name in names
            },
            "events": events,
            "kubelet_calls": {name: sampler.calls(name) for name in names},
            "skipped": {name: sampler.skipped(name) for name in names},
            "checkpoints": self.checkpoints,
            "in_use": self.in_use,
            "restarted": self.restarted,
            "slices": {name: sampler.slice_changes.get(name, []) for name in names},
            "pods": {name: sampler.pod_changes[name] for name in roles},
            "seconds": self.seconds,
        }


def _speaker(event: dict[str, Any]) -> str:
    return str(event.get("reportingComponent") or event.get("source", {}).get("component"))
