"""A rule's pattern as it is searched for: only where the text holds the words that it needs.

The words and the alternatives are computed from the pattern alone; `agent.core.patterns` says
which patterns there may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]  # the only way to the tree
from typing import Any

FLAGS = re.IGNORECASE | re.ASCII
"""Drivers do not agree on capitals. ASCII: no letter outside it equals one inside."""
Tree = Any  # of a parsed pattern: its nodes have no public types
REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)

_MIN_NEED = 3  # shorter words are in every text
_MAX_NEEDS = 32
_MAX_SETS = 3

Needs = tuple[tuple[str, ...], ...]
"""Sets of lower-case words; a text that lacks all words of one of the sets cannot match."""


class Matcher:
    """A rule's pattern. Alternatives whose words a text lacks are not tried: that is the speed.

    Nothing is compiled before it is needed: a node sees few of the failures that there are rules
    for, and the agent starts without any.
    """

    __slots__ = ("_alternatives", "constants", "pattern")

    def __init__(self, pattern: str) -> None:
        """Take an allowed pattern (`agent.core.patterns`); another one may raise in a search."""
        self.pattern = pattern
        self.constants = "_" in pattern  # it can tell `LIB_BUSY` from `LIB BUSY`
        self._alternatives: tuple[_Alternative, ...] = ()

    def search(self, part: str, lowered: str) -> re.Match[str] | None:
        """Find the first alternative that matches; `lowered` is `part` in lower case."""
        if not self._alternatives:
            self._alternatives = tuple(_Alternative(one) for one in alternatives(self.pattern))
        for alternative in self._alternatives:
            if _has(lowered, alternative.needs):
                match = alternative.search(part)
                if match is not None:
                    return match
        return None


class _Alternative:
    __slots__ = ("_pattern", "_regex", "needs")

    def __init__(self, pattern: str) -> None:
        self.needs = needs(pattern)
        self._pattern = pattern
        self._regex: re.Pattern[str] | None = None

    def search(self, part: str) -> re.Match[str] | None:
        if self._regex is None:
            self._regex = re.compile(self._pattern, FLAGS)
        return self._regex.search(part)


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
        elif pattern.startswith("(?#", at):
            at = pattern.index(")", at)
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


def needs(pattern: str) -> Needs:
    """Words that a text must hold for this (allowed) pattern to match it; at most three sets."""
    found = sorted(set(_needs(_parser.parse(pattern, FLAGS))), key=_worth)
    return tuple(found[:_MAX_SETS])


def _worth(words: tuple[str, ...]) -> tuple[int, int]:
    """Sort key: few and long words first."""
    return len(words), -min(len(word) for word in words)


def _needs(tree: Tree) -> Iterator[tuple[str, ...]]:
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
        elif operator in REPEATS and value[0] >= 1:
            yield from _needs(value[2])
        elif operator is _constants.BRANCH:
            each = [min(_needs(branch), key=_worth, default=()) for branch in value[1]]
            words = tuple(dict.fromkeys(word for needed in each for word in needed))
            if all(each) and len(words) <= _MAX_NEEDS:
                yield words
    if len(run) >= _MIN_NEED:
        yield (run,)
