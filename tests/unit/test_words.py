"""The words that documents use in one sense are defined in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLACE = "architecture.md"
WORDS = (
    *("link", "generation", "instance", "renewal", "call", "attempt", "verdict", "culprit"),
    *("held verdict", "mode", "outcome", "overlay", "intake", "registry"),
)


def section() -> str:
    text = (DOCS / PLACE).read_text()
    return text.split("## Words\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("word", WORDS)
def test_each_word_is_defined_once(word: str) -> None:
    assert len(re.findall(rf"^- \*\*{word}\*\*: \S.{{20,}}$", section(), re.M)) == 1


@pytest.mark.parametrize("file", sorted(DOCS.glob("*.md")), ids=lambda file: file.name)
def test_documents_send_readers_there(file: Path) -> None:
    """And each word that one says it takes from there is there."""
    text = file.read_text()
    assert "those of the README" not in text
    for said in re.findall(r"Words (?:\(([^)]*)\) )?are those of (.*?)\. ", f"{text} "):
        assert said[1] == f"[{PLACE}]({PLACE}#words)"
        assert set(filter(None, said[0].split(", "))) <= set(WORDS)
