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


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("device 5f1b2c3d-1111-2222-3333-444455556666 has fallen off the bus",
         {"uuid": {"string": "5f1b2c3d-1111-2222-3333-444455556666"}}),
        ("uncorrectable error at 04:00.0", {"pciAddress": "0000:04:00.0"}),
        ("GPU minor 3 has an uncorrectable error", {"minor": {"int": 3}}),
        ("GPU 3 has an uncorrectable error", {"index": {"int": 3}}),
        ("/dev/acme3 has an uncorrectable error", {"minor": {"int": 3}}),
        ("NIC 0c:42:a1:00:00:01 has an unrecoverable error", {"mac": "0C:42:A1:00:00:01"}),
        ("VF pf0vf3 has a hardware fault", {"vfName": "pf0vf3"}),
        ("accel-a has an uncorrectable error", {}),
    ],
)  # fmt: skip
def test_a_generic_rule_maps_identifiers_too(text: str, attributes: dict[str, Any]) -> None:
    devices = [device("accel-a", attributes=attributes), device("accel-b")]
    assert answer(driver="d.example", text=text, devices=devices)["device"] == "accel-a"


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
        ("nonsense", "not JSON"),
        ("[1]", "not an object"),
        ("[" * 100_000, "not JSON"),
        ('{"id": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_what_is_no_object_is_left_out_and_told(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = corpus.Odd()
    given = '{"text": "x"}\n' + line + '\n{"text": "y"}'
    assert [each.failure.text for each in corpus.entries(given, "f", odd)] == ["x", "y"]
    assert odd.skipped == 1
    assert capsys.readouterr().err.startswith(f"warning: f:2: {words}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": 5}', 'text: "5" is not text'),
        ('{"surface": "x"}', 'surface: "x" is not one of'),
        ('{"surface": []}', 'surface: "[]" is not one of'),
        ('{"grpc_code": "X\\u001b"}', 'grpc_code: "X\\x1b" is not a gRPC code; taken as none'),
        ('{"grpc_code": 17}', 'grpc_code: "17" is not a gRPC code'),
        ('{"devices": {}}', 'devices: "{}" is not a list'),
        ('{"details": "%"}', 'details: "%" is not base64'),
    ],
)
def test_a_field_that_is_not_understood_is_left_out_and_told(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = corpus.Odd()
    (_, entry) = corpus.entries('{"text": "x"}\n' + line, "f", odd)
    assert odd.skipped == 0
    assert (entry.failure.surface, entry.failure.code) == (Surface.CLAIM_ERROR, None)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"warning: f:2: {words}")


@pytest.mark.parametrize(
    ("written", "code"),
    [
        *(("DeadlineExceeded", 4), ("deadline exceeded", 4), ("14", 14), (14, 14)),
        *(("OK", None), (0, None), ("", None)),
    ],
)
def test_codes_in_all_spellings(
    written: object, code: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one(surface="grpc_status", grpc_code=written, text="x").failure.code == code
    assert capsys.readouterr().err == ""


def test_a_byte_order_mark_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = corpus.entries('\ufeff{"text": "x"}\n\ufeff\n', "f")
    assert entry.failure.text == "x"
    assert capsys.readouterr().err == ""


def test_half_a_character_can_be_printed() -> None:
    (entry,) = corpus.entries('{"id": "\\ud800", "text": "\\ud800"}', "f")
    (line,) = corpus.answers([entry], RULES)
    assert json.loads(line.encode())["id"] == "\ud800"


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'\n{"id": 7, "text": "x"}\r\n\n')
    assert [entry.id for entry in corpus.read(str(path))] == ["7"]
    with pytest.raises(UserError, match="no such file"):
        list(corpus.read(str(tmp_path / "none")))
