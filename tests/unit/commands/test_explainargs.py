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


def test_an_odd_line_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "many"
    path.write_bytes(
        b'\xef\xbb\xbf{"id":1,"text":"x","grpc_code":"nope"}\n\nno\n[]\n{"id":2,"text":"y"}\n'
    )
    assert main(["explain", "--jsonl", str(path)]) == 1
    said = capsys.readouterr()
    assert [json.loads(line)["id"] for line in said.out.splitlines()] == [1, 2]
    assert f'{path}:1: grpc_code: "nope"' in said.err
    assert "2 lines are no JSON object" in said.err
    path.write_text('{"text":"x","surface":"nope"}\n')
    assert main(["explain", "--jsonl", str(path)]) == 0
    assert 'surface: "nope"' in capsys.readouterr().err


@pytest.mark.parametrize(
    "more",
    [
        *(["--json"], ["--code", "14"], ["--driver", "a.b"], ["--op", "prepare"]),
        *(["--details", "YQ=="], ["--claim", "u"], ["--permanent-error"]),
        ["--transport", "reset"],
    ],
)
def test_options_that_would_do_nothing_are_refused(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--jsonl", str(CORPUS), *more]) == 2
    assert f"{more[0]}: not with --jsonl" in capsys.readouterr().err
    if more != ["--json"]:
        assert main(["explain", "--pod", "ns/p", *more]) == 2
        assert f"{more[0]}: not with --pod" in capsys.readouterr().err


def test_a_code_may_be_written_in_any_way(capsys: pytest.CaptureFixture[str]) -> None:
    for written, code in (("deadline-exceeded", 4), ("Unavailable", 14), ("OK", None)):
        assert main(["explain", "x", "--code", written, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["code"] == code
    assert main(["explain", "x", "--code", "nope"]) == 2


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


def test_a_broken_call_needs_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--transport", "refused", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rule"] == "transport-refused"


@pytest.mark.parametrize("details", ["AAAA", "gA==", "AAE="])
def test_details_that_are_none_are_refused(
    details: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "x", "--details", details]) == 2
    assert "--details: not a google.rpc.Status" in capsys.readouterr().err


def test_every_problem_of_arguments_and_files_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "apiVersion: dra-agent.io/v1alpha1\nkind: AgentConfig\nmode: x\nrules: {files: [/r]}\n"
        "report: {kubeconfig: /not-used-here}\n"
    )
    argv = ["explain", "x", "--config", str(path), "--driver", "A B", "--code", "NOPE"]
    assert main([*argv, "--details", "%"]) == 2
    starts = [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()]
    assert starts == [str(path), "rules.files[0]", "--driver", "--code", "--details"]
    argv = ["explain", "--pod", "a/b", "--config", str(path), "--kubeconfig", "/none"]
    assert main(argv) == 2
    assert "--kubeconfig: no such file: /none" in capsys.readouterr().err
