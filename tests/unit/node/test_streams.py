from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import cast

import pytest

from agent.node.link import Link
from agent.node.streams import relay_to
from agent.rpc.channel import Channel
from agent.rpc.server import Server
from tests.support.node_standins import Driver

GPU = "gpu.example.com"


@pytest.fixture
def root() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dra") as made:
        yield made


class OneInstance:
    """As much of a link as the relay looks at."""

    name = GPU

    def __init__(self, channel: Channel | None) -> None:
        self.channel = channel
        self.asked: list[str] = []

    def pick(self, service: str) -> Channel | None:
        self.asked.append(service)
        return self.channel


async def test_any_method_reaches_the_instance_kubelet_would_have_called(root: str) -> None:
    driver = Driver(root, GPU)
    await driver.start()
    upstream = Channel(driver.endpoint_path)
    await upstream.connect()
    link = OneInstance(upstream)
    server = Server(unary=lambda method: None, stream=relay_to(cast(Link, link)))
    await server.start(f"{root}/agent.sock")
    channel = Channel(f"{root}/agent.sock")
    await channel.connect()
    answer = await channel.unary("/v1.DRAResourceHealth/NodeWatchResources", b"x", timeout=5)
    assert answer.body == b"driver:x"
    assert link.asked == ["v1.DRAResourceHealth"]
    link.channel = None
    answer = await channel.unary("/v1.DRAResourceHealth/NodeWatchResources", b"x", timeout=5)
    assert answer.status is not None
    assert (answer.status.code, answer.status.message) == (14, f"driver {GPU} is not connected")
    await channel.close()
    await server.close()
    await upstream.close()
    await driver.stop()
