from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.errors import UserError
from agent.settings.leaves import leaves
from agent.settings.load import FLAGS, collect, dump, load, origin
from agent.settings.model import AgentConfig, Registration

HEAD = "apiVersion: dra-agent.io/v1alpha1\nkind: AgentConfig\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.yaml"


def problems(
    file: Path, text: str, env: Mapping[str, str] | None = None, **flags: str
) -> list[str]:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load(str(file), env=env or {}, flags=flags)
    return [line.replace(f"{file}: ", "") for line in caught.value.problems]


def test_without_anything_the_defaults_hold() -> None:
    assert load(None, env={}) == AgentConfig()


def test_precedence(file: Path) -> None:
    file.write_text(
        HEAD + "mode: enforce\nlog: {level: error, format: json}\nhttp: {listen: a:1}\n"
    )
    env = {"DRA_AGENT_LOG_LEVEL": "warning", "DRA_AGENT_HTTP_LISTEN": "b:2", "HOME": "/"}
    config = load(str(file), env=env, flags={"http.listen": "c:3"})
    assert config.mode == "enforce"
    assert (config.log.level, config.log.format) == ("warning", "json")
    assert config.http.listen == "c:3"


def test_every_key_with_a_variable_can_be_set_to_its_default_by_it() -> None:
    env = {}
    for leaf in leaves():
        if leaf.variable:
            default = leaf.default
            text = ",".join(map(str, default)) if isinstance(default, list) else str(default)
            env[leaf.variable] = text
    config = load(None, env=env)
    assert config.registration_settings == Registration()
    assert config == AgentConfig(registration=config.registration)


def test_flags_exist_as_keys() -> None:
    assert set(FLAGS) <= {leaf.dotted for leaf in leaves()}


def test_all_problems_at_once_sorted_by_path(file: Path) -> None:
    text = HEAD + (
        "retry: {maxDelay: 5 minutes, maxdelay: 1s}\n"
        "log: {level: debug, level: info}\n"
        "drivers: {perDriver: {Bad_Name: {}}}\n"
    )
    found = problems(
        file, text, {"DRA_AGENT_MODE": "x", "DRA_AGENT_MOED": "x"}, **{"http.listen": "q"}
    )
    assert found == [
        "environment variable DRA_AGENT_MOED: sets nothing; did you mean `DRA_AGENT_MODE`?",
        "drivers.perDriver[Bad_Name]: not a driver name (a lower-case DNS name of at most 63 "
        "characters)",
        '--http-listen: expected host:port such as 127.0.0.1:9880, got "q"',
        "log.level: line 4: given twice",
        'environment variable DRA_AGENT_MODE: expected one of `enforce`, `observe`, got "x"',
        'retry.maxDelay: expected a duration such as 250ms, 3s, 2m or 1h, got "5 minutes"',
        "retry.maxdelay: unknown key; did you mean `maxDelay`?",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "expected a mapping that begins with `apiVersion`, got nothing"),
        ("- a", "expected a mapping that begins with `apiVersion`, got a list"),
        ("a: [", "not valid YAML: line 1, column 5: while parsing a flow node: expected"),
        ("kind: AgentConfig", "apiVersion: missing; expected `dra-agent.io/v1alpha1`"),
        ("apiVersion: dra-agent.io/v1alpha1", "kind: missing; expected `AgentConfig`"),
        ("apiVersion: v2\nkind: AgentConfig", "apiVersion: expected `dra-agent.io/v1alpha1`"),
        ("apiVersion: dra-agent.io/v1alpha1\nkind: Pod", 'kind: expected `AgentConfig`, got "Pod"'),
    ],
)
def test_what_is_not_our_file(file: Path, text: str, found: str) -> None:
    said = problems(file, text)
    assert len(said) == 1
    assert said[0].startswith(found)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "no", "no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(UserError, match=words):
            load(str(path), env={})
    binary = tmp_path / "bin"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load(str(binary), env={})


@pytest.mark.parametrize("path", ["/tmp/a\0b", "/tmp/\ud800"])
def test_a_path_that_is_none_is_a_problem(path: str) -> None:
    with pytest.raises(UserError, match="cannot be a path") as caught:
        load(path, env={})
    (line,) = caught.value.problems
    assert line.isprintable()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("mode: !!bool maybe", 'mode: line 3: not a valid value: "maybe"'),
        ('outcome: {hold: !!int ""}', 'outcome.hold: line 3: not a valid value: ""'),
        ("log: {level: !!timestamp soon}", 'log.level: line 3: not a valid value: "soon"'),
    ],
)
def test_a_tag_that_does_not_fit_its_value_is_one_problem(file: Path, text: str, line: str) -> None:
    assert problems(file, HEAD + text) == [line]


def test_variables_of_kubernetes_services_are_let_be() -> None:
    env = {
        "DRA_AGENT_SERVICE_HOST": "192.0.2.1",
        "DRA_AGENT_SERVICE_PORT": "80",
        "DRA_AGENT_SERVICE_PORT_METRICS": "80",
        "DRA_AGENT_PORT": "tcp://192.0.2.1:80",
        "DRA_AGENT_PORT_80_TCP": "tcp://192.0.2.1:80",
        "DRA_AGENT_PORT_80_TCP_PROTO": "tcp",
        "DRA_AGENT_PORT_80_TCP_ADDR": "192.0.2.1",
        "DRA_AGENT_METRICS_SERVICE_HOST": "192.0.2.1",
        "DRA_AGENT_METRICS_PORT_80_TCP": "tcp://192.0.2.1:80",
    }
    assert load(None, env=env) == AgentConfig()


def test_registration_word_and_object_from_every_source(file: Path) -> None:
    file.write_text(HEAD + "registration: intake\n")
    config = load(str(file), env={"DRA_AGENT_REGISTRATION_OVERLAY_RENEW_DELAY": "9s"})
    assert config.registration_settings.kind == "intake"
    assert config.registration_settings.overlay.renew_delay == 9.0
    file.write_text(HEAD + "registration: {intakeDir: /x}\n")
    config = load(str(file), env={}, flags={"registration": "intake"})
    assert config.registration_settings == Registration(kind="intake", intake_dir="/x")


def test_a_wrong_registration_flag_is_said_as_such(file: Path) -> None:
    found = problems(file, HEAD + "registration: {intakeDir: /x}\n", registration="over")
    assert found[0].startswith("--registration: expected one of")


def test_a_driver_s_retry_takes_what_it_lacks_from_the_top_level(file: Path) -> None:
    file.write_text(
        HEAD + "mode: enforce\nretry: {margin: 7s, maxDelay: 9s}\n"
        "drivers: {perDriver: {a.example: {retry: {maxDelay: 2s}}, b.example: {mode: observe}}}\n"
    )
    config = load(str(file), env={"DRA_AGENT_RETRY_JITTER": "0.25"})
    special = config.retry_of("a.example")
    assert (special.max_delay, special.margin, special.jitter) == (2.0, 7.0, 0.25)
    assert config.retry_of("b.example") == config.retry
    assert (config.mode_of("a.example"), config.mode_of("b.example")) == ("enforce", "observe")


def test_relations_hold_for_what_a_driver_inherits(file: Path) -> None:
    text = HEAD + "drivers: {perDriver: {a: {retry: {maxDelay: 100ms}}}}\n"
    assert problems(file, text) == [
        "drivers.perDriver[a].retry.maxDelay: must not be shorter than initialDelay"
    ]


def test_wrong_words_in_the_environment(file: Path) -> None:
    env = {
        "DRA_AGENT_REPORT_ENABLED": "maybe",
        "DRA_AGENT_REPORT_QUEUE": "many",
        "DRA_AGENT_RETRY_JITTER": "0.5x",
        "DRA_AGENT_DRIVERS_ALLOW": "a.example, B",
    }
    found = problems(file, HEAD, env)
    assert len(found) == 4
    assert all(line.startswith("environment variable DRA_AGENT_") for line in found)


def test_dump_is_read_back(file: Path) -> None:
    file.write_text(
        HEAD + "registration: {overlay: {renewAgain: [1s]}}\nlog: {format: json}\n"
        "drivers: {perDriver: {a.example: {retry: {maxDelay: 2s}}}}\n"
    )
    config = load(str(file), env={})
    file.write_text(dump(config))
    assert load(str(file), env={}) == config


def test_what_is_unreadable_hides_no_other_problem(file: Path, tmp_path: Path) -> None:
    env = {"DRA_AGENT_FOO": "x"}
    for text in ("a: [", "- a", None):
        if text is None:
            file = tmp_path / "none"
        else:
            file.write_text(text)
        config, found = collect(str(file), env=env, flags={"mode": "x", "log.level": "debug"})
        assert config.log.level == "debug"
        assert [line.split(": ")[0] for line in found] == [
            str(file),
            "environment variable DRA_AGENT_FOO",
            "--mode",
        ]
        assert "did you mean" not in found[1]


def test_relations_are_checked_beside_wrong_values(file: Path) -> None:
    text = HEAD + "registration: {overlay: {getInfoDelay: 2s, maxGenerations: 0}}\n"
    assert [line.split(": ")[0] for line in problems(file, text)] == [
        "registration.overlay.getInfoDelay",
        "registration.overlay.maxGenerations",
    ]


def test_where_a_value_is_from() -> None:
    key, variable = "report.kubeconfig", "DRA_AGENT_REPORT_KUBECONFIG"
    assert origin(key, None, env={}) == key
    assert origin(key, "/f", env={}) == f"/f: {key}"
    assert origin(key, "/f", env={variable: "x"}) == f"environment variable {variable}"
    assert origin(key, "/f", env={variable: "x"}, flags={key: "x"}) == "--kubeconfig"
