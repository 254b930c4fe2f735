"""What stands between the kubelet and a driver: the agent, or a proxy with a planted fault."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..harness import steps
from ..harness.agent import Agent
from ..harness.cluster import Node
from ..harness.driver import Driver


class Middle(Protocol):
    """As a side of a scenario sees it."""

    patience: float  # factor for time limits
    registry: Path | None  # where drivers register; None: where they always did

    def add(self, driver: Driver) -> None:
        """A driver is about to start."""

    def served(self, name: str, newest: str) -> bool:
        """Whether calls for a driver come here; `newest`: what the kubelet registered last."""


class ThroughAgent:
    """The product."""

    patience = 1.0

    def __init__(self, node: Node, agent: Agent, intake: bool) -> None:
        self.agent = agent
        self.endpoints = node.plugins / "dra-agent.io"
        self.registry = self.endpoints / "intake" if intake else None

    def add(self, driver: Driver) -> None:
        """It finds drivers by itself."""

    def served(self, name: str, newest: str) -> bool:
        return Path(newest).parent == self.endpoints and steps.served(self.agent, name)
