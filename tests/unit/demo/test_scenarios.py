from __future__ import annotations

import pytest

from agent.core.model import Failure, Surface
from agent.demo.scenarios import BAD_CONFIG, BAD_DEVICE, BUSY, GPU, RULES, SCENARIOS, Scenario
from agent.demo.stage import Stage
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules
from tests.support.process import driver, node

WITHOUT = [one for one in SCENARIOS if not one.only_with_agent]


def test_each_pod_has_its_own_name() -> None:
    pods = [one.pod for one in SCENARIOS]
    assert len(set(pods)) == len(pods) == 6


@pytest.mark.parametrize("scenario", WITHOUT, ids=lambda one: one.pod)
async def test_without_an_agent_it_goes_as_told(scenario: Scenario) -> None:
    async with node() as world:
        for name, rules in RULES.items():
            world.script(name, *rules)
        if scenario.pod == "restart":  # it kills its driver
            await world.start_driver("nic.example.com")
            stage = Stage(world, False, scenario.pod)
            await scenario.play(stage)
        else:
            async with driver(world, *RULES[GPU], name=GPU):
                stage = Stage(world, False, scenario.pod)
                await scenario.play(stage)
        assert stage.differs == []


async def test_a_driver_that_does_not_follow_its_script_is_noticed() -> None:
    async with node() as world, driver(world, name=GPU):
        stage = Stage(world, False, "busy")
        await SCENARIOS[1].play(stage)
        assert stage.differs == [
            "expected: four calls at the driver",
            "expected: 4 call(s) by kubelet",
        ]


@pytest.mark.parametrize(
    ("text", "kind", "culprit"),
    [
        (BUSY, "transient", "node"),
        (BAD_CONFIG, "permanent", "parameters"),
        (BAD_DEVICE, "permanent", "device"),
    ],
)
def test_the_built_in_rules_judge_the_drivers_texts_as_told(
    text: str, kind: str, culprit: str
) -> None:
    verdict = load_rules(Rules()).classify(Failure(GPU, "prepare", Surface.CLAIM_ERROR, text))
    assert (verdict.kind, verdict.culprit) == (kind, culprit)
