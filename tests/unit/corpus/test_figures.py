"""The figures that docs/classification.md shows, and the ones that must hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.commands import corpus
from agent.core.model import Kind
from tests.support import figures

ROOT = Path(__file__).parents[3]
RULES = figures.RULES


def everything() -> list[corpus.Entry]:
    return [entry for _, entries in figures.sets() for entry in entries]


def of(name: str) -> Sequence[corpus.Entry]:
    return dict(figures.sets())[name]


def test_the_table_is_current() -> None:
    page = (ROOT / "docs" / "classification.md").read_text(encoding="utf-8")
    assert figures.with_table(page) == page, "run: python -m tests.support.figures"


@pytest.mark.parametrize("name", [name for name, _ in figures.sets()])
def test_what_counts_most_everywhere(name: str) -> None:
    found = figures.measure(of(name), figures.judge)
    assert found.false_permanents == []
    assert found.innocents == []


def test_with_packs() -> None:
    found = figures.measure(of(figures.CORPUS), figures.judge)
    assert found.recall(Kind.PERMANENT) >= 0.95
    assert found.recall(Kind.TRANSIENT) >= 0.90
    assert found.culprits >= 0.90


def test_with_the_driver_s_own_pack_off() -> None:
    found = figures.measure(of(figures.CORPUS), figures.judge_without_pack)
    assert found.false_permanents == []
    assert found.innocents == []
    assert found.recall(Kind.PERMANENT) >= 0.75
    assert found.recall(Kind.TRANSIENT) >= 0.90
    assert found.culprits >= 0.90


def test_observed_texts_alone() -> None:
    observed = [one for one in of(figures.CORPUS) if one.fields["text_origin"] == "observed"]
    assert len(observed) >= 20
    found = figures.measure(observed, figures.judge)
    assert found.recall(Kind.PERMANENT) >= 0.95
    assert found.culprits >= 0.90


def test_texts_of_no_driver_in_the_corpus() -> None:
    for name, entries in figures.sets()[1:-1]:
        found = figures.measure(entries, figures.judge)
        assert found.recall(Kind.PERMANENT) >= 0.90, name
        assert found.recall(Kind.TRANSIENT) >= 0.90, name
        assert found.culprits >= 0.80, name


def test_texts_that_tempt() -> None:
    """Half of the last set was written to be called permanent: none may, and little is known."""
    name, entries = figures.sets()[-1]
    found = figures.measure(entries, figures.judge)
    assert (name, found.false_permanents, found.innocents) == ("held-out 8", [], [])
    assert found.recall(Kind.PERMANENT) >= 0.50


def test_texts_that_sound_final_but_may_pass() -> None:
    entries = list(corpus.read(str(ROOT / "tests" / "corpus" / "tempting.jsonl")))
    judged = {one.id: figures.judge(one).verdict.permanent for one in entries}
    final = [one.id for one in entries if one.fields.get("verdict") == Kind.PERMANENT]
    assert [one for one in judged if judged[one] and one not in final] == []
    assert sum(judged[one] for one in final) >= len(final) - 2


def test_the_corpus_is_complete_and_ids_are_unique() -> None:
    entries = everything()
    assert len(of(figures.CORPUS)) == 120
    assert len(entries) >= 320
    assert len({entry.id for entry in entries}) == len(entries)
