from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.demo.processes import until
from agent.demo.sockets import SocketWatcher
from tests.support.process import short_root


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.fixture
async def registry() -> AsyncIterator[tuple[Path, SocketWatcher]]:
    with short_root() as root:
        bind(root / "before.sock")
        (root / "file").touch()
        (root / ".hidden").mkdir()
        bind(root / ".hidden" / "found.sock")
        watcher = SocketWatcher(root)
        task = asyncio.create_task(watcher.run())
        yield root, watcher
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_first_walk_finds_sockets_in_hidden_directories_too(
    registry: tuple[Path, SocketWatcher],
) -> None:
    root, watcher = registry
    assert set(watcher.wanted) == {str(root / "before.sock"), str(root / ".hidden/found.sock")}


async def test_sockets_appear_and_disappear(registry: tuple[Path, SocketWatcher]) -> None:
    root, watcher = registry
    bind(root / "a.sock")
    await until(lambda: str(root / "a.sock") in watcher.wanted, "a")
    (root / "a.sock").unlink()
    await until(lambda: str(root / "a.sock") not in watcher.wanted, "a to go")
    bind(root / ".ignored")
    (root / "sub").mkdir()
    bind(root / "sub" / "deep.sock")
    await until(lambda: str(root / "sub/deep.sock") in watcher.wanted, "deep")
    assert str(root / ".ignored") not in watcher.wanted


async def test_made_anew_is_a_new_stamp_and_moved_away_is_unnoticed(
    registry: tuple[Path, SocketWatcher],
) -> None:
    root, watcher = registry
    path = root / "before.sock"
    first = watcher.wanted[str(path)]
    path.unlink()
    bind(path)
    await until(lambda: watcher.wanted.get(str(path), first) != first, "a new stamp")
    bind(root / "mark.sock")
    path.rename(root / "moved.sock")
    await until(lambda: str(root / "moved.sock") in watcher.wanted, "the new name")
    assert str(path) in watcher.wanted
