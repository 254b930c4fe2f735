import msgspec
import pytest
from msgspec import inspect

from agent.settings import tree
from agent.settings.model import AgentConfig, Duration, Registration, Retry


def built(value: object) -> tuple[AgentConfig, list[str]]:
    said: list[str] = []
    config = tree.build(AgentConfig, value, "", lambda path, what: said.append(f"{path}: {what}"))
    return config, said


def one(value: object) -> str:
    _, said = built(value)
    assert len(said) == 1, said
    return said[0]


def test_good_values_of_every_kind() -> None:
    config, said = built(
        {
            "mode": "enforce",
            "registration": {"kind": "intake", "overlay": {"renewAgain": ["1s", "2s"]}},
            "retry": {"maxDelay": "2s", "jitter": 1, "ambiguousAttempts": 2},
            "drivers": {"perDriver": {"a.example": {"mode": "observe", "retry": None}}},
            "report": {"enabled": False, "kubeconfig": "/a"},
        }
    )
    assert said == []
    assert isinstance(config.registration, Registration)
    assert config.registration.overlay.renew_again == [Duration(1), Duration(2)]
    assert (config.retry.max_delay, config.retry.jitter) == (2.0, 1.0)
    assert isinstance(config.retry.jitter, float)
    assert config.drivers.per_driver["a.example"].retry is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"mdoe": "x"}, "mdoe: unknown key; did you mean `mode`?"),
        ({"retry": {"max_delay": "1s"}}, "retry.max_delay: unknown key; did you mean `maxDelay`?"),
        ({"retry": {"zzz": "1s"}}, "retry.zzz: unknown key"),
        ({"retry": 5}, "retry: expected a mapping with keys, got 5"),
        ({"retry": None}, "retry: expected a mapping with keys, got nothing"),
        ({"retry": {"jitter": 2}}, "retry.jitter: expected a number from 0 to 1, got 2"),
        (
            {"retry": {"jitter": float("nan")}},
            "retry.jitter: expected a number from 0 to 1, got nan",
        ),
        ({"retry": {"jitter": True}}, "retry.jitter: expected a number from 0 to 1, got true"),
        (
            {"retry": {"ambiguousAttempts": 1.5}},
            "retry.ambiguousAttempts: expected a whole number of 1 or more, got 1.5",
        ),
        (
            {"retry": {"ambiguousAttempts": 10**5000}},
            "retry.ambiguousAttempts: expected a whole number of 1 or more, got a huge number",
        ),
        ({"drivers": {"allow": "*"}}, 'drivers.allow: expected a list, got "*"'),
        ({"drivers": {"allow": [["*"]]}}, "drivers.allow[0]: expected text, got a list"),
        (
            {"drivers": {"perDriver": []}},
            "drivers.perDriver: expected a mapping with keys, got a list",
        ),
        (
            {"drivers": {"perDriver": {"a": {"mode": 1}}}},
            "drivers.perDriver[a].mode: expected one of `enforce`, `observe`, got 1",
        ),
        ({"report": {"events": "yes"}}, 'report.events: expected true or false, got "yes"'),
        ({"mode": False}, "mode: expected one of `enforce`, `observe`, got false"),
        ({"kind": "Pod"}, 'kind: expected `AgentConfig`, got "Pod"'),
        (
            {"registration": "intak"},
            "registration: expected one of `intake`, `overlay`, got "
            '"intak"; did you mean `intake`?',
        ),
        (
            {"registration": {"kind": 5}},
            "registration.kind: expected one of `intake`, `overlay`, got 5",
        ),
        ([], ": expected a mapping with keys, got a list"),
    ],
)
def test_each_problem_has_its_path_and_what_was_expected(value: object, said: str) -> None:
    assert one(value) == said


def test_all_problems_at_once_and_wrong_values_left_at_their_default() -> None:
    config, said = built({"mode": "x", "retry": {"margin": 5, "maxDelay": "9s"}, "log": {"a": 1}})
    assert len(said) == 3
    assert config.mode == "observe"
    assert config.retry.margin == Retry().margin
    assert config.retry.max_delay == 9.0


def test_a_section_that_may_be_a_word_or_nothing_keeps_what_was_good_in_it() -> None:
    config, said = built(
        {
            "registration": {"intakeDir": "x", "overlay": {"maxGenerations": 0}},
            "drivers": {"perDriver": {"a": {"retry": {"margin": "50s", "jitter": 2}}}},
        }
    )
    assert len(said) == 2
    assert isinstance(config.registration, Registration)
    assert config.registration.intake_dir == "x"
    assert config.retry_of("a").margin == 50.0


def test_hostile_values_are_shown_short_and_on_one_line() -> None:
    said = one({"mode": "x\n\x1b[31m" + "y" * 10_000})
    assert "\n" not in said
    assert len(said) < 250


def test_near_knows_the_other_ways_to_write_a_key() -> None:
    assert tree.near("max-delay", ["maxDelay", "margin"]) == "; did you mean `maxDelay`?"
    assert tree.near("nothing", ["maxDelay"]) == ""
    assert tree.near("A_B_FOO", ["A_B_MODE"], prefix="A_B_") == ""
    assert tree.near("A_B_MOED", ["A_B_MODE"], prefix="A_B_") == "; did you mean `A_B_MODE`?"


def test_a_kind_of_type_without_a_check_is_a_mistake_of_ours() -> None:
    class New(msgspec.Struct):
        when: bytes = b""

    with pytest.raises(TypeError, match="no check"):
        tree.build(New, {"when": "x"}, "", lambda path, what: None)


def test_plain_strips_annotations() -> None:
    described = inspect.type_info(AgentConfig)
    assert isinstance(described, inspect.StructType)
    kinds = {field.encode_name: tree.plain(field.type) for field in described.fields}
    assert isinstance(kinds["mode"], inspect.LiteralType)
