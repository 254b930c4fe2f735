from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import UserError
from agent.node import watch
from agent.node.watch import Found, Identity, Snapshot, changes, identity_of, scan, snapshots


@pytest.fixture
def place() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dra") as made:
        yield made


def bind(place: str, name: str) -> str:
    path = os.path.join(place, name)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    return path


def names(snapshot: Snapshot) -> list[str]:
    return [os.path.basename(one.path) for one in snapshot.found]


def test_only_sockets_that_may_be_a_drivers_are_found_in_order(place: str) -> None:
    for name in ("b.sock", "a.sock", ".hidden.sock", "dra-agent~00000000~000000.sock"):
        bind(place, name)
    Path(place, "file.sock").touch()
    Path(place, "dir").mkdir()
    bind(place, "target")
    os.symlink(os.path.join(place, "target"), os.path.join(place, "link.sock"))
    found = [os.path.basename(one.path) for one in scan(place)]
    assert found == ["a.sock", "b.sock", "link.sock", "target"]


def test_a_socket_made_anew_has_another_identity(place: str) -> None:
    path = bind(place, "a.sock")
    # Keeps the inode in use: its number may come again within one tick of the clock of ctime.
    os.link(path, os.path.join(place, ".kept"))
    before = identity_of(path)
    os.unlink(path)
    assert identity_of(path) is None
    bind(place, "a.sock")
    assert identity_of(path) != before


def test_changes() -> None:
    one, two = Identity(1, 1, 1), Identity(1, 1, 2)
    known = {"gone": one, "same": one, "anew": one}
    found = (Found("anew", two), Found("new", one), Found("same", one))
    assert changes(known, found) == (("anew", "gone"), (found[0], found[1]))
    assert changes({}, ()) == ((), ())


async def test_snapshots_follow_the_directory(place: str) -> None:
    bind(place, "a.sock")
    async with asyncio.timeout(20):
        stream = snapshots(place, rescan=60)
        first = await anext(stream)
        assert (names(first), first.first) == (["a.sock"], True)
        bind(place, "b.sock")
        second = await anext(stream)
        assert (names(second), second.first) == (["a.sock", "b.sock"], False)
        os.unlink(second.found[0].path)
        while names(second) != ["b.sock"]:
            second = await anext(stream)
        with tempfile.TemporaryDirectory(prefix="dra") as aside:
            os.rename(bind(aside, "c.sock"), os.path.join(place, "c.sock"))
        while names(second) != ["b.sock", "c.sock"]:
            second = await anext(stream)
        await stream.aclose()


async def test_our_own_sockets_wake_nobody_and_the_rescan_does(place: str) -> None:
    stream = snapshots(place, rescan=0.2)
    await anext(stream)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    bind(place, "dra-agent~00000000~000000.sock")
    snapshot = await anext(stream)
    assert loop.time() - begin >= 0.19
    assert snapshot.found == ()
    await stream.aclose()


async def test_a_directory_that_is_missing_or_goes_away_is_named(place: str) -> None:
    missing = os.path.join(place, "nowhere")
    with pytest.raises(UserError, match=missing):
        scan(missing)
    with pytest.raises(UserError, match=missing):
        await anext(snapshots(missing, rescan=60))
    os.mkdir(missing)
    stream = snapshots(missing, rescan=60)
    await anext(stream)
    os.rmdir(missing)
    with pytest.raises(UserError, match=missing):
        async with asyncio.timeout(20):
            await anext(stream)


@pytest.mark.parametrize("bound", [False, True])
async def test_a_directory_that_is_made_anew_is_followed_again(place: str, bound: bool) -> None:
    inner = os.path.join(place, "registry")
    os.mkdir(inner)
    with socket.socket(socket.AF_UNIX) as held:  # keeps the old directory from being ended
        if bound:
            held.bind(os.path.join(inner, "old.sock"))
        stream = snapshots(inner, rescan=60)
        await anext(stream)
        shutil.rmtree(inner)
        os.mkdir(inner)
        async with asyncio.timeout(20):
            while names(await anext(stream)):
                pass
            bind(inner, "a.sock")
            while names(await anext(stream)) != ["a.sock"]:
                pass
        await stream.aclose()


async def test_a_shortage_of_files_is_waited_out(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = snapshots(place, rescan=60)
    await anext(stream)
    real, fails = os.listdir, iter([True, True])

    def listdir(path: str) -> list[str]:
        if next(fails, False):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(watch, "_POLL", 0.01)
    bind(place, "a.sock")
    async with asyncio.timeout(20):
        assert names(await anext(stream)) == ["a.sock"]
    assert "Too many open files" in caplog.text
    await stream.aclose()


async def test_without_inotify_the_directory_is_polled(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(watch, "Inotify", full)
    stream = snapshots(place, rescan=0.05)
    assert names(await anext(stream)) == []
    bind(place, "a.sock")
    assert names(await anext(stream)) == ["a.sock"]
    assert "max_user_instances" in caplog.text
    await stream.aclose()
