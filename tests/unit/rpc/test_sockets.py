"""Socket files: mode, length, stale ones, and whose they are."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from agent.errors import UserError
from agent.rpc import sockets as files


def test_mode_is_0600_in_a_0700_directory_whatever_the_umask(sockets: Path) -> None:
    path = sockets / "new" / "newer" / "s.sock"
    before = os.umask(0)
    try:
        files.bind(str(path)).close()
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for directory in (path.parent, path.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_nothing_is_changed_that_other_threads_share(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that set the umask and set it back leave it at what the other had set."""

    def umask(mode: int) -> int:
        raise AssertionError(f"umask {mode:o}")

    monkeypatch.setattr(os, "umask", umask)
    files.bind(str(sockets / "new" / "s.sock")).close()


def test_a_socket_has_a_listener_from_the_moment_its_name_is_there(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sockets / "dra-agent~01234567~abcdef.sock"
    appeared = []

    def rename(early: str, late: str) -> None:
        assert Path(early).name == ".dra-agent~01234567~abcdef"
        assert not path.exists()
        os.replace(early, late)
        appeared.append(late)
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(late)

    monkeypatch.setattr(os, "rename", rename)
    files.bind(str(path)).close()
    assert appeared == [str(path)]
    assert [one.name for one in sockets.iterdir()] == [path.name]


def test_the_name_before_is_never_longer(sockets: Path) -> None:
    for name in ("ab", "a.sock", "gpu.example.com-reg.sock", "x" * 100):
        early = files.hidden(f"/d/{name}")
        assert len(early) <= len(f"/d/{name}")
        assert early.startswith("/d/.")
        assert len(early) > len("/d/.")


def test_two_that_bind_at_the_same_moment_do_not_meet() -> None:
    names = ("gpu.example.com-reg.sock", "nic.example.com-reg.sock", "example.com-reg.sock")
    assert len({files.hidden(f"/d/{name}") for name in names}) == len(names)


def test_a_stale_socket_is_replaced(sockets: Path) -> None:
    path = sockets / "s.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    files.bind(str(path)).close()
    assert path.is_socket()


def test_another_kind_of_file_is_not_removed(sockets: Path) -> None:
    path = sockets / "s.sock"
    path.write_text("precious")
    with pytest.raises(UserError, match="is not a socket"):
        files.bind(str(path))
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_is_named(sockets: Path) -> None:
    longest = sockets / ("x" * (files.PATH_LIMIT - len(str(sockets)) - 1))
    files.bind(str(longest)).close()
    with pytest.raises(UserError, match=r"xxxx.* has 108 bytes, the system takes 107"):
        files.bind(f"{longest}x")


def test_a_directory_that_cannot_be_made_is_said(sockets: Path) -> None:
    (sockets / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot make socket .*: Not a directory|File exists"):
        files.bind(str(sockets / "file" / "s.sock"))


def test_only_the_own_file_is_unlinked(sockets: Path) -> None:
    path = str(sockets / "s.sock")
    with files.bind(path):
        made = files.identity(path)
        os.rename(path, f"{path}.old")
        with files.bind(path):
            files.unlink(path, made)
            assert Path(path).is_socket()
            files.unlink(path, files.identity(path))
            files.unlink(path, made)
            assert not Path(path).exists()


def test_nothing_is_left_of_one_that_does_not_get_its_name(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(early: str, late: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(UserError, match="No space left"):
        files.bind(str(sockets / "s.sock"))
    assert list(sockets.iterdir()) == []


def test_one_that_cannot_be_removed_is_said_and_left(
    sockets: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unlink(path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    path = str(sockets / "s.sock")
    with files.bind(path):
        monkeypatch.setattr(os, "unlink", unlink)
        files.unlink(path, files.identity(path))
    assert f"{path} cannot be removed: Read-only file system" in caplog.text
