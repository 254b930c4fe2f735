from __future__ import annotations

from pathlib import Path

import pytest

from agent.core import paths
from agent.node.lock import Locks
from agent.node.stale import remove_stale
from agent.rpc.sockets import hidden

GPU, NIC = "gpu.example.com", "nic.example.com"


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path)
    for directory in (paths.registry_dir(root), paths.intake_dir(root)):
        Path(directory).mkdir(parents=True)
    for driver in (GPU, NIC):
        Path(paths.registration_path(root, driver, "00aaff")).touch()
        Path(paths.endpoint_path(root, driver, "00aaff")).touch()
    Path(paths.registry_dir(root), "gpu.example.com-reg.sock").touch()
    Path(paths.registry_dir(root), "dra-agent~notes.txt").touch()
    return root


def of(driver: str, root: str) -> list[str]:
    return [
        paths.registration_path(root, driver, "00aaff"),
        paths.endpoint_path(root, driver, "00aaff"),
    ]


def test_what_nobody_serves_goes_and_nothing_else(root: str) -> None:
    locks = Locks(root, only_driver="", holder="x")
    locks.acquire()
    sidecar = Locks(root, only_driver=NIC, holder="sidecar")
    sidecar.acquire()
    assert remove_stale(locks) == of(GPU, root)
    assert all(Path(path).exists() for path in of(NIC, root))
    sidecar.close()
    assert remove_stale(locks) == of(NIC, root)
    assert sorted(p.name for p in Path(paths.registry_dir(root)).iterdir()) == [
        "dra-agent~notes.txt",
        "gpu.example.com-reg.sock",
    ]
    assert locks.take(GPU)
    locks.close()


def test_one_that_was_never_published_goes_too(root: str) -> None:
    for path in of(GPU, root):
        Path(path).unlink()
    early = [hidden(path) for path in of(GPU, root)]
    for path in early:
        Path(path).touch()
    locks = Locks(root, only_driver="", holder="x")
    locks.acquire()
    assert remove_stale(locks) == [*early[:1], of(NIC, root)[0], *early[1:], of(NIC, root)[1]]
    locks.close()


def test_a_sidecar_removes_only_its_own(root: str) -> None:
    sidecar = Locks(root, only_driver=NIC, holder="sidecar")
    sidecar.acquire()
    assert remove_stale(sidecar) == of(NIC, root)
    assert all(Path(path).exists() for path in of(GPU, root))
    sidecar.close()
