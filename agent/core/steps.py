"""What a plan may say to do next, and the periods it keeps to."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.model import ClaimRef, ClaimResult


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """All periods in seconds."""

    initial_delay: float = 0.25
    max_delay: float = 5.0
    jitter: float = 0.5
    margin: float = 3.0
    ambiguous_attempts: int = 4
    ambiguous_time: float = 5.0
    absence_hold: float = 10.0

    def delay(self, failures: int, jitter: float) -> float:
        """Wait after the n-th failed round (n >= 1); `jitter` is uniform in [0, 1)."""
        full = min(self.max_delay, self.initial_delay * 2.0 ** min(failures - 1, 30))
        return full * (1.0 - self.jitter * jitter)


@dataclass(frozen=True, slots=True)
class Forward:
    """Ask the driver for these claims; give up after `timeout` seconds."""

    claims: tuple[ClaimRef, ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for `seconds`; end early when the driver connects, if so asked."""

    seconds: float
    until_connected: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer kubelet now with what each claim has."""

    results: tuple[ClaimResult | None, ...]  # in the call's order; None: never asked
    reason: str


Step = Forward | Wait | Reply
