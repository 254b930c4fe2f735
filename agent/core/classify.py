"""Failure -> verdict: the one place where a driver's words are given a meaning.

The first of these that knows the failure decides:

1. the driver's own `permanent_error` (rule `driver-permanent-error`);
2. how the call broke, if there was no answer at all;
3. the text, by a driver's own rules, then by generic ones;
4. the gRPC code; no driver sets one, so it says what the transport saw;
5. a driver's catch-all rule;
6. nothing: `ambiguous`, `unknown`, rule `default`.

Of several errors joined in one text (lines, or a list in brackets) the most final one wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.core import text
from agent.core.model import Culprit, Failure, Kind, Verdict
from agent.core.rules import Rule

PERMANENT_ERROR = "driver-permanent-error"
DEFAULT = "default"
_UNKNOWN = Verdict(
    Kind.AMBIGUOUS, Culprit.UNKNOWN, DEFAULT, "No rule knows this failure; see the driver's log."
)

ENDS = 4096
"""Characters of the start and of the end of a text that patterns are run on. Prefixes are at the
start and causes at the end; what lies between is a list of the same."""
MAX_PARTS = 16
"""Errors of a joined text that are looked at one by one."""

_FINALITY = {Kind.PERMANENT: 0, Kind.AMBIGUOUS: 1, Kind.TRANSIENT: 2}
_LIST = re.compile(r"\[([^\[\]]{1,4000})\]$")
_MAX_DRIVERS = 256


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict and how it came about."""

    verdict: Verdict
    rule: Rule | None = None  # None: the field or the default decided
    matched: str = ""  # the words that the rule's pattern found


@dataclass(frozen=True, slots=True)
class _Hit:
    rule: Rule
    matched: str = ""
    device: str | None = None

    @property
    def verdict(self) -> Verdict:
        rule = self.rule
        return Verdict(
            kind=rule.kind,
            culprit=rule.culprit,
            rule=rule.id,
            hint=rule.hint,
            device=self.device,
            single_attempt=rule.single_attempt,
        )


class RuleSet:
    """Rules in the order of their precedence, and the answers they give."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        """Take rules in file order; a file's rules for one driver come before its generic ones."""
        self.rules = tuple(sorted(rules, key=lambda rule: (rule.layer, rule.generic)))
        self._by_driver: dict[str, tuple[Rule, ...]] = {}

    def classify(self, failure: Failure) -> Verdict:
        """Say what a failure means."""
        return self.explain(failure).verdict

    def explain(self, failure: Failure) -> Explanation:
        """Say what a failure means, by which rule and which words."""
        rules = [rule for rule in self._of(failure.driver) if rule.admits(failure)]
        if failure.permanent_error:
            return _explicit(_by_text(rules, failure.text))
        hit = _first(rules, failure)
        if hit is None:
            return Explanation(_UNKNOWN)
        return Explanation(hit.verdict, hit.rule, hit.matched)

    def _of(self, driver: str) -> tuple[Rule, ...]:
        found = self._by_driver.get(driver)
        if found is None:
            if len(self._by_driver) >= _MAX_DRIVERS:
                self._by_driver.clear()
            found = tuple(rule for rule in self.rules if rule.serves(driver))
            self._by_driver[driver] = found
        return found


def _first(rules: Sequence[Rule], failure: Failure) -> _Hit | None:
    if failure.transport is not None:
        for rule in rules:
            if rule.transports:
                return _Hit(rule)
        return None
    hit = _by_text(rules, failure.text)
    if hit is not None:
        return hit
    for with_code in (True, False):
        for rule in rules:
            if rule.text is None and not rule.transports and bool(rule.codes) is with_code:
                return _Hit(rule)
    return None


def _by_text(rules: Sequence[Rule], said: str) -> _Hit | None:
    hits = [hit for part in _parts(said) if (hit := _search(rules, part)) is not None]
    return min(hits, key=lambda hit: _FINALITY[hit.rule.kind], default=None)


def _search(rules: Sequence[Rule], part: str) -> _Hit | None:
    for rule in rules:
        match = rule.text.search(part) if rule.text is not None else None
        if match is not None:
            device = match.groupdict().get("device") or None
            return _Hit(rule, text.clean(match.group(), 200), device)
    return None


def _parts(said: str) -> Iterator[str]:
    """Yield the text as one line, then the single errors it is joined of."""
    said = text.ends(said, ENDS)
    whole = text.clean(said, 8 * ENDS)
    yield whole
    lines = [line for line in said.splitlines() if line.strip()]
    if len(lines) > 1:
        for line in lines[:MAX_PARTS]:
            yield text.clean(line, 8 * ENDS)
    aggregate = _LIST.search(whole[-ENDS:])
    if aggregate is not None and ", " in aggregate[1]:
        yield from aggregate[1].split(", ")[:MAX_PARTS]


def _explicit(hit: _Hit | None) -> Explanation:
    """Trust the driver that it is permanent; take from the rules only who is at fault."""
    known = hit.verdict if hit is not None else _UNKNOWN
    verdict = Verdict(
        kind=Kind.PERMANENT,
        culprit=known.culprit,
        rule=PERMANENT_ERROR,
        hint=known.hint if hit is not None and known.kind is not Kind.TRANSIENT else "",
        device=known.device,
        explicit=True,
    )
    return Explanation(verdict, hit.rule if hit else None, hit.matched if hit else "")
