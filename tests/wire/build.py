"""Makes the peers of the wire tests: a Go program, a Rust program, an environment with pydra.

Everything goes to the git-ignored `.cache/`; what did not change is left as it is. A cold build
takes about two minutes on two cores. What cannot be made here is left out: `missing()` says why.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from tests.node import build as node_build  # noqa: E402
from tests.node import registries  # noqa: E402

CACHE = node_build.CACHE
GO_PROGRAM = "wire"
GO_BINARY = node_build.BIN / GO_PROGRAM
RUST = HERE / "rust"
RUST_BINARY = node_build.BIN / "wire-driver"
PYDRA_LOCK = HERE / "requirements-pydra.txt"
PYDRA = CACHE / f"pydra-{sys.version_info.major}.{sys.version_info.minor}"
PYDRA_PYTHON = PYDRA / "bin" / "python"


def search_path() -> str:
    """PATH with the places where Go and cargo usually are."""
    return os.pathsep.join((node_build.search_path(), str(Path.home() / ".cargo" / "bin")))


def missing() -> dict[str, str]:
    """Peers that cannot be made here, and what would have to be installed."""
    needs = {
        "go": (("go", "version"), "Go 1.26 or newer (https://go.dev/dl)"),
        "tonic": (("cargo", "--version"), "Rust 1.95 or newer with cargo (https://rustup.rs)"),
    }
    lacking = {
        peer: f"needs {hint}" for peer, (command, hint) in needs.items() if not _works(*command)
    }
    return _silent | lacking


_silent: dict[str, str] = {}  # peers whose registry did not answer when they were to be made


@functools.cache
def _works(*command: str) -> bool:
    """True when the tool is there and runs: rustup's cargo does not without a toolchain."""
    environment = {**os.environ, "PATH": search_path()}
    try:
        return (
            subprocess.run(command, env=environment, capture_output=True, check=False).returncode
            == 0
        )
    except OSError:
        return False


def outdated() -> list[str]:
    """Peers that a run would have to make."""
    found = []
    if not node_build.program_is_built(GO_PROGRAM, HERE / "go"):
        found.append("go")
    if not _fresh(RUST_BINARY.with_suffix(".key"), _rust_key()):
        found.append("tonic")
    if not _fresh(PYDRA / "key", _pydra_key()):
        found.append("pydra")
    return [peer for peer in found if peer not in missing()]


def _fresh(stamp: Path, key: str) -> bool:
    return stamp.exists() and stamp.read_text() == key


def _digest(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _rust_key() -> str:
    return _digest(RUST / "Cargo.toml", RUST / "Cargo.lock", *sorted((RUST / "src").glob("*.rs")))


def _pydra_key() -> str:
    return sys.version + _digest(PYDRA_LOCK)


def _run(*argv: str | Path, **env: str) -> None:
    environment = {**os.environ, "PATH": search_path(), **env}
    command = [str(part) for part in argv]
    subprocess.run(command, cwd=RUST, env=environment, check=True, stdout=sys.stderr)


def _go() -> None:
    node_build.build_program(GO_PROGRAM, HERE / "go")


def _rust() -> None:
    registries.crates(RUST, {"PATH": search_path()})
    target = CACHE / "wire-rust"
    _run("cargo", "build", "--locked", "--quiet", CARGO_TARGET_DIR=str(target))
    node_build.BIN.mkdir(parents=True, exist_ok=True)
    shutil.copy2(target / "debug" / "wire-driver", RUST_BINARY)
    RUST_BINARY.with_suffix(".key").write_text(_rust_key())


def _pydra() -> None:
    shutil.rmtree(PYDRA, ignore_errors=True)
    _run(sys.executable, "-m", "venv", PYDRA)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
    try:
        _run(PYDRA_PYTHON, *pip, "--require-hashes", "-r", PYDRA_LOCK)
    except subprocess.CalledProcessError:
        registries.pypi(PYDRA_PYTHON, PYDRA)
        raise
    (PYDRA / "key").write_text(_pydra_key())


_MAKERS: dict[str, Callable[[], None]] = {"go": _go, "tonic": _rust, "pydra": _pydra}


def make() -> None:
    """Make what is outdated, as far as registries answer; a failed command is an error."""
    with node_build.locked():
        for peer in outdated():
            print(f"wire tests: making {peer} …", file=sys.stderr, flush=True)
            began = time.monotonic()
            try:
                _MAKERS[peer]()
            except registries.Unreachable as silent:
                _silent[peer] = str(silent)
                print(f"wire tests: no {peer} peer: {silent}", file=sys.stderr, flush=True)
                continue
            seconds = time.monotonic() - began
            print(f"wire tests: {peer}: {seconds:.1f} s", file=sys.stderr, flush=True)


def main() -> int:
    """Exit code 1 when a peer could not be made."""
    for peer, why in missing().items():
        print(f"wire tests: no {peer} peer: {why}", file=sys.stderr)
    try:
        make()
    except subprocess.CalledProcessError as failed:
        print(f"wire tests: failed: {' '.join(failed.cmd)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
