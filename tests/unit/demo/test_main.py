from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
from pathlib import Path

import pytest

from agent import demo
from agent.demo import main
from agent.demo.main import INTERRUPTED, LONGEST_ROOT, temporary_root
from agent.errors import AgentError


class Stub:
    """Stands for Demo; `does` is what happens in play()."""

    roots: list[Path]
    does = ""
    closed = 0

    def __init__(self, root: Path, printer: object) -> None:
        type(self).roots.append(root)
        self.differs = ["x"] if self.does == "differ" else []

    async def start(self) -> None:
        if self.does == "fail":
            raise AgentError("no agent")

    async def play(self) -> None:
        if self.does == "signal":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(10)

    async def end(self) -> None:
        pass

    async def keep(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(10)

    async def close(self) -> None:
        type(self).closed += 1


@pytest.mark.parametrize(
    ("does", "keep", "code"),
    [
        ("", False, 0),
        ("differ", False, 1),
        ("fail", False, 1),
        ("signal", False, INTERRUPTED),
        ("", True, 0),
        ("differ", True, 1),
    ],
)
def test_exit_codes_and_that_nothing_is_left(
    does: str, keep: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mine(Stub):
        roots: list[Path] = []  # noqa: RUF012

    Mine.does = does
    monkeypatch.setattr(main, "Demo", Mine)
    assert demo.run(argparse.Namespace(keep=keep)) == code
    assert Mine.closed == 1
    assert [root.exists() for root in Mine.roots] == [False]


def test_the_root_is_short_wherever_temporary_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * LONGEST_ROOT)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    root = temporary_root()
    assert len(str(root)) <= LONGEST_ROOT
    assert list(long.iterdir()) == []
    root.rmdir()
