"""tests/node/build.py: which programs a session of the node tests is built of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node import build


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A Go module with the files of both releases."""
    (tmp_path / "cmd" / "kube").mkdir(parents=True)
    (tmp_path / "cmd" / "kube" / "main.go").write_text("package main")
    for name in ("go.mod", "go.sum", "oldest.mod", "oldest.sum"):
        (tmp_path / name).write_text(name)
    return tmp_path


def key(program: str, module: Path) -> str:
    return build._go_key(program, module)


@pytest.mark.parametrize(
    ("choice", "programs"),
    [
        ("", ("kube", "driver")),
        ("newest", ("kube", "driver")),
        ("oldest", ("kube-oldest", "driver")),
    ],
)
def test_only_the_release_that_is_asked_for_is_built(
    monkeypatch: pytest.MonkeyPatch, choice: str, programs: tuple[str, str]
) -> None:
    monkeypatch.setenv(build.CHOICE, choice)
    assert build.programs() == programs


def test_another_word_is_said_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.CHOICE, "1.35")
    with pytest.raises(SystemExit, match="there are newest, oldest"):
        build.kube()


def test_each_release_is_made_anew_by_what_it_is_made_of(module: Path) -> None:
    newest, oldest = key("kube", module), key("kube-oldest", module)
    assert newest != oldest
    (module / "oldest.sum").write_text("changed")
    assert key("kube", module) == newest
    assert key("kube-oldest", module) != oldest
    (module / "cmd" / "kube" / "main.go").write_text("changed")
    assert key("kube", module) != newest
