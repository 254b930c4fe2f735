"""What one prepare call knows of one of its claims."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.core.model import ClaimOutcome, ClaimRef, ClaimResult, DeviceState
from agent.core.text import KEPT, ends


@dataclass(slots=True)
class Track:
    """A claim, its latest result and how it came to that. Walls are unix seconds."""

    claim: ClaimRef
    result: ClaimResult | None = None
    attempts: int = 0
    first_error: str = ""
    first_wall: float = 0.0
    last_wall: float = 0.0
    first_failed_at: float = 0.0

    @property
    def ok(self) -> bool:
        """True when it is prepared."""
        return self.result is not None and self.result.ok

    @property
    def retry_after(self) -> float:
        """Seconds for which the driver itself wants to be left alone; 0: it does not say."""
        verdict = self.result.verdict if self.result is not None else None
        return (verdict.retry_after or 0.0) if verdict is not None else 0.0

    def attempted(self, result: ClaimResult, now: float, wall: float) -> None:
        """Take in what an attempt brought."""
        self.result = result
        self.attempts += 1
        if result.failure is not None:
            if not self.first_wall:
                self.first_error = result.failure.text
                self.first_wall = wall
            self.first_failed_at = self.first_failed_at or now
            self.last_wall = wall

    def unasked(self, result: ClaimResult, wall: float) -> None:
        """Note why the driver was not asked, where nothing else is known."""
        if self.result is None and result.failure is not None:
            self.result = result
            self.first_error = result.failure.text
            self.first_wall = self.last_wall = wall

    def names(self, claim: ClaimRef) -> bool:
        """Tell whether its failure's text names another claim, by UID or by name."""
        failure = self.result.failure if self.result is not None else None
        if failure is None:
            return False
        text = ends(failure.text, KEPT)
        return any(
            re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text) is not None
            for word in (claim.uid, claim.name)
            if word
        )

    def outcome(self) -> ClaimOutcome:
        """How the claim stands."""
        result = self.result
        if result is None:
            return ClaimOutcome(self.claim, DeviceState.BLOCKED)
        return ClaimOutcome(
            self.claim,
            DeviceState.PREPARED if result.ok else DeviceState.FAILED,
            verdict=result.verdict,
            attempts=self.attempts,
            first_error=ends(self.first_error, KEPT),
            last_error=ends(result.failure.text, KEPT) if result.failure else "",
            first_wall=self.first_wall,
            last_wall=self.last_wall,
        )
