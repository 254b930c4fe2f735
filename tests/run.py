"""`make test`: every check in order, how long each took, and one summary line at the end.

    run.py [lint] [drift] [unit] [node] [long]

Without words: all but `long`. What cannot run here is skipped loudly, with what to install; with
DRA_NO_SKIP=1 a skip is a failure. Standard library only: it makes the environments it needs.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
REPORTS = ROOT / ".cache" / "reports"
SUMMARY = "summary.txt"  # in REPORTS: the last line, for callers under which it is not the last
VERSIONS = ("3.11", "3.13")  # the oldest and the newest that are supported
EXIT_MISSING = 3  # of tests/node/build.py

NO_SKIP = os.environ.get("DRA_NO_SKIP", "") not in ("", "0")


@dataclass
class Total:
    """What happened so far."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)
    times: list[tuple[str, float]] = field(default_factory=list)

    def fail(self, what: str) -> None:
        """A check that is not a test went wrong."""
        self.failed += 1
        self.problems.append(f"FAILED   {what}")

    def skip(self, what: str, why: str) -> None:
        """A stage cannot run here."""
        banner(f"SKIPPED: {what}: {why}")
        self.skipped += 1
        self.problems.append(f"SKIPPED  {what}: {why}")

    def note(self, text: str) -> None:
        """Something less than a skip that a reader should know."""
        banner(f"NOTE: {text}")
        self.problems.append(f"NOTE     {text}")

    def line(self) -> str:
        """The runner's summary."""
        text = f"{self.passed} passed, {self.failed} failed"
        return text + (f", {self.skipped} skipped" if self.skipped else "")


def banner(text: str) -> None:
    """A heading that stands out from the tools' output."""
    print(f"\n=== {text}", flush=True)


@contextlib.contextmanager
def stage(total: Total, name: str) -> Iterator[None]:
    """Time a stage; a crash of the runner itself is one more failure, not the end."""
    banner(name)
    began = time.monotonic()
    try:
        yield
    except Exception as error:  # noqa: BLE001  the next stages still have something to say
        total.fail(f"{name}: {type(error).__name__}: {error}")
    seconds = time.monotonic() - began
    total.times.append((name, seconds))
    print(f"--- {name}: {seconds:.1f} s", flush=True)


def run(*argv: str | Path, env: dict[str, str] | None = None) -> int:
    """One command in the repository; its exit code."""
    command = [str(part) for part in argv]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(env or {})}, check=False
    ).returncode


def check(total: Total, name: str, *argv: str | Path) -> bool:
    """One command that must succeed."""
    if run(*argv) == 0:
        return True
    total.fail(name)
    return False


def tool(name: str) -> Path:
    """A program of the development environment."""
    return VENV / "bin" / name


def lint(total: Total) -> None:
    """Style, imports, types."""
    with stage(total, "lint"):
        check(total, "ruff check", tool("ruff"), "check", ".")
        check(total, "ruff format", tool("ruff"), "format", "--check", ".")
        check(total, "import-linter", tool("lint-imports"), "--no-logo")
    with stage(total, "types"):
        check(total, "mypy", tool("mypy"), "agent", "tests", "protos")


def drift(total: Total) -> None:
    """Files that are generated are as their sources would make them now."""
    with stage(total, "generated files"), tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        if run(sys.executable, "tests/venvs.py", ".venv-proto", "proto") == 0:
            (fresh / "pb").mkdir()
            python = ROOT / ".venv-proto" / "bin" / "python"
            if check(total, "protoc", python, "protos/generate.py", fresh / "pb"):
                same(total, fresh / "pb", ROOT / "agent" / "pb", "make proto")
        else:
            total.fail("environment for protoc")
        schema = fresh / "agent.schema.json"
        with schema.open("w") as file:
            code = subprocess.run(
                [tool("dra-agent"), "schema"], stdout=file, cwd=ROOT, check=False
            ).returncode
        if code:
            total.fail("dra-agent schema")
        else:
            same(total, schema, ROOT / "config" / schema.name, "make schema")


def same(total: Total, fresh: Path, kept: Path, target: str) -> None:
    """Compare a file, or all files of a folder, with the one in the repository."""
    pairs = [(fresh, kept)]
    if fresh.is_dir():
        pairs = [(path, kept / path.name) for path in sorted(fresh.glob("*.py*"))]
    for new, old in pairs:
        if not old.exists() or not filecmp.cmp(new, old, shallow=False):
            total.fail(f"{old.relative_to(ROOT)} is not what its source makes: {target}")


def interpreters(total: Total) -> Iterator[tuple[str, Path]]:
    """The environment's own Python first, then each other supported one that is present."""
    own = version_of(tool("python"))
    yield own, tool("python")
    for version in VERSIONS:
        if version == own:
            continue
        found = find_python(version)
        folder = f".venv-{version}"
        if found is None:
            total.note(f"no python{version} on PATH (nor of pyenv or uv): not tested under it")
        elif run(found, "tests/venvs.py", folder, "dev") == 0:
            yield version, ROOT / folder / "bin" / "python"
        else:
            total.fail(f"environment for Python {version}")


def find_python(version: str) -> str | None:
    """On PATH, else where pyenv and uv keep theirs."""
    roots = [Path(sys.base_prefix).parent, Path.home() / ".pyenv" / "versions"]
    roots += [Path(root) / "versions" for root in filter(None, [os.environ.get("PYENV_ROOT")])]
    patterns = [(root, f"{version}.*/bin/python{version}") for root in roots]
    uv = Path.home() / ".local" / "share" / "uv" / "python"
    patterns.append((uv, f"cpython-{version}.*/bin/python{version}"))
    found = [shutil.which(f"python{version}")]
    found += [str(path) for root, pattern in patterns for path in sorted(root.glob(pattern))]
    return next((path for path in found if path and version_of(path) == version), None)


def version_of(python: str | Path) -> str:
    """`3.11`; empty when it does not run (a pyenv shim of another version does not)."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    with contextlib.suppress(OSError):
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        return done.stdout.strip()
    return ""


def unit(total: Total) -> None:
    """Unit and real-process tests on each version."""
    with stage(total, "environments"):
        versions = list(interpreters(total))
    for version, python in versions:
        with stage(total, f"tests under Python {version}"):
            pytest(total, f"unit-{version}", python, "-m", "pytest", "-q", "-m", "not slow")


def pytest(total: Total, name: str, *argv: str | Path) -> None:
    """A pytest run, counted from its own report."""
    counted(total, name, run(*argv, f"--junitxml={report_of(name)}"))


@contextlib.contextmanager
def aside(total: Total, name: str, *argv: str | Path) -> Iterator[None]:
    """A pytest run beside what the block does; its output is shown when both have ended."""
    command = [*map(str, argv), f"--junitxml={report_of(name)}"]
    output = REPORTS / f"{name}.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield
        code = process.wait()
    finally:
        process.terminate()
    print(output.read_text(errors="replace"), flush=True)
    counted(total, name, code)


def report_of(name: str) -> Path:
    """Where pytest is to write its report; an old one is removed."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    return report


def counted(total: Total, name: str, code: int) -> None:
    """Add what a pytest run that ended with `code` has reported."""
    report = REPORTS / f"{name}.xml"
    before = total.failed
    if report.exists():
        count(total, ET.parse(report).getroot(), name)
    if code != 0 and total.failed == before:
        total.fail(f"{name}: pytest ended with {code}")


def count(total: Total, root: ET.Element, name: str) -> None:
    """Add the test cases of a junit report."""
    for case in root.iter("testcase"):
        label = f"{name}: {case.get('classname')}::{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            total.fail(label)
        elif skipped is not None:
            total.skipped += 1
            total.problems.append(f"SKIPPED  {label}: {skipped.get('message')}")
        else:
            total.passed += 1


def node(total: Total) -> None:
    """The agent on a real kubelet; needs root, Go and a Debian-like system."""
    if built(total):
        with stage(total, "node tests"):
            pytest(total, "node", *on_kubelet("not slow"))


def built(total: Total, kube: str = "newest") -> bool:
    """Whether the node tests can run; what keeps them from it is said."""
    command = [tool("python"), ROOT / "tests" / "node" / "build.py"]
    env = {**os.environ, "DRA_KUBE": kube}
    with stage(total, f"node tests: build for the {kube} kubelet"):
        done = subprocess.run(
            command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True, check=False
        )
        sys.stderr.write(done.stderr)
    if done.returncode == EXIT_MISSING:
        lines = done.stderr.strip().splitlines()
        total.skip("node tests", lines[-1] if lines else "something is missing")
    elif done.returncode:
        total.fail("node tests: build")
    return done.returncode == 0


def on_kubelet(marked: str, *more: str, kube: str = "newest") -> list[str | Path]:
    """The command for the node tests with a mark."""
    runner = ROOT / "tests" / "node" / "run.py"
    return ["env", f"DRA_KUBE={kube}", tool("python"), runner, "-m", marked, *more]


def long(total: Total) -> None:
    """Tests marked slow. Half-hours of idleness and of chaos go by beside those on a kubelet."""
    newest, oldest = built(total), built(total, "oldest")
    processes = (tool("python"), "-m", "pytest", "-q", "-m", "slow", "--timeout=0", "-k")
    with stage(total, "long models"):
        pytest(total, "long", *processes, "not half_hour")
    with stage(total, "long tests"), contextlib.ExitStack() as beside:
        beside.enter_context(aside(total, "idle", *processes, "half_hour"))
        if newest:
            beside.enter_context(aside(total, "node-chaos", *on_kubelet("slow", "-k", "chaos")))
            pytest(total, "node-long", *on_kubelet("slow", "-k", "not chaos"))
        if oldest:
            same = ("-k", "test_same_as_without")
            pytest(total, "node-oldest", *on_kubelet("slow", *same, kube="oldest"))
            # Pods are failed only on versions for which these pass (outcome.kubeletVersions), and
            # the API server has to accept the manifests.
            these = ("-k", "test_outcomes or test_forbidden or test_fences")
            pytest(total, "node-oldest-fail", *on_kubelet("not slow", *these, kube="oldest"))
    if newest and oldest:
        with stage(total, "page of the comparison"):
            # Last, for it shows what all runs saw.
            pytest(total, "node-page", *on_kubelet("not slow", "-k", "test_the_page_has_the_shape"))


STAGES: dict[str, Callable[[Total], None]] = {
    "lint": lint,
    "drift": drift,
    "unit": unit,
    "node": node,
    "long": long,
}


def finish(total: Total) -> int:
    """Say everything once more, shortest last; the exit code."""
    banner("times")
    for name, seconds in total.times:
        print(f"{seconds:8.1f} s  {name}")
    if NO_SKIP and total.skipped:
        total.fail(f"{total.skipped} skipped, and skips are forbidden (DRA_NO_SKIP)")
    if total.problems:
        banner("to know")
        print("\n".join(total.problems))
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / SUMMARY).write_text(f"{total.line()}\n")
    print(f"\n{total.line()}", flush=True)
    return 1 if total.failed else 0


def main() -> int:
    """Exit code 1 when anything failed, 2 for a word that is no stage."""
    wanted = sys.argv[1:] or [name for name in STAGES if name != "long"]
    unknown = [name for name in wanted if name not in STAGES]
    if unknown:
        print(f"error: no such stage: {' '.join(unknown)}; there are {' '.join(STAGES)}")
        return 2
    total = Total()
    began = time.monotonic()
    with stage(total, "environment"):
        if run(sys.executable, "tests/venvs.py", ".venv", "dev"):
            total.fail("environment .venv")
    if total.failed:
        return finish(total)
    for name in wanted:
        STAGES[name](total)
    total.times.append(("all", time.monotonic() - began))
    return finish(total)


if __name__ == "__main__":
    sys.exit(main())
