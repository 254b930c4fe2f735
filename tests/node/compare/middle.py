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

    def served(self, name: str) -> bool:
        """Whether the kubelet's calls for a driver come here."""

    def answered(self, name: str, method: str) -> int:
        """Calls that came here since the start."""


class ThroughAgent:
    """The product."""

    patience = 1.0

    def __init__(self, node: Node, agent: Agent, intake: bool) -> None:
        self.agent = agent
        self.registry = node.plugins / "dra-agent.io" / "intake" if intake else None

    def add(self, driver: Driver) -> None:
        """It finds drivers by itself."""

    def served(self, name: str) -> bool:
        return steps.served(self.agent, name)

    def answered(self, name: str, method: str) -> int:
        return steps.agent_calls(self.agent, method, name)
