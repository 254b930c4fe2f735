from __future__ import annotations

import pytest

from agent import names
from agent.core.model import ClaimRef
from agent.demo import messages
from agent.pb import dra_v1beta1_pb2

REFS = (ClaimRef("ns", "uid-1", "one"), ClaimRef("ns", "uid-2", "two"))


def test_info_and_status_survive_the_wire() -> None:
    info = messages.Info("DRAPlugin", "d", "/x.sock", ("v1.DRAPlugin", "other"))
    assert messages.parse_info(messages.info(info)) == info
    parse = messages.parse_registration_status
    assert parse(messages.registration_status("")) == (True, "")
    assert parse(messages.registration_status("no")) == (False, "no")


@pytest.mark.parametrize("operation", [names.PREPARE, names.UNPREPARE])
def test_claims_survive_the_wire(operation: str) -> None:
    body = messages.claims_request(operation, REFS)
    assert messages.parse_claims(operation, body) == REFS


def test_answers_survive_the_wire_and_v1beta1_reads_the_same() -> None:
    device = messages.PreparedDevice(("r",), "pool", "dev", ("cdi/x=1",))
    answers = {
        "uid-1": messages.ClaimAnswer(devices=(device,)),
        "uid-2": messages.ClaimAnswer("broken", True),
    }
    body = messages.answers(names.PREPARE, answers)
    assert messages.parse_answers(names.PREPARE, body) == answers
    old = dra_v1beta1_pb2.NodePrepareResourcesResponse.FromString(body)
    assert old.claims["uid-1"].devices[0].device_name == "dev"
    body = messages.answers(names.UNPREPARE, {"uid-1": messages.ClaimAnswer("no")})
    assert messages.parse_answers(names.UNPREPARE, body) == {"uid-1": messages.ClaimAnswer("no")}


def test_rubbish_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="PluginInfo"):
        messages.parse_info(b"\xff\xff")
    with pytest.raises(ValueError, match="answer"):
        messages.parse_answers(names.PREPARE, b"\xff\xff")
