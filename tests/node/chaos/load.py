"""Pods that come and go, each with a claim or two; what they must reach is checked at the end."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from ..harness import objects
from ..harness.cluster import Node
from ..harness.steps import TRANSIENT

# Parts of pod names by which the drivers' script chooses.
FLAKY, SLOW, STUCK = "flaky", "slow", "stuck"
SCRIPT = (
    {"op": "prepare", "claim": FLAKY, "text": TRANSIENT, "times": 2},
    {"op": "prepare", "claim": SLOW, "sleepMs": 2_000, "times": 1},
    {"op": "unprepare", "claim": SLOW, "sleepMs": 1_500, "times": 1},
    {"op": "unprepare", "claim": STUCK, "text": TRANSIENT, "times": 1},
)
KINDS = ("plain", "plain", FLAKY, SLOW, STUCK)
AT_ONCE = 5


@dataclass
class PodLife:
    """`early`: it is deleted without waiting until it runs."""

    name: str
    early: bool
    stays: float  # seconds it runs
    created: float
    running: float = 0.0
    deleted: float = 0.0
    gone: float = 0.0


@dataclass
class Load:
    """Creates, watches and deletes pods; `tick()` is called every now and then."""

    node: Node
    namespace: str
    drivers: tuple[str, ...]
    rng: random.Random
    lives: dict[str, PodLife] = field(default_factory=dict)
    creating: bool = True
    next_at: float = 0.0

    def start(self) -> None:
        for driver in self.drivers:
            template = driver.split(".", maxsplit=1)[0]
            spec = objects.claim_spec(driver)
            self.node.api.create(objects.claim_template(self.namespace, template, spec))

    @property
    def open(self) -> list[PodLife]:
        return [life for life in self.lives.values() if not life.gone]

    def tick(self) -> None:
        now = time.monotonic()
        pods = self.node.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        phases = {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in pods}
        for life in self.open:
            phase = phases.get(life.name, "gone")
            if phase == "Running" and not life.running:
                life.running = now
            if phase == "gone" and now > life.created + 1:
                life.gone = now
            ripe = life.running and now > life.running + life.stays
            if not life.deleted and (ripe or (life.early and now > life.created + life.stays)):
                self.delete(life)
        if self.creating and now > self.next_at and len(self.open) < AT_ONCE:
            self.next_at = now + self.rng.uniform(0.2, 1.5)
            self._create(now)

    def delete(self, life: PodLife) -> None:
        life.deleted = time.monotonic()
        self.node.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{life.name}")

    def _create(self, now: float) -> None:
        rng = self.rng
        name = f"p{len(self.lives)}-{rng.choice(KINDS)}"
        chosen = rng.sample(self.drivers, rng.choice((1, 1, 2)))
        templates = tuple(driver.split(".", maxsplit=1)[0] for driver in chosen)
        self.node.api.create(objects.pod(self.namespace, name, templates=templates))
        early = rng.random() < 0.15
        self.lives[name] = PodLife(name, early, rng.uniform(0.5, 4), now)

    def wrong(self) -> list[str]:
        """Pods that did not reach what they must."""
        return [
            f"{life.name}: " + ("never ran" if not life.running else "did not end")
            for life in self.lives.values()
            if not life.gone or (not life.running and not life.early)
        ]

    def counts(self) -> Counter[str]:
        lives = self.lives.values()
        return Counter(
            pods=len(lives),
            ran=sum(bool(life.running) for life in lives),
            early=sum(life.early for life in lives),
            ended=sum(bool(life.gone) for life in lives),
        )
