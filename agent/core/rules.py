"""One failure rule as a value; `agent.core.patterns` says what its patterns may look like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from agent.core.matcher import Matcher
from agent.core.model import Culprit, Failure, Kind, Surface, Transport, WaitsFor

CODES = {
    "CANCELLED": 1,
    "UNKNOWN": 2,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "DATA_LOSS": 15,
    "UNAUTHENTICATED": 16,
}
"""gRPC status codes by name."""


class Repeat(StrEnum):
    """What asking a driver again within one call of kubelet may do."""

    FREELY = "freely"
    ONCE = "once"
    NEVER = "never"

    @property
    def max_attempts(self) -> int | None:
        """Attempts per call; None: as many as the verdict allows."""
        return {Repeat.FREELY: None, Repeat.ONCE: 2, Repeat.NEVER: 1}[self]


@dataclass(frozen=True, slots=True)
class Pack:
    """What a repeated call does with some drivers.

    `repeat` holds where a repeat could do harm: for failures that are ambiguous, and where the
    answer was lost so that the driver may have done its work. A rule may say otherwise.
    """

    name: str
    drivers: tuple[str, ...]
    version: int = 1
    repeat: Repeat = Repeat.FREELY
    reason: str = ""
    source: str = ""
    layer: int = 0

    def serves(self, driver: str) -> bool:
        """True when the pack is about this driver."""
        return any(fnmatchcase(driver, glob) for glob in self.drivers)


def strictest(packs: Sequence[Pack]) -> Pack | None:
    """Of the packs of the first file that has any, the one that allows the fewest repeats."""
    order = (Repeat.NEVER, Repeat.ONCE, Repeat.FREELY)
    return min(packs, key=lambda pack: (pack.layer, order.index(pack.repeat)), default=None)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a failure must look like (all that is given), and what is then said about it."""

    id: str
    kind: Kind
    culprit: Culprit
    drivers: tuple[str, ...] = ("*",)  # globs; ("*",) is a generic rule
    text: Matcher | None = None  # may have a group named `device`
    also: Matcher | None = None  # must be found in the same error too
    unless: Matcher | None = None  # must not be found in the same error
    codes: frozenset[int] = frozenset()
    reasons: frozenset[str] = frozenset()  # of google.rpc.ErrorInfo
    transports: frozenset[Transport] = frozenset()
    operation: str = ""
    surface: Surface | None = None
    hint: str = ""
    source: str = ""
    repeat: Repeat | None = None  # None: what the driver's pack says
    waits_for: WaitsFor | None = None  # of another claim
    doubts: tuple[Matcher, ...] = ()  # words in the same error that make a permanent one ambiguous
    examples: tuple[str, ...] = ()
    layer: int = 0  # which file it is from; an earlier file wins

    @property
    def generic(self) -> bool:
        """True when the rule holds for every driver."""
        return self.drivers == ("*",)

    def serves(self, driver: str) -> bool:
        """True when the rule holds for this driver."""
        return any(fnmatchcase(driver, glob) for glob in self.drivers)

    def admits(self, failure: Failure) -> bool:
        """True when everything but driver and text fits."""
        return (
            (not self.operation or self.operation == failure.operation)
            and (self.surface is None or self.surface is failure.surface)
            and (not self.codes or failure.code in self.codes)
            and (not self.transports or failure.transport in self.transports)
        )

    def search(self, part: str, lowered: str) -> re.Match[str] | None:
        """Look for the rule's words in one error; `lowered` is the same in lower case."""
        match = self.text.search(part, lowered) if self.text is not None else None
        if match is None:
            return None
        if self.also is not None and self.also.search(part, lowered) is None:
            return None
        if self.unless is not None and self.unless.search(part, lowered) is not None:
            return None
        return match

    def doubted(self, forms: Sequence[tuple[str, str]]) -> bool:
        """True when the error also speaks of what may pass: the verdict is then in doubt."""
        return any(one.search(*form) is not None for one in self.doubts for form in forms)

    def search_forms(self, forms: Sequence[tuple[str, str]]) -> re.Match[str] | None:
        """The same for an error in several forms of equal length, each with its lower case: as it
        is, and last with constants as words. Only patterns with a `_` can tell these apart.
        """
        patterns = (self.text, self.also, self.unless)
        if len(forms) > 1 and not any(one is not None and one.constants for one in patterns):
            forms = forms[-1:]
        for part, lowered in forms:
            match = self.search(part, lowered)
            if match is not None:
                return match
        return None
