"""docs/pitfalls.md: all of them, each with tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "pitfalls.md"
COUNT = 35

ROW = re.compile(r"\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


def test_each_pitfall_names_tests_that_exist() -> None:
    rows = [found for line in PAGE.read_text().splitlines() if (found := ROW.fullmatch(line))]
    assert [int(row[1]) for row in rows] == list(range(1, COUNT + 1))
    missing = []
    for row in rows:
        named = TEST.findall(row[4])
        assert named, f"pitfall {row[1]} names no test"
        assert TEST.sub("", row[4]).strip() == "", row[4]
        for file, name in named:
            path = ROOT / file
            if not path.exists() or name not in functions(path):
                missing.append(f"{row[1]}: {file}::{name}")
    assert not missing
