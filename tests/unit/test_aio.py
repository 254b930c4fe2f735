from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from agent.aio import Tasks, wait
from agent.errors import UserError


async def test_tasks_have_names_and_end_by_themselves() -> None:
    tasks = Tasks()
    go = asyncio.Event()
    task = tasks.start("waits", go.wait())
    tasks.start("also", go.wait())
    assert tasks.names == ["also", "waits"]
    assert len(tasks) == 2
    assert task.get_name() == "waits"
    go.set()
    await task
    await asyncio.sleep(0)
    assert tasks.names == []


async def test_a_task_is_kept_though_nobody_holds_it() -> None:
    tasks = Tasks()
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    tasks.start("work", work())
    gc.collect()
    async with asyncio.timeout(5):
        await done.wait()


async def test_a_crash_is_said_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    crashes: list[tuple[str, BaseException]] = []
    tasks = Tasks(on_crash=lambda name, error: crashes.append((name, error)))

    async def crash() -> None:
        raise ValueError("boom")

    with caplog.at_level(logging.ERROR):
        task = tasks.start("breaks", crash())
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert "task breaks crashed" in caplog.text
    assert "boom" in caplog.text
    [(name, error)] = crashes
    assert name == "breaks"
    assert isinstance(error, ValueError)
    assert len(tasks) == 0


async def test_a_mistake_of_the_user_is_said_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crashes: list[str] = []
    tasks = Tasks(on_crash=lambda name, _: crashes.append(name))

    async def refuse() -> None:
        raise UserError("no such directory")

    await asyncio.wait([tasks.start("reads", refuse())])
    await asyncio.sleep(0)
    assert caplog.messages == ["task reads ended: no such directory"]
    assert caplog.records[0].exc_info is None
    assert crashes == ["reads"]


async def test_close_waits_for_every_end(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()
    ended: list[str] = []
    started = asyncio.Event()

    async def slow() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # an end that itself has to wait
            ended.append("slow")

    tasks.start("slow", slow())
    await started.wait()
    await tasks.close()
    assert ended == ["slow"]
    assert "crashed" not in caplog.text


async def test_a_task_may_close_its_own_owner() -> None:
    tasks = Tasks()
    closed = asyncio.Event()

    async def closer() -> None:
        await tasks.close()
        closed.set()

    tasks.start("closer", closer())
    other = tasks.start("other", asyncio.Event().wait())
    async with asyncio.timeout(5):
        await closed.wait()
    assert other.cancelled()


async def test_a_wait_ends_with_the_event_or_the_limit() -> None:
    event = asyncio.Event()
    assert not await wait(event, 0.001)
    asyncio.get_running_loop().call_soon(event.set)
    assert await wait(event, None)
    assert await wait(event, 0.0)


async def test_a_wait_that_is_cancelled_does_not_return() -> None:
    task = asyncio.ensure_future(wait(asyncio.Event(), 60.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
