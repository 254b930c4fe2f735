"""Failure -> verdict: the one place where a driver's words are given a meaning.

The first of these that knows the failure decides:

1. the driver's own word: `permanent_error`, its marker in the text, google.rpc error details;
2. how the call broke, if there was no answer at all;
3. the text, by a driver's own rules, then by generic ones;
4. the gRPC code; hardly any driver sets one;
5. a driver's catch-all rule;
6. nothing: `ambiguous`, `unknown`, rule `default`.

Of several errors joined in one text (lines, `; `, or a list in brackets) a permanent one wins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.core import clauses, details, evidence, marker, naming, parts, text
from agent.core.model import MATCHED, Culprit, Failure, Kind, Transport, Verdict
from agent.core.rules import Pack, Repeat, Rule, strictest

DEFAULT = "default"
_UNKNOWN = Verdict(
    Kind.AMBIGUOUS, Culprit.UNKNOWN, DEFAULT, "No rule knows this failure; see the driver's log."
)

IN_DOUBT = "It sounds final, but also speaks of something that may pass."

_LOST = frozenset({Transport.DEADLINE, Transport.RESET, Transport.PROTOCOL})
"""The driver may have done its work, and nobody knows."""
_MAX_DRIVERS = 256


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict and how it came about."""

    verdict: Verdict
    rule: Rule | None = None  # None: the driver's own word or the default decided
    matched: str = ""  # the words that the rule's pattern found
    pack: Pack | None = None  # what is known about the driver, where a pack is


class RuleSet:
    """Rules in the order of their precedence, and the answers they give."""

    def __init__(self, rules: Sequence[Rule] = (), packs: Sequence[Pack] = ()) -> None:
        """Take rules in file order; a file's rules for one driver come before its generic ones."""
        self.rules = tuple(sorted(rules, key=lambda rule: (rule.layer, rule.generic)))
        self.packs = tuple(sorted(packs, key=lambda pack: pack.layer))
        self._by_driver: dict[str, tuple[tuple[Rule, ...], Pack | None]] = {}

    def classify(self, failure: Failure) -> Verdict:
        """Say what a failure means."""
        return self.explain(failure).verdict

    def explain(self, failure: Failure) -> Explanation:
        """Say what a failure means, by which rule and which words."""
        all_rules, pack = self._of(failure.driver)
        rules = [rule for rule in all_rules if rule.admits(failure)]
        found = _explain(rules, failure)
        limit = _max_attempts(found, pack, failure)
        verdict = replace(found.verdict, max_attempts=limit) if limit else found.verdict
        return replace(found, verdict=verdict, pack=pack)

    def _of(self, driver: str) -> tuple[tuple[Rule, ...], Pack | None]:
        found = self._by_driver.get(driver)
        if found is None:
            if len(self._by_driver) >= _MAX_DRIVERS:
                self._by_driver.clear()
            own = tuple(rule for rule in self.rules if rule.serves(driver))
            pack = strictest([pack for pack in self.packs if pack.serves(driver)])
            found = self._by_driver[driver] = own, pack
        return found


def _max_attempts(found: Explanation, pack: Pack | None, failure: Failure) -> int | None:
    if found.rule is not None and found.rule.repeat is not None:
        return found.rule.repeat.max_attempts
    risky = found.verdict.kind is Kind.AMBIGUOUS or failure.transport in _LOST
    return (pack.repeat if pack is not None and risky else Repeat.FREELY).max_attempts


def _explain(rules: Sequence[Rule], failure: Failure) -> Explanation:
    if failure.transport is not None and not failure.permanent_error:
        rule = next((rule for rule in rules if rule.transports), None)
        return _found(rule) if rule else Explanation(_UNKNOWN)
    known = _by_text(rules, failure)
    said = details.parse(failure.details)
    word = (
        evidence.of_field(failure)
        or evidence.of_marker(marker.find(failure.text, failure.claim))
        or evidence.of_error_info(said)
    )
    if word is not None:
        return _own_word(word, known)
    if said.reason:
        for rule in rules:
            if said.reason in rule.reasons and rule.text is None:
                return _found(rule)
    word = evidence.of_details(said)
    if word is not None:
        return _own_word(word, known)
    if known is not None:
        return known
    return _without_text(rules) or Explanation(_UNKNOWN)


def _without_text(rules: Sequence[Rule]) -> Explanation | None:
    for with_code in (True, False):
        for rule in rules:
            bare = rule.text is None and not rule.transports and not rule.reasons
            if bare and bool(rule.codes) is with_code:
                return _found(rule)
    return None


def _by_text(rules: Sequence[Rule], failure: Failure) -> Explanation | None:
    whole, singles = parts.split(failure.text)
    found = _search(rules, whole, whole)
    if found is not None and found.verdict.permanent:
        return found
    for single in singles:
        other = _search(rules, single, whole)
        if other is not None and (found is None or other.verdict.permanent):
            found = other
            if other.verdict.permanent:
                break
    return found


def _search(rules: Sequence[Rule], part: str, whole: str) -> Explanation | None:
    masked = parts.mask(part)
    own = ((part, part.lower()),)
    generic = tuple((form, form.lower()) for form in dict.fromkeys((masked, parts.spelled(masked))))
    in_doubt: Explanation | None = None
    for rule in rules:
        if in_doubt is not None and rule.kind is Kind.PERMANENT and rule.doubts:
            continue
        match = rule.search_forms(generic if rule.generic else own)
        if match is None:
            continue
        if rule.doubted(generic):
            in_doubt = _doubt(rule, text.clean(part[slice(*match.span())], MATCHED))
            continue
        device, where = _named(rule, part, match)
        at = whole.find(part) if part is not whole else 0
        span = (at + match.start(), at + match.end()) if at >= 0 else None
        words = text.clean(part[slice(*match.span())], MATCHED)
        verdict = replace(_verdict(rule), device=device, where=where, span=span, matched=words)
        return Explanation(verdict, rule, words)
    return in_doubt


def _doubt(rule: Rule, words: str) -> Explanation:
    """What a permanent rule still says of an error that also speaks of what may pass.

    A value that is wrong for the moment is not the claim's fault; nobody knows whose it is.
    """
    theirs = rule.culprit in (Culprit.PARAMETERS, Culprit.CLAIM)
    verdict = replace(
        _verdict(rule),
        kind=Kind.AMBIGUOUS,
        culprit=Culprit.UNKNOWN if theirs else rule.culprit,
        hint=IN_DOUBT if theirs else f"{IN_DOUBT} If it lasts: {rule.hint}",
        matched=words,
    )
    return Explanation(verdict, rule, words)


def _named(rule: Rule, part: str, match: re.Match[str]) -> tuple[str | None, str]:
    """The device that is meant, and the words in which it is named in whatever form.

    The rule's device group says it, or else the only device in the clause that the rule matched.
    """
    if "device" in match.re.groupindex and match.start("device") >= 0:
        start, end = match.span("device")
        folder = part.rfind("/dev/", max(0, start - 24), start)
        return part[start:end] or None, part[folder:end] if folder >= 0 else ""
    if rule.culprit is not Culprit.DEVICE or rule.kind is Kind.AMBIGUOUS:
        return None, ""
    where = _where(rule, parts.without_company(part), match)
    named = naming.names(where)
    return (named[0] if len(named) == 1 else None), where


def _where(rule: Rule, part: str, match: re.Match[str]) -> str:
    """The clause that the rule matched; where that names nothing, others that it matches too."""
    where = clauses.subject(part, match.span())
    if rule.text is None or naming.names(where):
        return where
    found = [where]
    for start, end in clauses.others(part, match.span()):
        said = part[start:end]
        other = rule.text.search(said, said.lower())
        if other is not None:
            found.append(clauses.subject(part, (start + other.start(), start + other.end())))
    return "; ".join(filter(None, found))


def _found(rule: Rule) -> Explanation:
    return Explanation(_verdict(rule), rule)


def _verdict(rule: Rule) -> Verdict:
    return Verdict(
        kind=rule.kind,
        culprit=rule.culprit,
        rule=rule.id,
        hint=rule.hint,
        waits_for=rule.waits_for,
    )


def _own_word(word: Verdict, known: Explanation | None) -> Explanation:
    """The driver's word decides; what it leaves open is taken from what the rules say."""
    if known is None:
        return Explanation(word)
    verdict, culprit, device, where = known.verdict, word.culprit, word.device, ""
    if culprit in (Culprit.UNKNOWN, verdict.culprit):
        culprit = verdict.culprit
        if device is None:
            device, where = verdict.device, verdict.where
    agrees = verdict.kind is word.kind or verdict.kind is Kind.AMBIGUOUS
    merged = replace(
        word,
        culprit=culprit,
        device=device,
        hint=word.hint or (verdict.hint if agrees else ""),
        waits_for=verdict.waits_for,
        span=word.span or verdict.span,
        matched=verdict.matched,
        where=where,
    )
    return Explanation(merged, known.rule, known.matched)
