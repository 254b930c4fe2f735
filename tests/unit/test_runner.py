"""tests/run.py: what it counts and when it fails."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import run

REPORT = """<testsuites><testsuite>
<testcase classname="a" name="good"/>
<testcase classname="a" name="bad"><failure message="x"/></testcase>
<testcase classname="a" name="broken"><error message="x"/></testcase>
<testcase classname="a" name="left"><skipped message="no Go"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted_by_test() -> None:
    total = run.Total()
    run.count(total, ET.fromstring(REPORT), "unit")
    assert total.line() == "1 passed, 2 failed, 1 skipped"
    assert "FAILED   unit: a::bad" in total.problems
    assert "SKIPPED  unit: a::left: no Go" in total.problems


@pytest.mark.parametrize(
    ("forbidden", "code", "line"), [(False, 0, "3 passed, 0 failed, 1 skipped"), (True, 1, "")]
)
def test_the_last_line_is_the_summary(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    forbidden: bool,
    code: int,
    line: str,
) -> None:
    monkeypatch.setattr(run, "NO_SKIP", forbidden)
    monkeypatch.setattr(run, "REPORTS", tmp_path / "reports")
    total = run.Total(passed=3)
    total.skip("node tests", "no Go")
    assert run.finish(total) == code
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last == (line or "3 passed, 1 failed, 1 skipped")
    assert (tmp_path / "reports" / run.SUMMARY).read_text() == f"{last}\n"


CI_TOOLS = ("make", "git", "ip", "openssl", "unshare", "setpriv", "python3", "apt-get")


def ci(folder: Path, **tools: str) -> tuple[int, list[str]]:
    """.ci/run with stand-ins for all that it starts; its exit code and what it wrote."""
    script = folder / ".ci" / "run"
    stubs = folder / "stubs"
    for made in (script.parent, stubs):
        made.mkdir()
    script.write_text((run.ROOT / ".ci" / "run").read_text())
    for name in (*CI_TOOLS, *tools):
        stub = stubs / name
        stub.write_text(f"#!/bin/sh\n{tools.get(name, ':')}\n")
        stub.chmod(0o755)
    done = subprocess.run(
        ("bash", script),
        env={"PATH": f"{stubs}:/usr/bin:/bin", "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


SUMMED = f"mkdir -p .cache/reports; echo '1 passed, 2 failed' | tee .cache/reports/{run.SUMMARY}"


@pytest.mark.parametrize(
    ("make", "code", "last"),
    [
        (f"{SUMMED}; echo 'make: *** [test] Error 1' >&2; exit 2", 2, "1 passed, 2 failed"),
        ("echo 'error: no Python 3.11, 3.12 or 3.13 found.'; exit 2", 2, "0 passed, 1 failed"),
        ("echo '3 passed, 0 failed'", 0, "3 passed, 0 failed"),
    ],
)
def test_ci_ends_with_the_summary(tmp_path: Path, make: str, code: int, last: str) -> None:
    found, lines = ci(tmp_path, make=make, cargo=":")
    assert (found, lines[-1]) == (code, last)
    assert not any("cargo" in line for line in lines)


def test_ci_ends_with_a_summary_when_it_cannot_begin(tmp_path: Path) -> None:
    """No ensurepip, and no package either."""
    code, lines = ci(tmp_path, python3="exit 1", **{"apt-get": "exit 100"})
    assert (code, lines[-1]) == (100, "0 passed, 1 failed")


def test_ci_names_cargo_early_when_it_is_not_there(tmp_path: Path) -> None:
    code, lines = ci(tmp_path, cargo="exit 1")
    assert code == 0
    assert "Rust 1.95 or newer" in lines[0]


def test_a_pytest_that_dies_without_a_report_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "REPORTS", tmp_path)
    total = run.Total()
    run.pytest(total, "unit", sys.executable, "-c", "raise SystemExit(3)", "--")
    assert (total.passed, total.failed) == (0, 1)
    assert "ended with 3" in total.problems[0]


def test_a_stage_that_crashes_is_a_failure_and_not_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def crash() -> None:
        raise OSError("no space")

    total = run.Total()
    with run.stage(total, "lint"):
        crash()
    assert total.failed == 1
    assert "no space" in total.problems[0]
    assert "--- lint: " in capsys.readouterr().out


def test_the_own_interpreter_is_found_by_version() -> None:
    version = "{}.{}".format(*sys.version_info)
    found = run.find_python(version)
    assert found is not None
    assert run.version_of(found) == version
    assert run.version_of("/nonexistent") == ""


def test_long_runs_the_slow_tests_on_both_kubelets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: dict[str, str] = {}

    def note(total: run.Total, name: str, *argv: str | Path) -> None:
        ran[name] = " ".join(map(str, argv))

    @contextlib.contextmanager
    def note_aside(total: run.Total, name: str, *argv: str | Path) -> Iterator[None]:
        note(total, name, *argv)
        yield

    monkeypatch.setattr(run, "pytest", note)
    monkeypatch.setattr(run, "aside", note_aside)
    monkeypatch.setattr(run, "built", lambda total, kube="newest": True)
    run.long(run.Total())
    nodes = ["node-chaos", "node-long", "node-oldest", "node-oldest-fail", "node-page"]
    assert list(ran) == ["long", "idle", *nodes]
    page, fail = ran.pop("node-page"), ran.pop("node-oldest-fail")
    assert "DRA_KUBE=oldest" in fail
    assert "-m not slow -k test_outcomes or test_forbidden" in fail
    assert "-m not slow -k test_the_page" in page
    assert all("-m slow" in argv for argv in ran.values())
    assert all("tests/node/run.py" in argv for name, argv in ran.items() if "node" in name)
    assert ran["long"].endswith("-k not half_hour")
    assert ran["idle"].endswith("-k half_hour")
    assert ran["node-chaos"].endswith("-k chaos")
    assert ran["node-long"].endswith("-k not chaos")
    assert "DRA_KUBE=newest" in ran["node-long"]
    assert "DRA_KUBE=oldest" in ran["node-oldest"]


@pytest.mark.parametrize("body", ["assert True", "assert False"])
def test_a_run_beside_another_is_counted_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    monkeypatch.setattr(run, "REPORTS", tmp_path / "reports")
    file = tmp_path / "test_it.py"
    file.write_text(f"def test_it():\n    {body}\n")
    total = run.Total()
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file)
    with run.aside(total, "beside", *command, f"--rootdir={tmp_path}", "-c", "/dev/null"):
        assert total.passed == total.failed == 0
    good = body == "assert True"
    assert (total.passed, total.failed) == (good, not good)
    assert ("1 passed" if good else "1 failed") in capsys.readouterr().out


def test_a_node_build_that_lacks_something_is_a_loud_skip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = tmp_path / "tests" / "node" / "build.py"
    build.parent.mkdir(parents=True)
    build.write_text("import sys; print('no Go', file=sys.stderr); sys.exit(3)")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "tool", lambda name: Path(sys.executable))
    total = run.Total()
    assert not run.built(total)
    assert total.problems == ["SKIPPED  node tests: no Go"]
    assert "SKIPPED" in capsys.readouterr().out
