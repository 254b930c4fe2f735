import pytest

from agent.settings import checks, tree
from agent.settings.model import AgentConfig


def said(**sections: object) -> list[str]:
    found: list[str] = []

    def say(path: str, what: str) -> None:
        found.append(f"{path}: {what}")

    config = tree.build(AgentConfig, sections, "", say)
    assert not found
    checks.check(config, say)
    return found


def test_defaults_are_good() -> None:
    assert said() == []


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"retry": {"margin": "45s"}}, "retry.margin: must be shorter than kubelet's"),
        ({"retry": {"unprepareWait": "1m"}}, "retry.unprepareWait: must be shorter"),
        (
            {"retry": {"initialDelay": "6s"}},
            "retry.maxDelay: must not be shorter than initialDelay",
        ),
        ({"retry": {"initialDelay": "0"}}, "retry.initialDelay: must be longer than 0"),
        ({"drivers": {"rescan": 0}}, "drivers.rescan: must be longer than 0"),
        ({"drivers": {"reconnect": 0}}, "drivers.reconnect: must be longer than 0"),
        ({"drivers": {"allow": []}}, "drivers.allow: serves no driver"),
        ({"drivers": {"allow": [""]}}, "drivers.allow[0]: expected a driver name"),
        ({"drivers": {"deny": ["a", "GPU"]}}, "drivers.deny[1]: expected a driver name"),
        ({"drivers": {"perDriver": {"A_b": {}}}}, "drivers.perDriver[A_b]: not a driver name"),
        (
            {"drivers": {"perDriver": {"a": {"retry": {"margin": "50s"}}}}},
            "drivers.perDriver[a].retry.margin: must be shorter",
        ),
        (
            {"registration": {"overlay": {"getInfoDelay": "1s"}}},
            "registration.overlay.getInfoDelay: must be shorter than kubelet's limit of 1s",
        ),
        ({"registration": {"intakeDir": "x"}}, "registration.intakeDir: expected an absolute"),
        (
            {"registration": {"intakeDir": "/k/plugins_registry/x"}},
            "registration.intakeDir: must not be below",
        ),
        ({"outcome": {"failDelay": 0}}, "outcome.failDelay: must be at least 1.2s"),
        ({"outcome": {"failDelay": "1199ms"}}, "outcome.failDelay: must be at least 1.2s"),
        ({"outcome": {"hold": "2h"}}, "outcome.holdMax: must not be shorter than hold"),
        ({"outcome": {"kubeletVersions": ["v1.37"]}}, "outcome.kubeletVersions[0]: expected"),
        ({"http": {"listen": "9880"}}, "http.listen: expected host:port"),
        ({"tracing": {"endpoint": "collector:4318"}}, "tracing.endpoint: expected a URL"),
        ({"tracing": {"endpoint": "http://[x"}}, "tracing.endpoint: expected a URL"),
        ({"tracing": {"endpoint": "http://a:b"}}, "tracing.endpoint: expected a URL"),
        ({"rules": {"files": [" "]}}, "rules.files[0]: expected the path"),
    ],
)
def test_one_problem_each(sections: dict[str, object], words: str) -> None:
    found = said(**sections)
    assert len(found) == 1
    assert found[0].startswith(words)


@pytest.mark.parametrize(
    ("listen", "split"),
    [
        ("127.0.0.1:9880", ("127.0.0.1", 9880)),
        (":0", ("", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_listen(listen: str, split: tuple[str, int]) -> None:
    assert checks.parse_listen(listen) == split


@pytest.mark.parametrize(
    "listen", ["", "a", "a:", "a:x", "a:65536", "::1:80", "a b:80", "http://a:80", "a:٣"]
)
def test_not_listen(listen: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|brackets"):
        checks.parse_listen(listen)


@pytest.mark.parametrize("name", ["gpu.example.com", "dra.net", "a", "x" * 63])
def test_driver_names(name: str) -> None:
    assert checks.driver_name_ok(name)


@pytest.mark.parametrize("name", ["", "A", "a_b", ".a", "a.", "a..b", "-a", "a-", "x" * 64, "a\n"])
def test_not_driver_names(name: str) -> None:
    assert not checks.driver_name_ok(name)


def test_the_shortest_fail_delay() -> None:
    assert said(outcome={"failDelay": "1200ms"}) == []
