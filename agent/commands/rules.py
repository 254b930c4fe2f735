"""`dra-agent rules lint|test`: rule files, before they judge anything.

`lint` reads them as the agent would. `test` also tries each rule's examples, and shows every text
of the corpus whose verdict the files would change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.commands import corpus
from agent.core import text
from agent.core.classify import RuleSet
from agent.core.model import Failure, Kind, Surface
from agent.core.rules import Rule
from agent.errors import UserError
from agent.settings.load import read_text
from agent.settings.rulefiles import builtin_text, parse_file, parse_rules

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
    for path in files:
        parsed = parse_file(read_text(path), path, 0, problems)
        lines.append(f"{path}: {len(parsed.rules)} rules")
        problems.extend(f"{path}: {line}" for line in driver_names(parsed.rules))
        lines.extend(f"{path}: warning: {line}" for line in _incomplete(parsed.rules))
    if problems:
        raise UserError(*problems)
    return lines


def driver_names(rules: Sequence[Rule]) -> Iterator[str]:
    """Say which generic rules look for the name of a driver that has a pack."""
    own = {glob.strip("*?.") for rule in rules if not rule.generic for glob in rule.drivers}
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
    """What the new rules judge otherwise: verdict, culprit or device."""
    for entry in entries:
        old, new = before.classify(entry.failure), after.classify(entry.failure)
        if (old.kind, old.culprit, old.blamed) == (new.kind, new.culprit, new.blamed):
            continue
        wanted = entry.fields.get("verdict")
        yield Change(
            id=entry.id,
            before=f"{old.kind}, {old.culprit} ({old.rule})",
            after=f"{new.kind}, {new.culprit} ({new.rule})",
            false_permanent=new.kind is Kind.PERMANENT and wanted not in (None, Kind.PERMANENT),
            text=entry.failure.text,
        )


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
    for layer, path in enumerate(files):
        new += parse_rules(read_text(path), path, layer, problems)
    builtin = parse_file(builtin_text(), "built-in rules", len(files), problems)
    before = RuleSet(builtin.rules, builtin.packs)
    after = RuleSet([*new, *builtin.rules], builtin.packs)
    name = corpus_file or "built-in corpus"
    entries = list(
        corpus.read(corpus_file) if corpus_file else corpus.entries(corpus.builtin(), name)
    )
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
    return 1 if failed or any(change.false_permanent for change in changed) else 0
