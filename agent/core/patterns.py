"""What a rule's pattern may look like.

Patterns run on driver text, which is hostile, with Python's matcher, which backtracks. A pattern is
refused unless its cost is linear in the text by construction: a bound on the ways in which *one*
starting point can be matched is computed from the pattern alone (`a{1,64}b?` leaves 64 * 2), so a
search costs at most length of the text * MAX_CHOICES * length of the pattern. Unbounded or nested
repeats and back-references have no such bound and are refused.
"""

from __future__ import annotations

import re
import warnings
from re import _constants, _parser  # type: ignore[attr-defined]  # the only way to the tree

from agent.core.matcher import FLAGS, REPEATS, Tree, alternatives

MAX_PATTERN = 4000
"""Characters of a pattern."""
MAX_CHOICES = 4096
"""Ways one starting point may be matched; times 8 KiB of text this stays below half a second."""

_UNTOLD = 10**9  # a number of ways that is told; some have thousands of digits
_SINGLE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN, _constants.AT)
_LOOKS = (_constants.ASSERT, _constants.ASSERT_NOT)


def problem(pattern: str, groups: frozenset[str] = frozenset({"device"})) -> str | None:
    """Say why a rule must not use this pattern, or None. `groups` are the names it may use."""
    if len(pattern) > MAX_PATTERN:
        return f"longer than {MAX_PATTERN} characters"
    try:
        with warnings.catch_warnings():
            # `[[:alpha:]]` and the like: not what it looks like, and to change in Python.
            warnings.simplefilter("error", FutureWarning)
            tree = _parser.parse(pattern, FLAGS)
        if tree.state.flags != FLAGS:
            return "flags for the whole pattern, such as (?x), are not allowed"
        unknown = sorted(set(re.compile(pattern, FLAGS).groupindex) - groups)
        if unknown:
            return f"unknown group name {unknown[0]}: only `device`, in `text`, is read"
        choices = _choices(tree)
        for one in alternatives(pattern):  # they run each for itself, and are compiled late
            re.compile(one, FLAGS)
    except _Refused as error:
        return str(error)
    except (re.error, RecursionError, OverflowError, ValueError, FutureWarning) as error:
        return f"not a regular expression: {error}"
    if choices > MAX_CHOICES:
        ways = choices if choices < _UNTOLD else f"more than {_UNTOLD}"
        return f"its repeats leave {ways} ways to match; {MAX_CHOICES} are allowed"
    return None


class _Refused(Exception):
    """A construct without a bound on its cost."""


def _choices(tree: Tree) -> int:
    """Upper bound of the ways in which one starting point can be matched."""
    total = 1
    for operator, value in tree:
        if operator in _SINGLE:
            continue
        if operator in REPEATS:
            total *= _repeat(*value)
        elif operator is _constants.SUBPATTERN:
            if value[1] & re.VERBOSE:  # its comments would hide where the alternatives end
                raise _Refused("(?x: is not allowed")
            total *= _choices(value[-1])
        elif operator is _constants.BRANCH:
            total *= _branches(value[1])
        elif operator in _LOOKS:
            if len(value[1]) != 1 or value[1][0][0] not in _SINGLE:
                raise _Refused("only one character may be looked ahead or back at")
        else:
            raise _Refused(f"{str(operator).lower()} is not allowed in a rule")
    return total


def _branches(branches: Tree) -> int:
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


def _first(tree: Tree) -> frozenset[str] | None:
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
        elif operator in REPEATS:
            first, optional = _first(value[2]), value[0] == 0
        else:
            first = None
        if first is None:
            return None
        found |= first
        if not optional:
            return found
    return None


def _members(items: Tree) -> frozenset[str] | None:
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


def _repeat(low: int, high: int, inner: Tree) -> int:
    if high is _constants.MAXREPEAT:
        raise _Refused("an unbounded repeat (* or +): give a limit such as {1,64}")
    choices = _choices(inner)
    if choices > 1 and high > 1:
        raise _Refused("a repeat of something that itself can match in several ways")
    return int((high - low + 1) * choices)
