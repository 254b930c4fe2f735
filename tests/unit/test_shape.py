"""The limits that keep the code small enough to hold in a head, and the process in memory."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
AGENT = ROOT / "agent"

MODULE_LINES = 250
FUNCTION_LINES = 60
PARAMETERS = 6  # besides self or cls
IMPORT_RSS_MIB = 50  # everything but kubernetes_asyncio, which is imported where reporting is on

NO_TEST_FILE = {
    "__main__.py": "two lines; the process tests start the agent through it",
    "names.py": "constants; tests/unit/test_names.py checks them",
}
LONGER_MODULES: dict[str, str] = {}
WIDER_FUNCTIONS = {
    "agent/observe/otel.py:_Spread.should_sample": "overrides the SDK's method",
}


def sources() -> list[Path]:
    return sorted(
        path
        for path in AGENT.rglob("*.py")
        if "pb" not in path.relative_to(AGENT).parts and "data" not in path.relative_to(AGENT).parts
    )


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    def walk(
        node: ast.AST, prefix: str
    ) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, child
            yield from walk(child, name)

    where = path.relative_to(ROOT)
    for name, function in walk(ast.parse(path.read_text()), ""):
        yield f"{where}:{name}", function


def test_modules_are_short() -> None:
    sizes = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources()}
    too_long = {name: n for name, n in sizes.items() if n > MODULE_LINES}
    assert {n: s for n, s in too_long.items() if n not in LONGER_MODULES} == {}
    assert set(LONGER_MODULES) <= set(too_long), "an exemption that is not needed any more"


def test_functions_are_short() -> None:
    found = {}
    for path in sources():
        for name, function in functions(path):
            size = (function.end_lineno or function.lineno) - function.lineno + 1
            if size > FUNCTION_LINES:
                found[name] = size
    assert found == {}


def test_functions_take_few_parameters() -> None:
    found = {}
    for path in sources():
        for name, function in functions(path):
            arguments = function.args
            names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
            own = 1 if names[:1] in (["self"], ["cls"]) else 0
            count = len(names) - own + len(arguments.kwonlyargs)
            if count > PARAMETERS:
                found[name] = count
    assert {n: c for n, c in found.items() if n not in WIDER_FUNCTIONS} == {}
    assert set(WIDER_FUNCTIONS) <= set(found), "an exemption that is not needed any more"


def test_each_module_has_its_test_file() -> None:
    missing = []
    for path in sources():
        relative = path.relative_to(AGENT)
        if path.name == "__init__.py" or str(relative) in NO_TEST_FILE:
            continue
        test = ROOT / "tests" / "unit" / relative.parent / f"test_{path.name}"
        if not test.exists():
            missing.append(f"{relative} wants {test.relative_to(ROOT)}")
    assert missing == []


def import_facts(module: str) -> tuple[float, list[str]]:
    """MiB resident after `import module` in a fresh process, and what must not be there."""
    code = (
        f"import sys, {module}\n"
        "pages = int(open('/proc/self/statm').read().split()[1])\n"
        "import resource\n"
        "heavy = ('kubernetes_asyncio', 'opentelemetry', 'requests', 'grpc')\n"
        "print(pages * resource.getpagesize() / 2**20, *[m for m in heavy if m in sys.modules])"
    )
    # A first run writes bytecode where it may: the figure is that of an installed agent.
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin"},
        )
    size, *loaded = done.stdout.split()
    return float(size), loaded


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_program_is_small_in_memory() -> None:
    size, loaded = import_facts("agent.app")
    assert size <= IMPORT_RSS_MIB
    assert "kubernetes_asyncio" not in loaded, "its import blocks for 170-480 ms and costs 11 MiB"
    assert "opentelemetry" not in loaded, "only where an endpoint is set"
    assert "grpc" not in loaded
