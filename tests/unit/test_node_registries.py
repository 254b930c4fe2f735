"""tests/node/registries.py: a registry that gives no answer, told from a build that is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.node import build, registries
from tests.wire import build as wire_build


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path}:/usr/bin:/bin"}


def client(folder: Path, name: str, script: str) -> None:
    """A stand-in for a registry's client."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_go_with_all_modules_at_hand_asks_no_proxy(tmp_path: Path, env: dict[str, str]) -> None:
    client(tmp_path, "go", '[ "$GOPROXY" = off ]')
    registries.go(tmp_path, "go", "./cmd/x", env)


def test_go_goes_on_when_the_proxy_answers(tmp_path: Path, env: dict[str, str]) -> None:
    client(tmp_path, "go", '[ "$GOPROXY" != off ]')
    registries.go(tmp_path, "go", "./cmd/x", env)


def test_a_proxy_that_is_silent_is_said_in_one_line(tmp_path: Path, env: dict[str, str]) -> None:
    client(tmp_path, "go", "printf 'dial tcp:\\nrefused\\n' >&2; exit 1")
    with pytest.raises(registries.Unreachable, match=r"set GOPROXY .*: dial tcp: refused$"):
        registries.go(tmp_path, "go", "./cmd/x", env)


def test_a_proxy_that_hangs_is_silent_too(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "LIMIT", 0.1)
    client(tmp_path, "go", '[ "$GOPROXY" = off ] && exit 1; exec sleep 60')
    with pytest.raises(registries.Unreachable, match="no answer to `go`"):
        registries.go(tmp_path, "go", "./cmd/x", env)


def test_a_lock_file_that_does_not_fit_is_no_silence(tmp_path: Path, env: dict[str, str]) -> None:
    client(tmp_path, "cargo", "echo 'needs to be updated but --locked was passed' >&2; exit 101")
    registries.crates(tmp_path, env)
    client(tmp_path, "cargo", "echo 'failed to download from registry' >&2; exit 101")
    with pytest.raises(registries.Unreachable, match="failed to download"):
        registries.crates(tmp_path, env)


def test_the_python_index_is_asked_by_pip(tmp_path: Path) -> None:
    client(tmp_path, "python", "exit 1")
    with pytest.raises(registries.Unreachable, match="PIP_INDEX_URL"):
        registries.pypi(tmp_path / "python", tmp_path)
    client(tmp_path, "python", "exit 0")
    registries.pypi(tmp_path / "python", tmp_path)


@pytest.mark.parametrize(
    ("works", "error"),
    [
        ("*", None),
        ("*download*", None),
        ("*update*", subprocess.CalledProcessError),  # the archive does not have it
        ("-", registries.Unreachable),
    ],
)
def test_packages_of_debian(
    tmp_path: Path,
    env: dict[str, str],
    works: str,
    error: type[Exception] | None,
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = f'case "$*" in {works}) exit 0;; esac; echo "E: no way" >&2; exit 100'
    client(tmp_path, "apt-get", script)
    if error is None:
        registries.debian(tmp_path, env, ("runc",))
    else:
        with pytest.raises(error):
            registries.debian(tmp_path, env, ("runc",))


def test_the_build_of_the_node_tests_lacks_something_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    client(tmp_path, "go", "echo refused >&2; exit 1")
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setattr(build, "BIN", tmp_path / "bin")
    monkeypatch.setattr(build, "check_tools", lambda: None)
    monkeypatch.setattr(build, "outdated", lambda: ["kube"])
    monkeypatch.setattr(build, "search_path", lambda: f"{tmp_path}:/usr/bin:/bin")
    assert build.main() == build.EXIT_MISSING
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("the node tests cannot be built: the Go module proxy does not")


def test_a_peer_of_the_wire_tests_is_missing_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def silent() -> None:
        raise registries.Unreachable("the crates registry does not answer: refused")

    monkeypatch.setattr(wire_build, "_silent", {})
    monkeypatch.setattr(wire_build, "_works", lambda *command: True)
    monkeypatch.setattr(wire_build, "_MAKERS", {"tonic": silent})
    monkeypatch.setattr(wire_build, "outdated", lambda: ["tonic"])
    monkeypatch.setattr(build, "CACHE", tmp_path)
    wire_build.make()
    assert list(wire_build.missing()) == ["tonic"]
    assert "no tonic peer: the crates registry" in capfd.readouterr().err
