from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent.core import paths
from agent.errors import UserError
from agent.node.lock import Lock, Locks, holder_text, try_lock


@pytest.fixture
def root(tmp_path: Path) -> str:
    Path(paths.endpoint_dir(str(tmp_path))).mkdir(parents=True)
    return str(tmp_path)


def locks(root: str, *, only: str = "", holder: str = "pid 7") -> Locks:
    return Locks(root, only_driver=only, holder=holder)


def test_a_second_holder_is_refused_and_the_first_named(root: str) -> None:
    first = locks(root, holder="pid 7, pod ns/agent")
    first.acquire()
    with pytest.raises(UserError, match=r"lock: another agent serves .* pid 7, pod ns/agent"):
        locks(root).acquire()
    first.close()
    second = locks(root, holder="pid 8")
    second.acquire()
    assert Path(paths.lock_path(root)).read_text() == "pid 8\n"
    second.close()


def test_a_sidecar_locks_its_driver_only(root: str) -> None:
    node, sidecar = locks(root, holder="node"), locks(root, only="gpu", holder="sidecar")
    node.acquire()
    sidecar.acquire()
    assert sidecar.take("gpu")
    assert not node.take("gpu")
    assert node.blocked == {"gpu": "sidecar"}
    sidecar.close()
    assert node.take("gpu")
    assert node.blocked == {}
    with pytest.raises(UserError, match="serves driver gpu already: node"):
        locks(root, only="gpu").acquire()
    node.drop("gpu")
    locks(root, only="gpu").acquire()


def test_a_driver_that_cannot_be_locked_now_is_tried_again(root: str) -> None:
    node = locks(root)
    path = Path(paths.lock_path(root, "gpu"))
    path.mkdir()
    assert not node.take("gpu")
    assert "cannot open the lock file" in node.blocked["gpu"]
    path.rmdir()
    assert node.take("gpu")
    assert node.blocked == {}
    node.close()


def test_a_full_disk_does_not_hinder_the_lock(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    first = locks(root)
    first.acquire()
    with pytest.raises(UserError, match="another agent"):
        locks(root).acquire()
    first.close()


def test_the_lock_file_is_private_and_no_link_is_followed(root: str, tmp_path: Path) -> None:
    path = paths.lock_path(root)
    held = try_lock(path, "x")
    assert isinstance(held, Lock)
    assert os.stat(path).st_mode & 0o777 == 0o600
    held.close()
    held.close()
    os.unlink(path)
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(UserError, match="cannot open the lock file"):
        try_lock(path, "x")


def test_the_holders_words_are_cleaned(root: str) -> None:
    path = paths.lock_path(root)
    held = try_lock(path, "a\x1b[31m\nb")
    said = try_lock(path, "c")
    assert isinstance(said, str)
    assert said.isprintable()
    assert isinstance(held, Lock)
    held.close()


def test_holder_text() -> None:
    assert holder_text("", "") == f"pid {os.getpid()}"
    assert holder_text("ns", "pod").endswith(", pod ns/pod")
