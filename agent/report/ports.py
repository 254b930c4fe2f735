"""What the reporter needs from the part that handles the calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class CallsPort(Protocol):
    """Questions about calls and held verdicts; answered at once, from memory."""

    def in_flight(self, claim_uids: Iterable[str]) -> bool:
        """Tell whether kubelet waits for a prepare of any of these claims."""

    def pin(self, driver: str, claim_uid: str) -> None:
        """Let no clock end a held verdict."""

    def served_drivers(self) -> frozenset[str]:
        """Names of the drivers whose calls come through this agent."""

    def holding(self, driver: str, claim_uid: str) -> bool:
        """Tell whether a held verdict answers kubelet for this claim."""
