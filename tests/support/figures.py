"""How well the built-in rules judge the corpus; `python -m tests.support.figures` writes the table.

Nine sets: the corpus, with packs; five of invented texts in the style of drivers that it does not
have; two written from what drivers in public use print; and one of which half was written to tempt.
Leave-one-driver-out means that a text is judged without the packs of its own driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agent.commands import corpus
from agent.core.classify import Explanation, RuleSet
from agent.core.model import Culprit, Kind
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "classification.md"
BEGIN, END = "<!-- generated: figures -->\n", "<!-- generated: end -->"
CORPUS = "corpus"
RULES = load_rules(Rules())
GENERIC = RuleSet([rule for rule in RULES.rules if rule.generic])

Judge = Callable[[corpus.Entry], Explanation]


@dataclass
class Figures:
    """Counts over one set."""

    size: int = 0
    right: Counter[str] = field(default_factory=Counter)
    wanted: Counter[str] = field(default_factory=Counter)
    given: Counter[str] = field(default_factory=Counter)
    right_culprits: Counter[str] = field(default_factory=Counter)
    wanted_culprits: Counter[str] = field(default_factory=Counter)
    given_culprits: Counter[str] = field(default_factory=Counter)
    false_permanents: list[str] = field(default_factory=list)
    innocents: list[str] = field(default_factory=list)

    def recall(self, kind: str) -> float:
        """Share of the failures of that verdict that got it."""
        return share(self.right[kind], self.wanted[kind])

    @property
    def culprits(self) -> float:
        """Share of right culprits."""
        return share(sum(self.right_culprits.values()), self.size)


def share(part: int, whole: int) -> float:
    """A share; of nothing it is all."""
    return part / whole if whole else 1.0


@cache
def sets() -> tuple[tuple[str, tuple[corpus.Entry, ...]], ...]:
    """Name and texts of each set, the corpus first."""
    folder = ROOT / "tests" / "corpus"
    files = [
        (CORPUS, "failures.jsonl"),
        ("held-out 1", "heldout.jsonl"),
        ("held-out 2", "heldout2.jsonl"),
        ("held-out 3", "heldout3.jsonl"),
        ("held-out 4", "heldout4.jsonl"),
        ("held-out 5", "heldout5.jsonl"),
        ("held-out 6", "heldout6.jsonl"),
        ("held-out 7", "heldout7.jsonl"),
        ("held-out 8", "heldout8.jsonl"),
    ]
    return tuple((name, tuple(corpus.read(str(folder / file)))) for name, file in files)


def judge(entry: corpus.Entry) -> Explanation:
    """With all packs."""
    return RULES.explain(entry.failure)


def judge_without_pack(entry: corpus.Entry) -> Explanation:
    """Without the packs of the text's own driver, the others cannot match."""
    return GENERIC.explain(entry.failure)


def measure(entries: Sequence[corpus.Entry], by: Judge) -> Figures:
    """Judge each and count."""
    found = Figures(size=len(entries))
    for entry in entries:
        verdict = by(entry).verdict
        kind, culprit = entry.fields["verdict"], entry.fields["culprit"]
        found.wanted[kind] += 1
        found.given[verdict.kind] += 1
        found.right[kind] += verdict.kind == kind
        found.wanted_culprits[culprit] += 1
        found.given_culprits[verdict.culprit] += 1
        found.right_culprits[culprit] += verdict.culprit == culprit
        if verdict.permanent and kind != Kind.PERMANENT:
            found.false_permanents.append(entry.id)
        # The corpus names a device in some texts whose culprit is another: those are innocent.
        # A device named by another of its identifiers is the same device.
        if verdict.blamed and culprit != Culprit.DEVICE:
            found.innocents.append(entry.id)
    return found


def rows() -> list[tuple[str, Figures]]:
    """What the table shows."""
    every = dict(sets())
    observed = [one for one in every[CORPUS] if one.fields["text_origin"] == "observed"]
    shown = [
        ("corpus, with packs", measure(every[CORPUS], judge)),
        ("of it observed", measure(observed, judge)),
        ("corpus, leave one driver out", measure(every[CORPUS], judge_without_pack)),
        ("of it observed", measure(observed, judge_without_pack)),
    ]
    shown += [(name, measure(entries, judge)) for name, entries in sets()[1:]]
    return shown


def table() -> str:
    """The Markdown table: precision / recall by verdict and by culprit."""
    columns = [*Kind, *Culprit]
    head = ["Texts", "n", "False permanents", "Innocents blamed", "Culprit right"]
    lines = ["| " + " | ".join([*head, *columns]) + " |", "|---" * (len(head) + len(columns)) + "|"]
    for name, found in rows():
        cells = [
            name,
            str(found.size),
            str(len(found.false_permanents)),
            str(len(found.innocents)),
            percent(found.culprits),
        ]
        for kind in Kind:
            cells.append(_both(found.right[kind], found.given[kind], found.wanted[kind]))
        for culprit in Culprit:
            right, given = found.right_culprits[culprit], found.given_culprits[culprit]
            cells.append(_both(right, given, found.wanted_culprits[culprit]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def percent(value: float) -> str:
    """A share for people, rounded down: 100 means all."""
    return f"{int(value * 100)} %"


def with_table(page: str) -> str:
    """Put the current table between the marks of a page."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


def _both(right: int, given: int, wanted: int) -> str:
    if not wanted and not given:
        return "-"
    return f"{int(share(right, given) * 100)} / {int(share(right, wanted) * 100)}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
