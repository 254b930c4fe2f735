"""tests/run.py: what it counts and when it fails."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
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
    forbidden: bool,
    code: int,
    line: str,
) -> None:
    monkeypatch.setattr(run, "NO_SKIP", forbidden)
    total = run.Total(passed=3)
    total.skip("node tests", "no Go")
    assert run.finish(total) == code
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last == (line or "3 passed, 1 failed, 1 skipped")


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
