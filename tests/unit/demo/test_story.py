from __future__ import annotations

import io

import pytest

from agent.demo import story
from agent.demo.objects import Want
from agent.demo.scenarios import Scenario
from agent.demo.show import Printer
from agent.demo.stage import Stage
from agent.demo.story import Demo
from agent.errors import AgentError
from tests.support.process import short_root


async def good(stage: Stage) -> None:
    stage.add_pod(Want("gpu", "d", ("gpu-0",)))


async def bad(stage: Stage) -> None:
    stage.add_pod(Want("gpu", "d", ("gpu-0",)))
    stage.expect(not stage.agent, "a word")


async def broken(stage: Stage) -> None:
    stage.add_pod(Want("gpu", "d", ("gpu-0",)))
    raise AgentError("it broke")


STORIES = (
    Scenario("One", "About one.", "one", good),
    Scenario("Two", "About two.", "two", bad),
    Scenario("Three", "About three.", "three", broken, only_with_agent=True),
)


async def test_stories_are_told_in_order_and_what_differs_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(story, "SCENARIOS", STORIES)
    with short_root() as root:
        demo = Demo(root, Printer(stream := io.StringIO()))
        await demo.without.start()
        await demo.agent.start()
        try:
            await demo.play()
            await demo.end()
        finally:
            await demo.close()
    text = stream.getvalue()
    assert text.index("1. One") < text.index("2. Two") < text.index("3. Three")
    assert text.count("without the agent") == 2
    assert demo.differs == [
        "2. Two, with the agent: expected: a word",
        "3. Three, with the agent: it broke",
    ]
    assert "2 thing(s) did not go as told:" in text
    assert "All went as told" not in text
