from __future__ import annotations

import io
from pathlib import Path

import pytest

from agent.commands import reading
from agent.errors import UserError


def test_standard_input_of_any_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"a\xff\nb\n"))
    monkeypatch.setattr("sys.stdin", stream)
    assert reading.read_stdin() == "a\ufffd\nb"


@pytest.mark.parametrize("size", [0, 1, reading.KEPT, 2 * reading.KEPT])
def test_what_is_short_is_whole(size: int, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"x" * size)
    assert reading.read_file(str(path)) == "x" * size


@pytest.mark.parametrize("more", [1, 3 * reading.KEPT + 7])
def test_of_a_long_text_both_ends_are_kept(
    more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = b"begin" + b"x" * (2 * reading.KEPT - 10 + more) + b"finis\n"
    path = tmp_path / "t"
    path.write_bytes(raw)
    said = reading.read_file(str(path))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert reading.read_stdin() == said
    assert said.startswith("begin")
    assert said.endswith("finis")
    assert len(said) <= 2 * reading.KEPT + 1


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        reading.read_file(str(tmp_path / "none"))
