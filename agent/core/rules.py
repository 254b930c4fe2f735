"""One failure rule as a value, and what a rule's pattern may look like.

Patterns run on driver text, which is hostile: a pattern is refused unless its cost has a small
bound by construction. Python's matcher backtracks, so the bound is the product of the choices
that its repeats leave open (`a{1,64}b?` leaves 64 * 2); nesting and back-references are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from agent.core.model import Culprit, Failure, Kind, Surface, Transport

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

MAX_PATTERN = 2000
"""Characters of a pattern."""
MAX_CHOICES = 4096
"""Ways one starting point may be matched; times 8 KiB of text this stays below half a second."""

_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_SINGLE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN, _constants.AT)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a failure must look like (all that is given), and what is then said about it."""

    id: str
    kind: Kind
    culprit: Culprit
    drivers: tuple[str, ...] = ("*",)  # globs; ("*",) is a generic rule
    text: re.Pattern[str] | None = None  # may have a group named `device`
    codes: frozenset[int] = frozenset()
    transports: frozenset[Transport] = frozenset()
    operation: str = ""
    surface: Surface | None = None
    hint: str = ""
    source: str = ""
    single_attempt: bool = False
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


def pattern_problem(pattern: str) -> str | None:
    """Say why a rule must not use this pattern, or None."""
    if len(pattern) > MAX_PATTERN:
        return f"longer than {MAX_PATTERN} characters"
    try:
        tree = _parser.parse(pattern)
        groups = set(re.compile(pattern).groupindex) - {"device"}
        if groups:
            return f"unknown group name {sorted(groups)[0]}: only `device` is read"
        choices = _choices(tree)
    except _Refused as error:
        return str(error)
    except (re.error, RecursionError, OverflowError) as error:
        return f"not a regular expression: {error}"
    if choices > MAX_CHOICES:
        return f"its repeats leave {choices} ways to match; {MAX_CHOICES} are allowed"
    return None


class _Refused(Exception):
    """A construct without a bound on its cost."""


def _choices(tree: Any) -> int:  # noqa: ANN401 (the parser has no public types)
    """Upper bound of the ways in which one starting point can be matched."""
    total = 1
    for operator, value in tree:
        if operator in _SINGLE:
            continue
        if operator in _REPEATS:
            total *= _repeat(*value)
        elif operator is _constants.SUBPATTERN:
            total *= _choices(value[-1])
        elif operator is _constants.BRANCH:
            total *= sum(_choices(branch) for branch in value[1])
        else:
            raise _Refused(f"{str(operator).lower()} is not allowed in a rule")
    return total


def _repeat(low: int, high: int, inner: Any) -> int:  # noqa: ANN401
    if high is _constants.MAXREPEAT:
        raise _Refused("an unbounded repeat (* or +): give a limit such as {1,64}")
    choices = _choices(inner)
    if choices > 1 and high > 1:
        raise _Refused("a repeat of something that itself can match in several ways")
    return (high - low + 1) * choices
