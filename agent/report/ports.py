"""What the reporter needs from the part that handles the calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from agent.core.context import InFlight


class CallsPort(Protocol):
    """Questions about calls and held verdicts; answered at once, from memory."""

    def in_flight(self, claim_uids: Iterable[str]) -> bool:
        """Tell whether kubelet waits for a prepare of any of these claims."""

    def pin(self, driver: str, claim_uid: str) -> None:
        """Let no clock end a held verdict."""

    def unpin(self, driver: str, claim_uid: str) -> None:
        """Let the clock end it after all."""

    def served_drivers(self) -> frozenset[str]:
        """Names of the drivers whose calls come through this agent."""

    def active(self, driver: str) -> Sequence[InFlight]:
        """Return the calls of a driver that kubelet waits for now, the oldest first."""

    def holding(self, driver: str, claim_uid: str) -> bool:
        """Tell whether a held verdict answers kubelet for this claim."""

    def blocked(self, driver: str, claim_uid: str, by: str) -> None:
        """Take note that a claim waits for the one with the UID `by`."""
