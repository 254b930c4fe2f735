from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import aiohttp
import pytest

from agent.core.model import Culprit
from agent.errors import UserError
from agent.observe import web
from agent.observe.metrics import Metrics
from agent.observe.web import Check, Web


@dataclass
class Fake:
    lives: list[Check] = field(default_factory=lambda: [Check("self-dial", ok=True)])
    readies: list[Check] = field(default_factory=lambda: [Check("registry", ok=True)])
    facts: dict[str, object] = field(default_factory=dict)
    hang: bool = False
    crash: bool = False

    async def live(self) -> Sequence[Check]:
        if self.hang:
            await asyncio.Event().wait()
        return self.lives

    def ready(self) -> Sequence[Check]:
        if self.crash:
            raise RuntimeError("secret text")
        return self.readies

    def state(self) -> dict[str, object]:
        return self.facts

    def metrics(self) -> bytes:
        return Metrics().render()


@dataclass
class Site:
    probes: Fake
    port: int
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, str, aiohttp.ClientResponse]:
        async with self.session.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return response.status, await response.text(), response


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    probes = Fake()
    server = Web("127.0.0.1:0", probes)
    port = await server.start()
    async with aiohttp.ClientSession() as session:
        yield Site(probes, port, session)
    await server.close()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_a_good_probe(site: Site, path: str) -> None:
    assert (await site.get(path))[:2] == (200, "ok")
    status, text, _ = await site.get(path + "?verbose")
    name = "registry" if path == "/readyz" else "self-dial"
    assert (status, text) == (200, f"[+]{name} ok\n{path[1:]} check passed\n")


async def test_a_failed_check_says_why_without_being_asked(site: Site) -> None:
    site.probes.lives = [Check("a", ok=True), Check("self-dial", ok=False, text="refused\nx")]
    for path in ("/livez", "/healthz"):
        status, text, _ = await site.get(path)
        assert status == 503
        assert text == f"[+]a ok\n[-]self-dial failed: refused; x\n{path[1:]} check failed\n"


async def test_a_broken_driver_shows_but_does_not_count(site: Site) -> None:
    site.probes.readies = [Check("driver gpu", ok=False, text="away for 3 s", affects=False)]
    assert (await site.get("/readyz"))[:2] == (200, "ok")
    status, text, _ = await site.get("/readyz?verbose")
    assert status == 200
    assert text.startswith("[-]driver gpu failed: away for 3 s (warning)\n")


async def test_a_probe_that_hangs_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PROBE_LIMIT", 0.05)
    site.probes.hang = True
    status, text, _ = await site.get("/livez")
    assert status == 503
    assert "no answer within 0.05 s" in text


async def test_a_probe_that_raises_fails_and_the_server_goes_on(site: Site) -> None:
    site.probes.crash = True
    status, text, _ = await site.get("/readyz")
    assert (status, text) == (500, "[-]internal failed: RuntimeError\n")
    assert (await site.get("/livez"))[0] == 200


async def test_a_strangers_broken_request_is_no_line_in_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n")
    async with asyncio.timeout(20):
        assert b" 400 " in await reader.readline()
    writer.close()
    assert caplog.messages == []


async def test_metrics(site: Site) -> None:
    status, text, response = await site.get("/metrics")
    assert status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert "dra_agent_build_info" in text
    assert "Server" not in response.headers


async def test_state_is_json_of_whatever_it_holds(site: Site) -> None:
    site.probes.facts = {"a": Check("x", ok=True), "c": Culprit.DEVICE, "o": object(), "t": (1, 2)}
    site.probes.facts["socket"] = os.fsdecode(b"/r/\xff\x9b\x1b\xc2\x9b.sock")
    status, text, response = await site.get("/debug/state")
    assert status == 200
    assert text.replace("\n", "").isprintable()
    assert response.content_type == "application/json"
    got = json.loads(text)
    assert got["a"]["name"] == "x"
    assert got["c"] == "device"
    assert got["t"] == [1, 2]
    assert got["o"].startswith("<object")


@pytest.mark.parametrize(
    ("remote", "local"),
    [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), (None, False), ("x", False)],
)
def test_state_is_for_this_pod_only(remote: str | None, local: bool) -> None:
    assert web._local(remote) is local


async def test_the_index_is_escaped(site: Site) -> None:
    site.probes.readies = [Check("driver <script>alert(1)</script>", ok=True)]
    status, text, response = await site.get("/")
    assert status == 200
    assert "<script>" not in text
    assert "/debug/state" in text
    assert response.headers["Content-Security-Policy"] == "default-src 'none'"
    assert (await site.get("/nowhere"))[0] == 404


async def test_nothing_can_be_written(site: Site) -> None:
    async with site.session.post(f"http://127.0.0.1:{site.port}/livez") as response:
        assert response.status == 405


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:9880", ("127.0.0.1", 9880)),
        (":0", ("", 0)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(listen: str, expected: tuple[str, int]) -> None:
    assert web.parse_listen(listen) == expected


@pytest.mark.parametrize("listen", ["", "9880", "host:", "host:x", "h:65536", "::1:80", "h:-1"])
def test_addresses_that_are_none(listen: str) -> None:
    with pytest.raises(UserError, match=r"^http\.listen: .*127\.0\.0\.1:9880$"):
        web.parse_listen(listen)


async def test_a_port_in_use_is_the_users_mistake() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = Web(f"127.0.0.1:{taken.getsockname()[1]}", Fake())
        with pytest.raises(UserError, match="in use by another program"):
            await server.start()
        await server.close()


async def test_an_address_of_another_host_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="use an address of this host"):
        await Web("192.0.2.1:0", Fake()).start()
