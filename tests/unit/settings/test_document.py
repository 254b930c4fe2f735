import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.settings import document


def problem(text: str) -> str:
    value, problems = document.read(text)
    assert problems, value
    return "; ".join(f"{path}: {what}" for path, what in problems)


def test_plain_values() -> None:
    text = "a: 1\nb: [x, true, 1.5, null]\nc: {d: 'e'}\n"
    assert document.read(text) == ({"a": 1, "b": ["x", True, 1.5, None], "c": {"d": "e"}}, [])


def test_what_cannot_be_read_is_left_out() -> None:
    value, problems = document.read("a: !!bool maybe\nb: [!!int '', 1]\nc: null\n")
    assert value == {"b": [None, 1], "c": None}
    assert [path for path, _ in problems] == ["a", "b[0]"]


def test_nothing_is_nothing() -> None:
    assert document.read("") == (None, [])
    assert document.read("# a comment\n") == (None, [])


def test_all_doubled_keys_are_said_with_their_lines() -> None:
    text = "a: 1\nb: {c: 1, c: 2}\na: 2\n"
    assert document.read(text) == (
        {"a": 1, "b": {"c": 1}},
        [("b.c", "line 2: given twice"), ("a", "line 3: given twice")],
    )


def test_aliases_may_be_used() -> None:
    assert document.read("a: &x [1]\nb: *x\n") == ({"a": [1], "b": [1]}, [])


def test_an_alias_bomb_is_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 9):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    assert "more than 50000 values" in problem("\n".join(lines))


def test_an_alias_to_itself_ends() -> None:
    assert "nested deeper" in problem("a: &x [*x]\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "not valid YAML: line 1"),
        ("a: b: c", "not valid YAML"),
        ("a: \t- x\n\tb", "not valid YAML"),
        ("a: *nowhere", "undefined alias"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: !!python/object/apply:os.system [id]", "is not supported"),
        ("a: !!python/name:os.system x", "tag"),
        ("a: !mine x", "tag !mine is not supported"),
        ("a: 2001-99-99", "not a valid value"),
        ("a: !!bool maybe", 'a: line 1: not a valid value: "maybe"'),
        ('a: !!int ""', 'a: line 1: not a valid value: ""'),
        ('a: !!float ""', 'a: line 1: not a valid value: ""'),
        ("a: !!timestamp soon", 'a: line 1: not a valid value: "soon"'),
        ('a: !!int "x\\ny"', 'a: line 1: not a valid value: "x; y"'),
        ('a: "\\ud800"', "a: line 1: not a valid value: "),
        ('"\\ud800": 1', "line 1: not a valid key: "),
        ('a: "\\UFFFFFFFF"', "a value that cannot be read"),
        ("%YAML 1." + "9" * 5000 + "\n--- a", "a value that cannot be read"),
        ("a: " + "9" * 5000, "not a valid value"),
        ("a: !!map x", "map is not supported"),
        ("a: !!seq x", "seq is not supported"),
        ("a: !a%0Ab x", "is not supported"),
        ("<<: {a: 1}", "merge keys are not supported"),
        ("[a, b]: 1", "a key must be a word"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("[" * 20000 + "]" * 20000, "nested deeper"),
        ("a: \x00", "not valid YAML"),
        ("x" * (document.MAX_SIZE + 1), "larger than"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    said = problem(text)
    assert words in said
    assert "\n" not in said


@given(st.text(max_size=200))
def test_any_text_is_a_value_or_a_problem(text: str) -> None:
    document.read(text)


def test_a_foreign_file_is_read_as_its_own_programs_do() -> None:
    assert document.foreign("a: 1\na: &x 2\nb: {<<: {c: *x}}") == ({"a": 2, "b": {"c": 2}}, "")
    for text in (
        "{",
        "a: 2020-99-99",
        "[" * 5000,
        "x" * (document.MAX_SIZE + 1),
        "a: !!x y",
        "a: !!bool maybe",
    ):
        value, problem = document.foreign(text)
        assert value is None
        assert problem
        assert "\n" not in problem
