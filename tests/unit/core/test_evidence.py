import pytest

from agent.core import evidence
from agent.core.details import Details
from agent.core.marker import Marker
from agent.core.model import Culprit, Failure, Kind, Surface


def test_the_field() -> None:
    plain = Failure("d", "prepare", Surface.CLAIM_ERROR, "x")
    said = Failure("d", "prepare", Surface.CLAIM_ERROR, "x", permanent_error=True)
    assert evidence.of_field(plain) is None
    verdict = evidence.of_field(said)
    assert verdict is not None
    assert (verdict.kind, verdict.explicit) == (Kind.PERMANENT, True)


def test_a_marker_is_never_explicit_and_names_a_device_only_with_that_culprit() -> None:
    assert evidence.of_marker(None) is None
    verdict = evidence.of_marker(Marker(Kind.PERMANENT, "u", Culprit.NODE, "gpu-1", 3.0))
    assert verdict is not None
    assert (verdict.device, verdict.retry_after, verdict.explicit) == (None, None, False)


@pytest.mark.parametrize(
    ("reason", "domain", "known"),
    [
        ("PERMANENT", "dra-agent.io", True),
        ("transient", "dra-agent.io", True),
        ("PERMANENT", "other.example", False),
        ("BROKEN", "dra-agent.io", False),
    ],
)
def test_error_info(reason: str, domain: str, known: bool) -> None:
    verdict = evidence.of_error_info(Details(reason=reason, domain=domain))
    assert (verdict is not None) is known


def test_error_info_says_who_and_what() -> None:
    said = Details("PERMANENT", "dra-agent.io", {"culprit": "device", "device": "gpu-1"})
    verdict = evidence.of_error_info(said)
    assert verdict is not None
    assert (verdict.culprit, verdict.blamed) == (Culprit.DEVICE, "gpu-1")
    bad = evidence.of_error_info(
        Details("PERMANENT", "dra-agent.io", {"culprit": "x", "device": "a b"})
    )
    assert bad is not None
    assert (bad.culprit, bad.device) == (Culprit.UNKNOWN, None)


def test_the_least_final_detail_wins() -> None:
    said = Details(retry_after=4.0, bad_request=True, precondition_failure=True)
    verdict = evidence.of_details(said)
    assert verdict is not None
    assert (verdict.rule, verdict.retry_after) == (evidence.RETRY_INFO, 4.0)
    said.retry_after = None
    verdict = evidence.of_details(said)
    assert verdict is not None
    assert verdict.rule == evidence.BAD_REQUEST
    said.bad_request = False
    verdict = evidence.of_details(said)
    assert verdict is not None
    assert (verdict.rule, verdict.kind) == (evidence.PRECONDITION, Kind.AMBIGUOUS)
    said.precondition_failure = False
    assert evidence.of_details(said) is None
