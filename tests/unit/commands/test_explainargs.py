import base64
import io
import json
from pathlib import Path

import pytest

from agent.cli import main
from tests.support.details import bad_request, details_bin

CORPUS = Path(__file__).parents[2] / "corpus" / "failures.jsonl"


def test_one_source_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 2
    assert main(["explain", "x", "--file", "y"]) == 2
    assert "give one of TEXT" in capsys.readouterr().err


def test_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"strict decoding error: \xff\n")
    assert main(["explain", "--file", str(path)]) == 0
    assert "permanent" in capsys.readouterr().out
    assert main(["explain", "--file", str(tmp_path / "none")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--jsonl", str(CORPUS)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    assert [one["id"] for one in found] == [one["id"] for one in wanted]
    assert {tuple(one) for one in found} == {("id", "verdict", "culprit", "device", "rule", "hint")}


def test_json_lines_of_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"id":"a","text":"x"}\n')))
    assert main(["explain", "--jsonl", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "ambiguous"


def test_a_marker_needs_its_claim(capsys: pytest.CaptureFixture[str]) -> None:
    said = "x [dra-agent.io permanent claim=u1 culprit=node]"
    assert main(["explain", said]) == 0
    assert "a marker for claim u1 counts only with that claim" in capsys.readouterr().out
    assert main(["explain", said, "--claim", "u1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rule"], found["culprit"], found["explicit"]) == ("driver-marker", "node", False)


def test_details(capsys: pytest.CaptureFixture[str]) -> None:
    raw = base64.b64encode(details_bin(bad_request("size", "too big"))).decode().rstrip("=")
    assert main(["explain", "x", "--details", raw, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rule"], found["surface"]) == ("driver-bad-request", "call_error")
    assert main(["explain", "x", "--details", "%"]) == 2


def test_repeats_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "who knows", "--driver", "dra.net"]) == 0
    said = capsys.readouterr().out
    assert "never within a call" in said
    assert "dranet#296" in said
    assert main(["explain", "", "--driver", "dra.nvme", "--transport", "reset", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["maxAttempts"], found["attempts"]) == (2, "limited")
    assert found["repeat"]["withinCall"] == "once"
