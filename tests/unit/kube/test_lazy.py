from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

COMMON = """
import json, sys
import kubernetes_asyncio
from kubernetes_asyncio import client, config
loaded = len([m for m in sys.modules if m.startswith("kubernetes_asyncio")])
client.ApiClient, client.Configuration
used = ["ApiClient", "Configuration", "CoreV1Api", "ResourceV1Api", "V1Pod", "V1PodList"]
where = {n: getattr(client, n).__module__ for n in used}
same = client.V1Pod is client.models.V1Pod is __import__(
    "kubernetes_asyncio.client.models.v1_pod", fromlist=["V1Pod"]).V1Pod
missing = hasattr(client, "NoSuchThing")
public = sorted(n for n in names(client) if n[0].isupper())
print(json.dumps([loaded, where, same, missing, public, rss()]))
"""

RSS = """
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
"""

PLAIN = RSS + "def names(module): return dir(module)\n" + COMMON
LAZY = (
    RSS
    + """
from pathlib import Path
from agent.kube import lazy
library = lazy.load()
def names(module): return lazy._names_in(Path(module.__file__).read_text())
"""
    + COMMON
    + "assert library.api_client is client.ApiClient\n"
)


def run(code: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def both() -> tuple[Any, Any]:
    return run(PLAIN), run(LAZY)


def test_names_and_classes_are_those_of_the_plain_import(both: tuple[Any, Any]) -> None:
    plain, lazy = both
    assert lazy[1] == plain[1]
    assert lazy[2] is plain[2] is True
    assert lazy[3] is plain[3] is False
    assert lazy[4] == plain[4]


def test_far_fewer_modules_and_less_memory(both: tuple[Any, Any]) -> None:
    plain, lazy = both
    assert lazy[0] < 40
    assert plain[0] > 500
    assert plain[5] - lazy[5] > 20 * 2**20


def test_a_load_after_the_plain_import_still_works() -> None:
    code = """
import kubernetes_asyncio
from agent.kube import lazy
library = lazy.load()
assert library.api_client is kubernetes_asyncio.client.ApiClient
assert lazy.load() == library
print("true")
"""
    assert run(code) is True
