from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent import names
from agent.core.model import ClaimRef
from agent.demo import messages
from agent.demo.driver import DEFAULT_VERSIONS, Options, ScriptedDriver
from agent.demo.processes import Child, json_lines, until
from agent.demo.script import Rule, ScriptFile, write_script
from agent.rpc.call import UNIMPLEMENTED, Answer
from agent.rpc.channel import Channel
from tests.support.process import short_root

A, B = ClaimRef("n", "uid-a", "a"), ClaimRef("n", "uid-b", "b")


@asynccontextmanager
async def driver(
    root: Path, *rules: Rule, versions: str = DEFAULT_VERSIONS
) -> AsyncIterator[Channel]:
    options = Options("d", root, root / "data", root / "script", root / "log", versions=versions)
    write_script(options.script, ScriptFile({}, rules))
    served = ScriptedDriver(options)
    await served.start()
    channel = Channel(str(options.endpoint))
    await channel.connect()
    try:
        yield channel
    finally:
        await channel.close()
        await served.close()


async def prepare(channel: Channel, *claims: ClaimRef, service: str = names.SERVICE_V1) -> Answer:
    body = messages.claims_request(names.PREPARE, claims)
    return await channel.unary(f"/{service}/{names.PREPARE}", body, timeout=5)


@pytest.mark.parametrize("service", [names.SERVICE_V1, names.SERVICE_V1BETA1])
async def test_prepares_and_unprepares_and_logs_it(service: str) -> None:
    with short_root() as root:
        async with driver(root) as channel:
            answer = await prepare(channel, A, B, service=service)
            assert answer.body is not None
            answers = messages.parse_answers(names.PREPARE, answer.body)
            assert {uid: one.error for uid, one in answers.items()} == {A.uid: "", B.uid: ""}
            body = messages.claims_request(names.UNPREPARE, [A])
            method = f"/{service}/{names.UNPREPARE}"
            answer = await channel.unary(method, body, timeout=5)
            assert messages.parse_answers(names.UNPREPARE, answer.body or b"") == {
                A.uid: messages.ClaimAnswer()
            }
        log = [(line["what"], line["claims"]) for line in json_lines(root / "log")]
        assert log == [("start", ["a", "b"]), ("end", ["a", "b"]), ("start", ["a"]), ("end", ["a"])]


async def test_errors_per_claim_and_for_the_whole_call() -> None:
    rules = (Rule("b", "broken", permanent_error=True), Rule("a", "later", code=14, times=1))
    with short_root() as root:
        async with driver(root, *rules) as channel:
            whole = await prepare(channel, A)
            assert whole.status is not None
            assert (whole.status.code, whole.status.message) == (14, "later")
            answer = await prepare(channel, A, B)
            assert answer.body is not None
            answers = messages.parse_answers(names.PREPARE, answer.body)
            assert answers[A.uid].error == ""
            assert answers[B.uid] == messages.ClaimAnswer("broken", True)


async def test_a_version_it_does_not_list_is_unimplemented() -> None:
    with short_root() as root:
        async with driver(root, versions="v1beta1.DRAPlugin") as channel:
            answer = await prepare(channel, A)
            assert answer.status is not None
            assert answer.status.code == UNIMPLEMENTED
            answer = await channel.unary("/v1.DRAResourceHealth/NodeWatchResources", b"", timeout=5)
            assert answer.status is not None
            assert answer.status.code == UNIMPLEMENTED


@pytest.mark.parametrize(("number", "left"), [(signal.SIGTERM, False), (signal.SIGKILL, True)])
async def test_as_a_process_it_registers_and_leaves(number: signal.Signals, left: bool) -> None:
    with short_root() as root:
        options = Options("d", root, root / "data", root / "s", root / "log", instance="two")
        write_script(options.script, ScriptFile())
        assert options.registration_socket.name == "d-two-reg.sock"
        child = Child(options.arguments, output=root / "err")
        await child.start()
        await until(options.registration_socket.exists, "its socket", limit=15)
        channel = Channel(str(options.registration_socket))
        await channel.connect()
        info = await channel.unary(names.REGISTRATION_GET_INFO, b"", timeout=5)
        await channel.close()
        found = messages.parse_info(info.body or b"")
        assert found.endpoint == str(options.endpoint)
        assert found.versions == tuple(DEFAULT_VERSIONS.split(","))
        child.send(number)
        await child.wait()
        assert options.registration_socket.exists() is left
        assert options.endpoint.exists() is left
        assert child.text() == ""
