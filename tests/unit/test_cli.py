import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import agent
from agent import cli, demo
from agent.settings import docs

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("DRA_AGENT_", "NODE_NAME"))]:
        monkeypatch.delenv(name)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_help_names_every_command_and_what_to_do_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for word in ("run", "demo", "explain", "check-config", "schema", "Start here"):
        assert word in said
    assert all(len(line) <= 100 for line in said.splitlines())


@pytest.mark.parametrize("command", ["run", "demo", "explain", "check-config", "schema"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert lines(capsys)[0].startswith("usage: dra-agent")


@pytest.mark.parametrize(
    "argv",
    [["nonsense"], ["run", "--nonsense"], ["explain", "--op"], ["explain", "x", "--op", "y"]],
)
def test_wrong_usage_is_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    said = lines(capsys)
    assert len(said) == 1
    assert said[0].startswith("dra-agent")


def test_no_node_name_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run"]) == 2
    said = lines(capsys)
    assert len(said) == 1
    assert "--node-name" in said[0]


def test_every_problem_of_a_config_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("apiVersion: dra-agent.io/v1alpha1\nkind: AgentConfig\nmode: x\nfoo: 1\n")
    for argv in (["check-config", str(path)], ["run", "--node-name=n", "--config", str(path)]):
        assert cli.main(argv) == 2
        said = lines(capsys)
        assert [line.split(": ")[:3] for line in said] == [
            ["dra-agent", str(path), "foo"],
            ["dra-agent", str(path), "mode"],
        ]


def test_a_good_config(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", str(ROOT / docs.EXAMPLE_FILE)]) == 0
    assert ": OK\n" in capsys.readouterr().out
    assert cli.main(["check-config", str(ROOT / docs.EXAMPLE_FILE), "--print"]) == 0
    assert capsys.readouterr().out.startswith("apiVersion: dra-agent.io/v1alpha1\n")


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["required"] == ["apiVersion", "kind"]


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["explain", "no words", "--code", "canceled", "--driver", "a.example", "--json"]
    assert cli.main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["surface"], found["code"], found["rule"]) == ("call_error", 1, "default")
    assert cli.main(["explain", "", "--transport", "gone"]) == 0
    assert "transport-gone" in capsys.readouterr().out
    assert cli.main(["explain", "x", "--permanent-error", "--code=14"]) == 0
    assert "driver-permanent-error" in capsys.readouterr().out


@pytest.mark.parametrize("code", ["UNAVAILBLE", "99", "²", "-1", "1_4"])
def test_an_unknown_code(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "x", f"--code={code}"]) == 2
    assert len(lines(capsys)) == 1


def test_demo_is_called_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def play(args: argparse.Namespace) -> int:
        seen.append(args.keep)
        return 3

    monkeypatch.setattr(demo, "run", play)
    assert cli.main(["demo", "--keep"]) == 3
    assert seen == [True]


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m agent schema | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, check=False)
    assert done.stdout == b"{"
    assert done.stderr == b""


@pytest.mark.parametrize("command", ["schema", "explain x"])
def test_a_full_disk_is_one_line(command: str) -> None:
    shell = f"{sys.executable} -m agent {command} >/dev/full"
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == b"dra-agent: output: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_traceback(closed: str) -> None:
    shell = f"{sys.executable} -m agent explain - {closed}"
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_output_that_cannot_show_all_characters() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "agent", "explain", "é" * 3000, "--json"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"\\xe9" in done.stdout


def test_explain_loads_no_client_library() -> None:
    heavy = "grpclib h2 aiohttp kubernetes_asyncio opentelemetry prometheus_client uvloop"
    program = (
        "import sys; from agent.cli import main; main(['explain', 'x']); "
        f"print([name for name in {heavy.split()} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_that_of_the_distribution() -> None:
    assert importlib.metadata.version("dra-node-agent") == agent.__version__
