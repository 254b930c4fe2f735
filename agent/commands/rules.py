"""`dra-agent rules lint|test`: rule files, before they judge anything.

`lint` reads them as the agent would. `test` also tries each rule's examples, and shows every text
of the corpus whose verdict the files would change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from agent.commands import corpus
from agent.core import text
from agent.core.classify import RuleSet
from agent.core.model import Failure, Kind, Surface, Verdict
from agent.core.rules import Pack, Rule
from agent.errors import UserError
from agent.settings.load import read_text
from agent.settings.rulefiles import BUILTIN, Parsed, builtin_text, parse_file

_OTHER_DRIVER = "other.example"


@dataclass(frozen=True, slots=True)
class Change:
    """A text that is judged otherwise with the new rules."""

    id: str
    before: str
    after: str
    false_permanent: bool
    text: str

    def __str__(self) -> str:
        worse = "  FALSE PERMANENT" if self.false_permanent else ""
        return f"{self.id}: {self.before} -> {self.after}{worse}\n    {text.clean(self.text, 160)}"


def lint(files: Sequence[str]) -> list[str]:
    """Lines to print for good files; UserError with all problems of all."""
    problems: list[str] = []
    lines: list[str] = []
    known = _globs(_builtin(0))
    for path in files:
        parsed = parse_file(read_text(path), path, 0, problems)
        lines.append(f"{path}: {len(parsed.rules)} rules")
        problems.extend(
            f"{path}: {line}" for line in driver_names(parsed.rules, known | _globs(parsed))
        )
        lines.extend(f"{path}: warning: {line}" for line in _incomplete(parsed.rules))
    if problems:
        raise UserError(*problems)
    return lines


def driver_names(rules: Sequence[Rule], packed: Set[str]) -> Iterator[str]:
    """Say which generic rules look for the name of a driver that has a pack."""
    own = {glob.strip("*?.") for glob in packed} - {""}
    for rule in rules:
        for pattern in (rule.text, rule.also, rule.unless) if rule.generic else ():
            words = pattern.pattern.replace("\\", "") if pattern else ""
            for name in sorted(own):
                if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", words):
                    yield f"rule `{rule.id}` is for all drivers but names `{name}`: use a pack"


def failed_examples(rules: RuleSet, of: Sequence[Rule]) -> Iterator[str]:
    """Say which examples another rule decides."""
    for rule in of:
        driver = _OTHER_DRIVER if rule.generic else rule.drivers[0].replace("*", "x")
        for example in rule.examples:
            code = min(rule.codes, default=None)
            failure = Failure(
                driver=driver,
                operation=rule.operation or "prepare",
                surface=rule.surface or (Surface.CALL_ERROR if code else Surface.CLAIM_ERROR),
                text=example,
                code=code,
            )
            got = rules.classify(failure).rule
            if got != rule.id:
                yield f"rule `{rule.id}`: its example is decided by `{got}`: {text.quote(example)}"


def changes(before: RuleSet, after: RuleSet, entries: Sequence[corpus.Entry]) -> Iterator[Change]:
    """What the new rules judge otherwise: verdict, culprit, device, or safety of a repeat."""
    for entry in entries:
        old, new = before.classify(entry.failure), after.classify(entry.failure)
        if _seen(old) == _seen(new):
            continue
        safety = old.max_attempts != new.max_attempts
        wanted = entry.fields.get("verdict")
        yield Change(
            id=entry.id,
            before=_words(old, safety=safety),
            after=_words(new, safety=safety),
            false_permanent=new.kind is Kind.PERMANENT and wanted not in (None, Kind.PERMANENT),
            text=entry.failure.text,
        )


def _globs(parsed: Parsed) -> frozenset[str]:
    """The drivers that packs are about."""
    named = [rule.drivers for rule in parsed.rules if not rule.generic]
    return frozenset(
        glob for globs in (*named, *(p.drivers for p in parsed.packs)) for glob in globs
    )


def _seen(verdict: Verdict) -> tuple[object, ...]:
    return verdict.kind, verdict.culprit, verdict.blamed, verdict.max_attempts


def _words(verdict: Verdict, *, safety: bool) -> str:
    said = f"{verdict.kind}, {verdict.culprit} ({verdict.rule})"
    attempts = verdict.max_attempts
    if not safety:
        return said
    if attempts is None:
        return f"{said}, repeats are safe"
    return f"{said}, at most {attempts} attempt{'s' if attempts > 1 else ''} per call"


def _builtin(layer: int) -> Parsed:
    return parse_file(builtin_text(), BUILTIN, layer, [], own=True)


def _incomplete(rules: Sequence[Rule]) -> Iterator[str]:
    for rule in rules:
        for name, value in (("hint", rule.hint), ("source", rule.source)):
            if not value:
                yield f"rule `{rule.id}` has no {name}"
        if rule.text is not None and not rule.examples:
            yield f"rule `{rule.id}` has no example"


def test(files: Sequence[str], corpus_file: str | None) -> int:
    """Print what fails and what changes; 1 where that is a mistake, else 0."""
    lint(files)
    problems: list[str] = []
    new: list[Rule] = []
    packs: list[Pack] = []
    for layer, path in enumerate(files):
        parsed = parse_file(read_text(path), path, layer, problems)
        new += parsed.rules
        packs += parsed.packs
    builtin = _builtin(len(files))
    before = RuleSet(builtin.rules, builtin.packs)
    after = RuleSet([*new, *builtin.rules], [*packs, *builtin.packs])
    name = corpus_file or "built-in corpus"
    odd = corpus.Odd()
    texts = corpus.read(corpus_file, odd) if corpus_file else corpus.entries(corpus.builtin(), name)
    entries = list(texts)
    failed = list(failed_examples(after, new))
    changed = list(changes(before, after, entries))
    examples = sum(len(rule.examples) for rule in new)
    for line in failed:
        print(f"FAILED: {line}")
    for change in changed:
        print(f"CHANGED: {change}")
    print(
        f"{len(new)} rules, {examples} examples, {len(failed)} failed; "
        f"{len(entries)} texts of the {name}, {len(changed)} changed"
    )
    return 1 if failed or odd.skipped or any(change.false_permanent for change in changed) else 0
