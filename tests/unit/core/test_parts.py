import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.parts import ENDS, MAX_PARTS, mask, spelled, split

UID = "7b0f7d52-91b1-4c57-9f0e-52d0a4f0c1aa"


def test_a_single_error_has_no_parts() -> None:
    assert split("a: b: c") == ("a: b: c", ())


@pytest.mark.parametrize("text", ["a\nb", "a; b", "several: [a, b]", "[a, b]"])
def test_joined_errors(text: str) -> None:
    assert [part.strip() for part in split(text)[1]] == ["a", "b"]


def test_a_list_in_one_of_several_lines() -> None:
    assert split("[a: x, b: y]\nc")[1] == ("[a: x, b: y]", "c", "a: x", "b: y")


def test_of_a_long_list_both_ends_are_looked_at() -> None:
    _, singles = split("\n".join(f"e{n}" for n in range(1000)))
    assert len(singles) == MAX_PARTS
    assert (singles[0], singles[-1]) == ("e0", "e999")
    assert len(split("x" * (1 << 20))[0]) <= 3 * ENDS


def test_what_the_agent_put_before_a_text_is_not_read() -> None:
    said = "dra-agent: gpu.example.com: permanent (device gpu-1): busy"
    assert split(f"NodePrepareResources failed: {said}")[0] == "NodePrepareResources failed: busy"
    assert split("dra-agent: gpu.example.com: busy")[0] == "busy"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"claim not-ready/busy-0:{UID}: gone", "busy-0"),
        ("ResourceClaim timed-out in namespace busy-1 is gone", "timed-out"),
        ("pod busy-0 (x)", "busy-0"),
        ("retrieve claim default/invalid-config: x", "invalid-config"),
        (UID, UID),
    ],
)
def test_names_are_masked(text: str, hidden: str) -> None:
    assert hidden not in mask(text)
    assert len(mask(text)) == len(text)


@pytest.mark.parametrize("text", ["claim is gone", "claim not found", "pod was deleted"])
def test_words_are_left(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x: LIB_ERROR_BUSY (4)", "x: LIB ERROR BUSY (4)"),
        ("state NOT_READY", "state NOT READY"),
        ("mlx5_0 and field_a stay", "mlx5_0 and field_a stay"),
    ],
)
def test_constants_are_spelled(text: str, words: str) -> None:
    assert spelled(text) == words


@given(st.text())
def test_masking_keeps_the_length(text: str) -> None:
    assert len(mask(text)) == len(text)
    assert len(spelled(text)) == len(text)
    split(text)
