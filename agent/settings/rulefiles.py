"""Rule files -> a `RuleSet`; built-in rules come after the user's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from agent.core import evidence, patterns
from agent.core.classify import RuleSet
from agent.core.matcher import Matcher
from agent.core.model import Culprit, Kind, Surface, Transport, WaitsFor
from agent.core.rules import CODES, Pack, Repeat, Rule
from agent.errors import UserError
from agent.settings import document, tree
from agent.settings.load import read_text, shipped
from agent.settings.rulemodel import DoubtEntry, PackEntry, RepeatEntry, RuleEntry, RulesFile
from agent.settings.sections import Rules

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_ID = 63
BUILTIN = "built-in rules"


class Found(list[tuple[str, str]]):
    """Problems of a file: path and words."""

    def say(self, path: str, problem: str) -> None:
        """Add one."""
        self.append((path, problem))

    def add(self, path: str, problem: str) -> None:
        """Add one that may follow from another: of a value that was not understood."""
        if not self.within(path):
            self.say(path, problem)

    def about(self, path: str) -> bool:
        """Tell whether this very value has a problem."""
        return any(known == path for known, _ in self)

    def within(self, path: str) -> bool:
        """Tell whether it, or anything in it, has a problem."""
        return any(known == path or known.startswith((f"{path}.", f"{path}[")) for known, _ in self)


@dataclass(slots=True)
class Parsed:
    """What one file holds, in order; `packs` are those that say what a repeat may do."""

    rules: list[Rule] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)


def load_rules(settings: Rules) -> RuleSet:
    """Read the user's rule files and the built-in rules; UserError with all problems of all."""
    rules: list[Rule] = []
    packs: list[Pack] = []
    problems: list[str] = []
    builtin = len(settings.files)  # the layer after all others; its ids may be used again
    for layer, path in enumerate(settings.files):
        if not path.strip():
            continue  # said by settings.checks
        try:
            text = read_text(path)
        except UserError as error:
            problems.extend(f"rules.files[{layer}]: {line}" for line in error.problems)
            continue
        parsed = parse_file(text, path, layer, problems)
        rules += parsed.rules
        packs += parsed.packs
    if settings.builtin:
        parsed = parse_file(builtin_text(), BUILTIN, builtin, problems, own=True)
        rules += parsed.rules
        packs += parsed.packs
    seen: dict[str, int] = {}
    for rule in rules:
        if seen.setdefault(rule.id, rule.layer) < min(rule.layer, builtin):
            problems.append(f"rule `{rule.id}` is also in an earlier file")
    if problems:
        raise UserError(*problems)
    return RuleSet(rules, packs)


def problems_of(settings: Rules) -> list[str]:
    """What is wrong with the user's rule files; the built-in rules are not read for it."""
    try:
        load_rules(Rules(files=settings.files, builtin=False))
    except UserError as error:
        return list(error.problems)
    return []


def builtin_text() -> str:
    """Text of the rules that ship with the agent."""
    return shipped("rules.yaml")


def parse_rules(text: str, name: str, layer: int, problems: list[str]) -> list[Rule]:
    """Read one file's rules in order; what is wrong is added to `problems` with the file's name."""
    return parse_file(text, name, layer, problems).rules


def parse_file(
    text: str, name: str, layer: int, problems: list[str], *, own: bool = False
) -> Parsed:
    """Read one file; what is wrong is added to `problems` with the file's name.

    `own` is the file that ships with the agent: its patterns are not tried again at each start,
    for the tests have done so.
    """
    found = Found()
    value, bad = document.read(text, own=own)
    found.extend(bad)
    written = RulesFile()
    if isinstance(value, dict):
        for key in ("apiVersion", "kind", "version"):
            if key not in value:
                found.say(key, "missing")
        written = tree.build(RulesFile, value, "", found.say)
    elif not bad:
        found.say("", "expected a mapping that begins with `apiVersion`")
    parsed = Parsed()
    for number, pack in enumerate(written.packs):
        if found.about(f"packs[{number}]"):
            continue
        _check_pack(pack, f"packs[{number}]", found)
        if pack.repeat is not None:
            parsed.packs.append(_pack(pack, pack.repeat, layer))
    doubts = _doubts(written.doubts, found, own=own)
    seen: set[str] = set()
    for at, drivers, entry in _entries(written):
        if found.about(at):
            continue
        _check(entry, at, seen, found)
        if not own:
            _check_patterns(entry, at, found)
        if not found.within(at):
            rule = _rule(entry, drivers, layer)
            doubtful = rule.generic and rule.kind is Kind.PERMANENT and rule.text is not None
            parsed.rules.append(
                replace(rule, doubts=doubts) if doubtful and not entry.certain else rule
            )
    for path, problem in sorted(found):
        problems.append(": ".join(part for part in (name, path, problem) if part))
    return parsed


def _entries(written: RulesFile) -> Iterator[tuple[str, tuple[str, ...], RuleEntry]]:
    for number, pack in enumerate(written.packs):
        for index, entry in enumerate(pack.rules):
            yield f"packs[{number}].rules[{index}]", tuple(pack.drivers), entry
    for index, entry in enumerate(written.rules):
        yield f"rules[{index}]", ("*",), entry


def _doubts(entries: Sequence[DoubtEntry], found: Found, *, own: bool) -> tuple[Matcher, ...]:
    for number, entry in enumerate(entries):
        at = f"doubts[{number}]"
        if not entry.text or not entry.reason:
            found.add(at, "needs a `text` and a `reason`")
        elif not own and (problem := patterns.problem(entry.text, frozenset())):
            found.say(f"{at}.text", problem)
    if found.within("doubts"):
        return ()
    return tuple(Matcher(entry.text) for entry in entries)


def _check_pack(pack: PackEntry, at: str, found: Found) -> None:
    if not pack.drivers or "*" in pack.drivers:
        found.add(f"{at}.drivers", "name the drivers; rules for all go under `rules`")
    if pack.repeat is not None and not pack.repeat.reason:
        found.add(f"{at}.repeat.reason", "missing: a person must know why")


def _check(entry: RuleEntry, at: str, seen: set[str], found: Found) -> None:
    if not _ID.fullmatch(entry.id) or len(entry.id) > _MAX_ID:
        found.add(f"{at}.id", f"expected lower-case words and dashes, got {tree.show(entry.id)}")
    elif entry.id in evidence.RESERVED:
        found.say(f"{at}.id", f"`{entry.id}` is reserved")
    elif entry.id in seen:
        found.say(f"{at}.id", f"`{entry.id}` is given twice")
    seen.add(entry.id)
    if entry.verdict is None:
        found.add(f"{at}.verdict", "missing")
    for code in entry.code:
        if code not in CODES:
            found.say(f"{at}.code", f"unknown gRPC code `{code}`{tree.near(code, list(CODES))}")
    if entry.transport and (entry.text or entry.code or entry.reason):
        found.say(f"{at}.transport", "a call without an answer has neither text nor code")
    if entry.single_attempt and entry.repeat not in (None, "never"):
        found.say(f"{at}.repeat", "says something else than `singleAttempt: true`")


def _check_patterns(entry: RuleEntry, at: str, found: Found) -> None:
    if entry.text and (problem := patterns.problem(entry.text)):
        found.say(f"{at}.text", problem)
    for key, pattern in (("also", entry.also), ("unless", entry.unless)):
        if not pattern:
            continue
        if problem := patterns.problem(pattern, frozenset()):
            found.say(f"{at}.{key}", problem)
        if not entry.text:
            found.say(f"{at}.{key}", "needs a `text` beside it")


def _pack(entry: PackEntry, repeat: RepeatEntry, layer: int) -> Pack:
    return Pack(
        name=entry.name,
        drivers=tuple(entry.drivers),
        version=entry.version,
        repeat=Repeat(repeat.within_call),
        reason=repeat.reason,
        source=repeat.source,
        layer=layer,
    )


def _rule(entry: RuleEntry, drivers: tuple[str, ...], layer: int) -> Rule:
    repeat = "never" if entry.single_attempt else entry.repeat
    return Rule(
        id=entry.id,
        kind=Kind(entry.verdict or "ambiguous"),
        culprit=Culprit(entry.culprit),
        drivers=drivers,
        text=Matcher(entry.text) if entry.text else None,
        also=Matcher(entry.also) if entry.also else None,
        unless=Matcher(entry.unless) if entry.unless else None,
        codes=frozenset(CODES[code] for code in entry.code),
        reasons=frozenset(entry.reason),
        transports=frozenset(Transport(word) for word in entry.transport),
        operation=entry.operation or "",
        surface=Surface(entry.surface) if entry.surface else None,
        hint=entry.hint,
        source=entry.source,
        repeat=Repeat(repeat) if repeat else None,
        waits_for=WaitsFor(entry.waits_for) if entry.waits_for else None,
        examples=tuple(entry.examples),
        layer=layer,
    )
