"""Rule files -> a `RuleSet`; built-in rules come after the user's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agent import names
from agent.core.classify import DEFAULT, PERMANENT_ERROR, RuleSet
from agent.core.model import Culprit, Kind, Surface, Transport
from agent.core.rules import CODES, Rule, pattern_problem
from agent.errors import UserError
from agent.settings import document, tree
from agent.settings.load import read_text
from agent.settings.sections import Rules, Section

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_ID = 63

Verdicts = Literal["transient", "permanent", "ambiguous"]
Culprits = Literal["device", "parameters", "claim", "driver", "node", "api", "unknown"]
Transports = Literal["refused", "gone", "reset", "deadline", "protocol", "cancelled"]


class RuleEntry(Section, frozen=True):
    """One rule as written."""

    id: Annotated[str, Meta(description="Unique, lower-case words joined by dashes.")] = ""
    text: Annotated[str, Meta(description="Pattern, searched in the cleaned text.")] = ""
    code: Annotated[list[str], Meta(description="gRPC codes by name.")] = msgspec.field(
        default_factory=list
    )
    transport: Annotated[list[Transports], Meta(description="How the call broke.")] = msgspec.field(
        default_factory=list
    )
    operation: Literal["prepare", "unprepare"] | None = None
    surface: Literal["claim_error", "call_error", "transport"] | None = None
    verdict: Verdicts | None = None
    culprit: Culprits = "unknown"
    single_attempt: bool = False
    hint: str = ""
    source: str = ""
    examples: list[str] = msgspec.field(default_factory=list)


class PackEntry(Section, frozen=True):
    """Rules that hold for some drivers only."""

    name: str = ""
    drivers: list[str] = msgspec.field(default_factory=list)
    rules: list[RuleEntry] = msgspec.field(default_factory=list)


class RulesFile(Section, frozen=True):
    """A rule file as written."""

    api_version: Literal["dra-agent.io/v1alpha1"] = names.CONFIG_API_VERSION  # type: ignore[assignment]
    kind: Literal["FailureRules"] = "FailureRules"
    version: Annotated[int, Meta(ge=1)] = 1
    rules: list[RuleEntry] = msgspec.field(default_factory=list)
    packs: list[PackEntry] = msgspec.field(default_factory=list)


def load_rules(settings: Rules) -> RuleSet:
    """Read the user's rule files and the built-in rules; UserError with all problems of all."""
    rules: list[Rule] = []
    problems: list[str] = []
    builtin = len(settings.files)  # the layer after all others; its ids may be used again
    for layer, path in enumerate(settings.files):
        try:
            text = read_text(path)
        except UserError as error:
            problems.extend(error.problems)
            continue
        rules.extend(parse_rules(text, path, layer, problems))
    if settings.builtin:
        rules.extend(parse_rules(builtin_text(), "built-in rules", builtin, problems))
    seen: dict[str, int] = {}
    for rule in rules:
        if seen.setdefault(rule.id, rule.layer) < min(rule.layer, builtin):
            problems.append(f"rule `{rule.id}` is also in an earlier file")
    if problems:
        raise UserError(*problems)
    return RuleSet(rules)


def builtin_text() -> str:
    """Text of the rules that ship with the agent (in a source tree: of config/rules.yaml)."""
    shipped = resources.files("agent") / "data" / "rules.yaml"
    if shipped.is_file():
        return shipped.read_text(encoding="utf-8")
    return (Path(__file__).parents[2] / "config" / "rules.yaml").read_text(encoding="utf-8")


def parse_rules(text: str, name: str, layer: int, problems: list[str]) -> list[Rule]:
    """Read one file's rules in order; what is wrong is added to `problems` with the file's name."""
    found: list[tuple[str, str]] = []
    value, bad = document.read(text)
    found.extend(bad)
    written = RulesFile()
    if isinstance(value, dict):
        for key in ("apiVersion", "kind", "version"):
            if key not in value:
                found.append((key, "missing"))
        written = tree.build(RulesFile, value, "", lambda path, what: found.append((path, what)))
    elif not bad:
        found.append(("", "expected a mapping that begins with `apiVersion`"))
    rules: list[Rule] = []
    for at, drivers, entry in _entries(written, found):
        _check(entry, at, rules, found)
        if not any(path == at or path.startswith(f"{at}.") for path, _ in found):
            rules.append(_rule(entry, drivers, layer))
    for path, problem in sorted(found):
        problems.append(": ".join(part for part in (name, path, problem) if part))
    return rules


def _entries(
    written: RulesFile, found: list[tuple[str, str]]
) -> Sequence[tuple[str, tuple[str, ...], RuleEntry]]:
    entries: list[tuple[str, tuple[str, ...], RuleEntry]] = []
    for number, pack in enumerate(written.packs):
        at = f"packs[{number}]"
        if not pack.drivers or "*" in pack.drivers:
            found.append((f"{at}.drivers", "name the drivers; rules for all go under `rules`"))
        for index, entry in enumerate(pack.rules):
            entries.append((f"{at}.rules[{index}]", tuple(pack.drivers), entry))
    for index, entry in enumerate(written.rules):
        entries.append((f"rules[{index}]", ("*",), entry))
    return entries


def _check(entry: RuleEntry, at: str, rules: list[Rule], found: list[tuple[str, str]]) -> None:
    if not _ID.fullmatch(entry.id) or len(entry.id) > _MAX_ID:
        found.append(
            (f"{at}.id", f"expected lower-case words and dashes, got {tree.show(entry.id)}")
        )
    elif entry.id in (DEFAULT, PERMANENT_ERROR):
        found.append((f"{at}.id", f"`{entry.id}` is reserved"))
    elif any(rule.id == entry.id for rule in rules):
        found.append((f"{at}.id", f"`{entry.id}` is given twice"))
    if entry.verdict is None and not any(path == f"{at}.verdict" for path, _ in found):
        found.append((f"{at}.verdict", "missing"))
    if entry.text and (problem := pattern_problem(entry.text)):
        found.append((f"{at}.text", problem))
    for code in entry.code:
        if code not in CODES:
            found.append(
                (f"{at}.code", f"unknown gRPC code `{code}`{tree.near(code, list(CODES))}")
            )
    if entry.transport and (entry.text or entry.code):
        found.append((f"{at}.transport", "a call without an answer has neither text nor code"))


def _rule(entry: RuleEntry, drivers: tuple[str, ...], layer: int) -> Rule:
    return Rule(
        id=entry.id,
        kind=Kind(entry.verdict or "ambiguous"),
        culprit=Culprit(entry.culprit),
        drivers=drivers,
        text=re.compile(entry.text) if entry.text else None,
        codes=frozenset(CODES[code] for code in entry.code),
        transports=frozenset(Transport(word) for word in entry.transport),
        operation=entry.operation or "",
        surface=Surface(entry.surface) if entry.surface else None,
        hint=entry.hint,
        source=entry.source,
        single_attempt=entry.single_attempt,
        examples=tuple(entry.examples),
        layer=layer,
    )
