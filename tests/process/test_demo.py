"""`dra-agent demo` as its user runs it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from agent.demo.processes import Child, until
from tests.support.process import short_root

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the demo puts its files; must be empty afterwards."""
    with short_root() as root:
        monkeypatch.setenv("TMPDIR", str(root))
        yield root
        assert os.listdir(root) == []


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


async def test_all_goes_as_told_and_nothing_is_left(temporary: Path, tmp_path: Path) -> None:
    child = Child(("-m", "agent", "demo"), output=tmp_path / "out")
    await child.start()
    code = await child.wait(90)
    text = child.text()
    assert code == 0, text
    assert "All went as told." in text
    for number in range(1, 7):
        assert f"\n{number}. " in text
    assert "dra-agent.io/DevicesPrepared=False" in text
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
async def test_ctrl_c_ends_everything(temporary: Path, tmp_path: Path) -> None:
    child = Child(("-m", "agent", "demo"), output=tmp_path / "out")
    await child.start()
    await until(lambda: len(children_of(child.pid)) == 5, "its children", limit=30)
    children = children_of(child.pid)
    child.send(signal.SIGINT)
    assert await child.wait(20) == 130
    assert "Traceback" not in child.text()
    assert alive(children) == []


async def test_keep_stays_up_until_ctrl_c(temporary: Path, tmp_path: Path) -> None:
    child = Child(("-m", "agent", "demo", "--keep"), output=tmp_path / "out")
    await child.start()
    await until(lambda: "Still running" in child.text(), "the end of the stories", limit=60)
    await until(lambda: "sockets, logs" in child.text(), "all addresses")
    kept = child.text().partition("Still running")[2]
    urls = [word for word in kept.split() if word.startswith("http://")]
    assert len(urls) == 5
    async with aiohttp.ClientSession() as session:
        for url in urls:
            async with session.get(url) as answer:
                assert answer.status == 200, url
    assert child.returncode is None
    child.send(signal.SIGINT)
    assert await child.wait(20) == 0, child.text()
