import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.marker import MAX_RETRY_AFTER, culprit_of, device_of, find, markers, seconds
from agent.core.model import Culprit, Kind

UID = "7b0f7d52-91b1-4c57-9f0e-52d0a4f0c1aa"


def test_everything_it_can_say() -> None:
    said = f"[dra-agent.io transient claim={UID} culprit=device device=pool-a/gpu-1 retry-after=5s]"
    found = find(f"outer: {said}: inner", UID)
    assert found is not None
    assert (found.kind, found.culprit, found.device, found.retry_after) == (
        Kind.TRANSIENT,
        Culprit.DEVICE,
        "pool-a/gpu-1",
        5.0,
    )


@pytest.mark.parametrize("around", ["{}", "a: {}", "{}: b", "a\n{}\nb", "[x, {}]", '"{}"'])
def test_it_survives_wrapping(around: str) -> None:
    said = around.format(f"[dra-agent.io permanent claim={UID} culprit=parameters]")
    found = find(said, UID)
    assert found is not None
    assert (found.kind, found.culprit) == (Kind.PERMANENT, Culprit.PARAMETERS)


@pytest.mark.parametrize(
    "words",
    [
        "permanent",  # no claim
        f"claim={UID} permanent",  # the verdict comes first
        f"fatal claim={UID}",
        f"permanent claim={UID} culprit=me",
        f"permanent claim={UID} claim={UID}",
        f"permanent claim={UID} device=a;b",
        f"permanent claim={UID} retry-after=soon",
        f"permanent claim={UID} retry-after=-1s",
        f"permanent claim={UID} lonely",
        f"permanent claim={UID} key=",
        "",
        " " * 401,
    ],
)
def test_malformed_ones_are_text(words: str) -> None:
    assert find(f"[dra-agent.io {words}]", UID) is None


def test_unknown_keys_are_left_for_later_versions() -> None:
    assert find(f"[dra-agent.io permanent claim={UID} colour=red]", UID) is not None


def test_only_the_claim_that_failed_is_believed() -> None:
    said = f"[dra-agent.io permanent claim={UID}]"
    assert find(said, UID.replace("7", "8")) is None
    assert find(said, "") is None
    assert [one.claim for one in markers(said)] == [UID]


def test_of_several_the_most_final_one_counts() -> None:
    kinds = ["transient", "permanent", "ambiguous"]
    said = "; ".join(f"[dra-agent.io {kind} claim={UID}]" for kind in kinds)
    found = find(said, UID)
    assert found is not None
    assert found.kind is Kind.PERMANENT


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5s", 5.0),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("9999999s", MAX_RETRY_AFTER),
        ("5", None),
        ("", None),
        ("1e3s", None),
        ("٥s", None),
    ],
)
def test_seconds(written: str, value: float | None) -> None:
    assert seconds(written) == value


def test_words() -> None:
    assert culprit_of("node") is Culprit.NODE
    assert culprit_of("Node") is None
    assert device_of("0000:3b:00.1") == "0000:3b:00.1"
    assert device_of("a b") is None
    assert device_of("") is None


@given(st.text(), st.text())
def test_any_text_is_read(text: str, claim: str) -> None:
    find(f"[dra-agent.io {text}]", claim)


def test_a_flood_is_bounded() -> None:
    said = f"[dra-agent.io permanent claim={UID}]" * 5000
    assert len(list(markers(said))) == 256
    assert find("[dra-agent.io " * 100_000, UID) is None
