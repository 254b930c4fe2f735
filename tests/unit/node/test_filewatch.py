"""Changes of mounted files, as kubelet and editors make them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agent.node import filewatch


class Mount:
    """A ConfigMap volume as kubelet writes it: files are links into `..data`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._edition = 0
        self.path = root / "agent.yaml"

    def write(self, text: str) -> None:
        self._edition += 1
        new = self.root / f"..{self._edition}"
        new.mkdir()
        (new / "agent.yaml").write_text(text)
        (self.root / "..tmp").symlink_to(new.name)
        os.rename(self.root / "..tmp", self.root / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to("..data/agent.yaml")


async def test_a_swapped_link_is_a_change(tmp_path: Path) -> None:
    mount = Mount(tmp_path)
    mount.write("a")
    seen = filewatch.changes(lambda: {str(tmp_path)}, poll=30)
    await anext(seen)  # watched from here on
    mount.write("b")
    async with asyncio.timeout(10):
        await anext(seen)
    assert mount.path.read_text() == "b"
    await seen.aclose()


async def test_a_burst_is_one_change_and_a_file_written_in_place_too(tmp_path: Path) -> None:
    seen = filewatch.changes(lambda: {str(tmp_path)}, poll=0.5)
    await anext(seen)
    for number in range(5):
        (tmp_path / "f").write_text(str(number))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await anext(seen)
    first = loop.time() - began
    began = loop.time()
    await anext(seen)  # nothing more happened: this is the poll
    assert loop.time() - began >= 0.4
    assert first < 10


async def test_a_directory_that_never_rests_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(filewatch, "_SETTLE", 30.0)
    monkeypatch.setattr(filewatch, "_LONGEST", 0.2, raising=False)

    async def write() -> None:
        while True:
            (tmp_path / "other.log").write_text("x")
            await asyncio.sleep(0.01)

    seen = filewatch.changes(lambda: {str(tmp_path)}, poll=0.05)
    await anext(seen)
    noise = asyncio.get_running_loop().create_task(write())
    try:
        async with asyncio.timeout(10):
            await anext(seen)
            await anext(seen)
    finally:
        noise.cancel()
        await seen.aclose()


async def test_what_the_reader_comes_to_name_is_watched_at_once(tmp_path: Path) -> None:
    named, other = {str(tmp_path)}, tmp_path / "other"
    other.mkdir()
    seen = filewatch.changes(lambda: named, poll=600)
    await anext(seen)
    named.add(str(other))
    async with asyncio.timeout(10):
        await anext(seen)  # it may have changed before it was watched
        (other / "f").write_text("x")
        await anext(seen)
    await seen.aclose()


async def test_a_path_that_is_none_is_passed_over(tmp_path: Path) -> None:
    seen = filewatch.changes(lambda: {"/\ud800", str(tmp_path)}, poll=600)
    await anext(seen)
    (tmp_path / "f").write_text("x")
    async with asyncio.timeout(10):
        await anext(seen)
    await seen.aclose()


async def test_a_directory_that_comes_later_is_found_by_the_poll(tmp_path: Path) -> None:
    later = tmp_path / "later"
    seen = filewatch.changes(lambda: {str(later)}, poll=0.05)
    await anext(seen)
    later.mkdir()
    await anext(seen)
    await anext(seen)
    await seen.aclose()


async def test_without_inotify_it_polls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(filewatch, "Inotify", full)
    seen = filewatch.changes(lambda: {str(tmp_path)}, poll=0.01)
    async with asyncio.timeout(10):
        await anext(seen)
        await anext(seen)
