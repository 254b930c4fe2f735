from __future__ import annotations

from typing import cast

import pytest

from agent.core import paths
from agent.node.choice import Choice
from agent.node.factory import Factory
from agent.node.info import make_info, parse_info
from agent.node.instance import Instance
from agent.node.link import Link
from agent.node.watch import Found, Identity
from agent.settings.model import AgentConfig, Duration, Overlay, Registration
from tests.support.node_standins import V1, Relay

GPU = "gpu.example.com"
ROOT = "/var/lib/kubelet"


class OneLink:
    """As much of a link as the factory looks at."""

    name = GPU

    def __init__(self, newest: Instance | None) -> None:
        self.newest = newest

    def on_notify(self, generation: str, registered: bool) -> None: ...

    def on_connect(self, generation: str) -> None: ...


@pytest.fixture
async def link() -> Link:
    instance = Instance(
        Found("/registry/gpu.sock", Identity(1, 1, 1)),
        appeared=1,
        at_start=True,
        choice=Choice(),
        reconnect=1,
        on_state=lambda one: None,
    )
    instance.info = parse_info(make_info(name=GPU, endpoint="/driver.sock", versions=V1))
    return cast(Link, OneLink(instance))


async def test_overlay_lists_the_plugin_services_only(link: Link) -> None:
    made = Factory(AgentConfig(), ROOT, Relay()).make(link)
    info = parse_info(made.sockets.info)
    assert info.versions == ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    assert info.endpoint == made.sockets.endpoint == paths.endpoint_path(ROOT, GPU, made.name)
    assert made.sockets.registration == paths.registration_path(ROOT, GPU, made.name)


async def test_intake_says_all_the_driver_said_and_renews_nothing(link: Link) -> None:
    factory = Factory(AgentConfig(registration="intake"), ROOT, Relay())
    assert parse_info(factory.make(link).sockets.info).versions == V1
    periods = factory.periods
    assert (periods.renew_delay, periods.renew_again, periods.renew_on_notify) == (0, (), False)
    assert periods.retire_after == 0


async def test_the_periods_are_those_of_the_config() -> None:
    overlay = Overlay(renew_delay=Duration(1), renew_again=[Duration(2)], retire_after=Duration(3))
    factory = Factory(AgentConfig(registration=Registration(overlay=overlay)), ROOT, Relay())
    periods = factory.periods
    assert (periods.renew_delay, periods.renew_again, periods.retire_after) == (1, (2,), 3)
    assert (periods.max_generations, periods.hold) == (3, 10)


async def test_names_are_never_used_twice(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter(["00aaff", "00aaff", "00aafe"])
    monkeypatch.setattr("secrets.token_hex", lambda size: next(given))
    factory = Factory(AgentConfig(), ROOT, Relay())
    assert [factory.make(link).name for _ in range(2)] == ["00aaff", "00aafe"]


async def test_a_generation_needs_an_instance() -> None:
    factory = Factory(AgentConfig(), ROOT, Relay())
    with pytest.raises(AssertionError):
        factory.make(cast(Link, OneLink(None)))
