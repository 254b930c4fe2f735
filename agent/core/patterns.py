"""What a rule's pattern may look like, and which words a text must hold before it is tried.

Patterns run on driver text, which is hostile, with Python's matcher, which backtracks. A pattern is
refused unless its cost is linear in the text by construction: a bound on the ways in which *one*
starting point can be matched is computed from the pattern alone (`a{1,64}b?` leaves 64 * 2), so a
search costs at most length of the text * MAX_CHOICES * length of the pattern. Unbounded or nested
repeats and back-references have no such bound and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

MAX_PATTERN = 4000
"""Characters of a pattern."""
MAX_CHOICES = 4096
"""Ways one starting point may be matched; times 8 KiB of text this stays below half a second."""
FLAGS = re.IGNORECASE | re.ASCII
"""Drivers do not agree on capitals. ASCII: no letter outside it equals one inside."""

_MIN_NEED = 3  # shorter words are in every text
_MAX_NEEDS = 32
_MAX_SETS = 3

_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_SINGLE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN, _constants.AT)
_LOOKS = (_constants.ASSERT, _constants.ASSERT_NOT)

Needs = tuple[tuple[str, ...], ...]
"""Sets of lower-case words; a text that lacks all words of one of the sets cannot match."""


class Matcher:
    """A rule's pattern. Alternatives whose words a text lacks are not tried: that is the speed."""

    __slots__ = ("_alternatives", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._alternatives = tuple(
            (re.compile(one, FLAGS), needs(one)) for one in alternatives(pattern)
        )

    def search(self, part: str, lowered: str) -> re.Match[str] | None:
        """Find the first alternative that matches; `lowered` is `part` in lower case."""
        for regex, needed in self._alternatives:
            if _has(lowered, needed):
                match = regex.search(part)
                if match is not None:
                    return match
        return None


def _has(lowered: str, needed: Needs) -> bool:
    for words in needed:
        for word in words:
            if word in lowered:
                break
        else:
            return False
    return True


def alternatives(pattern: str) -> list[str]:
    """Split a (valid) pattern at the bars outside all groups and classes."""
    found, start, depth, at = [], 0, 0, 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif character == "[":
            at = _class_end(pattern, at)
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and depth == 0:
            found.append(pattern[start:at])
            start = at + 1
        at += 1
    return [*found, pattern[start:]]


def _class_end(pattern: str, at: int) -> int:
    """Index of the bracket that closes the class opened at `at`."""
    at += 2 if pattern[at + 1] == "^" else 1
    first = at
    while pattern[at] != "]" or at == first:
        at += 2 if pattern[at] == "\\" else 1
    return at


def problem(pattern: str, groups: frozenset[str] = frozenset({"device"})) -> str | None:
    """Say why a rule must not use this pattern, or None. `groups` are the names it may use."""
    if len(pattern) > MAX_PATTERN:
        return f"longer than {MAX_PATTERN} characters"
    try:
        tree = _parser.parse(pattern, FLAGS)
        unknown = sorted(set(re.compile(pattern, FLAGS).groupindex) - groups)
        if unknown:
            return f"unknown group name {unknown[0]}: only `device`, in `text`, is read"
        choices = _choices(tree)
    except _Refused as error:
        return str(error)
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        return f"not a regular expression: {error}"
    if choices > MAX_CHOICES:
        return f"its repeats leave {choices} ways to match; {MAX_CHOICES} are allowed"
    return None


def needs(pattern: str) -> Needs:
    """Words that a text must hold for this (allowed) pattern to match it; at most three sets."""
    found = sorted(set(_needs(_parser.parse(pattern, FLAGS))), key=_worth)
    return tuple(found[:_MAX_SETS])


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
            total *= _branches(value[1])
        elif operator in _LOOKS:
            if len(value[1]) != 1 or value[1][0][0] not in _SINGLE:
                raise _Refused("only one character may be looked ahead or back at")
        else:
            raise _Refused(f"{str(operator).lower()} is not allowed in a rule")
    return total


def _branches(branches: Any) -> int:  # noqa: ANN401
    """Ways of an alternation: only those alternatives add up that can begin alike."""
    begin: dict[str, int] = {}
    anyhow = 0  # alternatives that may begin with anything
    for branch in branches:
        choices, first = _choices(branch), _first(branch)
        if first is None:
            anyhow += choices
        for character in first or ():
            begin[character] = begin.get(character, 0) + choices
    return max(begin.values(), default=0) + anyhow


def _first(tree: Any) -> frozenset[str] | None:  # noqa: ANN401
    """Characters that a match can begin with, in lower case; None: any, or none at all."""
    found: frozenset[str] = frozenset()
    for operator, value in tree:
        if operator is _constants.AT or operator in _LOOKS:
            continue
        optional = False
        if operator is _constants.LITERAL:
            first: frozenset[str] | None = frozenset(chr(value).lower())
        elif operator is _constants.IN:
            first = _members(value)
        elif operator is _constants.SUBPATTERN:
            first = _first(value[-1])
        elif operator is _constants.BRANCH:
            each = [_first(branch) for branch in value[1]]
            known = [one for one in each if one is not None]
            first = frozenset().union(*known) if len(known) == len(each) else None
        elif operator in _REPEATS:
            first, optional = _first(value[2]), value[0] == 0
        else:
            first = None
        if first is None:
            return None
        found |= first
        if not optional:
            return found
    return None


def _members(items: Any) -> frozenset[str] | None:  # noqa: ANN401
    """Characters of a small class; None where it is large or negated."""
    found: set[str] = set()
    for operator, value in items:
        if operator is _constants.LITERAL:
            found.add(chr(value).lower())
        elif operator is _constants.RANGE and value[1] - value[0] < 64:
            found.update(chr(code).lower() for code in range(value[0], value[1] + 1))
        else:
            return None
    return frozenset(found)


def _repeat(low: int, high: int, inner: Any) -> int:  # noqa: ANN401
    if high is _constants.MAXREPEAT:
        raise _Refused("an unbounded repeat (* or +): give a limit such as {1,64}")
    choices = _choices(inner)
    if choices > 1 and high > 1:
        raise _Refused("a repeat of something that itself can match in several ways")
    return int((high - low + 1) * choices)


def _worth(words: tuple[str, ...]) -> tuple[int, int]:
    """Sort key: few and long words first."""
    return len(words), -min(len(word) for word in words)


def _needs(tree: Any) -> Iterator[tuple[str, ...]]:  # noqa: ANN401
    """Each set of words of which a match must hold one."""
    run = ""
    for operator, value in tree:
        if operator is _constants.LITERAL and value < 128:
            run += chr(value).lower()
            continue
        if len(run) >= _MIN_NEED:
            yield (run,)
        run = ""
        if operator is _constants.SUBPATTERN:
            yield from _needs(value[-1])
        elif operator in _REPEATS and value[0] >= 1:
            yield from _needs(value[2])
        elif operator is _constants.BRANCH:
            each = [min(_needs(branch), key=_worth, default=()) for branch in value[1]]
            words = tuple(dict.fromkeys(word for needed in each for word in needed))
            if all(each) and len(words) <= _MAX_NEEDS:
                yield words
    if len(run) >= _MIN_NEED:
        yield (run,)
