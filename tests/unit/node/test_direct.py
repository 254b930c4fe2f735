"""A driver's own socket in kubelet's registry, found in intake mode."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent import names
from agent.aio import Tasks
from agent.node.choice import Choice
from agent.node.direct import Direct
from agent.node.info import make_info
from agent.rpc.call import Answer, Request, ServerStream
from agent.rpc.server import Server
from tests.support.waiting import until


async def nothing(stream: ServerStream) -> None:
    await stream.end()


async def plugin(path: Path, driver: str, versions: tuple[str, ...] = ("v1.DRAPlugin",)) -> Server:
    async def info(_: Request) -> Answer:
        return Answer(make_info(name=driver, endpoint="/e.sock", versions=versions))

    server = Server(unary={names.REGISTRATION_GET_INFO: info}.get, stream=nothing)
    await server.start(str(path))
    return server


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dra") as name:
        yield Path(name)


async def test_each_is_said_once_and_forgotten_when_it_goes(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    choice = Choice(deny=("denied.example.com",))
    direct = Direct(str(folder), intake="/intake", choice=choice, rescan=0.05, on_found=told.append)
    tasks = Tasks()
    tasks.start("direct", direct.run())
    gpu = await plugin(folder / "gpu-reg.sock", "gpu.example.com")
    others = [
        await plugin(folder / "no.sock", "denied.example.com"),
        await plugin(folder / "csi.sock", "csi.example.com", ("1.0.0",)),
        await plugin(folder / "dra-agent~01234567~abcdef.sock", "gpu.example.com"),
    ]
    (folder / "dead.sock").touch()
    with caplog.at_level(logging.WARNING, logger="agent.node.direct"):
        await until(lambda: len(direct._asked) == 3)
        late = await plugin(folder / "nic-reg.sock", "nic.example.com")
        await until(lambda: len(direct.found) == 2)
    assert told == ["gpu.example.com", "nic.example.com"]
    assert direct.found[gpu.path] == "gpu.example.com"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert gpu.path in said[0]
    assert "/intake" in said[0]
    await gpu.close()
    await until(lambda: list(direct.found) == [late.path])
    for server in (late, *others):
        await server.close()
    await tasks.close()


async def test_a_directory_that_goes_and_comes_is_looked_at_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = folder / "r"
    registry.mkdir()
    told: list[str] = []
    choice = Choice()
    direct = Direct(
        str(registry), intake="/intake", choice=choice, rescan=0.05, on_found=told.append
    )
    tasks = Tasks()
    tasks.start("direct", direct.run())
    gpu = await plugin(registry / "gpu-reg.sock", "gpu.example.com")
    await until(lambda: direct.found)
    shutil.rmtree(registry)
    await until(lambda: not direct.found)
    missing = [one for one in caplog.records if "cannot watch" in one.getMessage()]
    await gpu.close()
    registry.mkdir()
    again = await plugin(registry / "gpu-reg.sock", "gpu.example.com")
    await until(lambda: direct.found)
    assert told == ["gpu.example.com"] * 2
    assert len(missing) == 1
    await again.close()
    await tasks.close()
