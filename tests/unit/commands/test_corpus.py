import base64
import json
from pathlib import Path
from typing import Any

import pytest

from agent.commands import corpus
from agent.core.model import Surface, Transport
from agent.errors import UserError
from agent.settings.model import Rules
from agent.settings.rulefiles import load_rules
from tests.support.details import details_bin, retry_info

RULES = load_rules(Rules())


def one(**fields: Any) -> corpus.Entry:
    (entry,) = corpus.entries(json.dumps(fields), "f")
    return entry


def answer(**fields: Any) -> dict[str, Any]:
    (line,) = corpus.answers([one(**fields)], RULES)
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def device(
    name: str, driver: str = "d.example", attributes: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"driver": driver, "pool": "n", "device": name, "attributes": attributes or {}}


def test_the_answer_has_exactly_these_fields() -> None:
    found = answer(id="x1", driver="d.example", text="device gpu-1 is resetting")
    assert list(found) == ["id", "verdict", "culprit", "device", "rule", "hint"]
    assert found["id"] == "x1"
    assert (found["verdict"], found["culprit"], found["device"]) == ("transient", "device", "gpu-1")


def test_the_builtin_corpus_is_read() -> None:
    entries = list(corpus.entries(corpus.builtin(), "built-in"))
    assert len(entries) == 120
    assert sum(1 for entry in entries if entry.failure.transport is not None) >= 8


def test_a_device_is_named_only_where_it_is_allocated() -> None:
    text = "device gpu-1 is resetting"
    assert answer(driver="d.example", text=text, devices=[device("gpu-1")])["device"] == "gpu-1"
    assert answer(driver="d.example", text=text, devices=[device("gpu-2")])["device"] is None
    assert answer(driver="d.example", text=text, devices=[])["device"] is None
    other = [device("gpu-1", "other.example")]
    assert answer(driver="d.example", text=text, devices=other)["device"] is None


@pytest.mark.parametrize("value", ["0000:3b:00.1", {"string": "0000:3b:00.1"}])
def test_a_driver_s_own_identifier_is_mapped_to_the_device(value: object) -> None:
    devices = [
        device("nic-a", attributes={"resource.kubernetes.io/pciBusID": value}),
        device("nic-b", attributes={"resource.kubernetes.io/pciBusID": "0000:3b:00.2"}),
    ]
    text = "adapter 0000:3b:00.1 has fallen off the bus"
    assert answer(driver="d.example", text=text, devices=devices)["device"] == "nic-a"


def test_an_innocent_device_is_not_named() -> None:
    text = "requested device gpu-0 is already allocated to different claim u2"
    for devices in (None, [device("gpu-0")]):
        found = answer(driver="d.example", text=text, devices=devices)
        assert (found["culprit"], found["device"]) == ("claim", None)


def test_surfaces() -> None:
    assert one(surface="transport", grpc_code="UNAVAILABLE", text="EOF").failure.transport is (
        Transport.RESET
    )
    call = one(surface="grpc_status", grpc_code="CANCELED", text="x").failure
    assert (call.surface, call.code) == (Surface.CALL_ERROR, 1)
    assert one(surface="grpc_status", grpc_code=14, text="x").failure.code == 14
    assert one(surface="event", text="x").failure.surface is Surface.CLAIM_ERROR
    assert one(text="x", driver="any (kubelet)").failure.driver == ""


def test_evidence_beside_the_text() -> None:
    raw = base64.b64encode(details_bin(retry_info(3))).decode()
    found = answer(surface="grpc_status", grpc_code="INTERNAL", text="x", details=raw)
    assert found["rule"] == "driver-retry-info"
    assert answer(text="x", permanent_error=True)["rule"] == "driver-permanent-error"
    said = "[dra-agent.io permanent claim=u1 culprit=node]"
    assert answer(text=said, claim_uid="u1")["culprit"] == "node"
    assert answer(text=said)["rule"] == "default"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "f:2: not JSON"),
        ("[1]", "f:2: expected one object per line"),
        ('{"text": 5}', "f:2: text: expected text"),
        ('{"surface": "x"}', "f:2: surface: expected one of"),
        ('{"grpc_code": "X"}', "f:2: grpc_code: unknown code"),
        ('{"devices": {}}', "f:2: devices: expected a list"),
        ('{"details": "%"}', "f:2: details: expected base64"),
        ("[" * 100_000, "f:2: not JSON"),
    ],
)
def test_bad_lines_are_named(line: str, words: str) -> None:
    with pytest.raises(UserError, match=r"^f:2: ") as caught:
        list(corpus.entries('{"text": "x"}\n' + line, "f"))
    assert caught.value.problems[0].startswith(words)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'\n{"id": 7, "text": "x"}\r\n\n')
    assert [entry.id for entry in corpus.read(str(path))] == ["7"]
    with pytest.raises(UserError, match="no such file"):
        list(corpus.read(str(tmp_path / "none")))
