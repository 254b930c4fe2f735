"""Makes a virtual environment from lock files, hash-checked: `venvs.py DIR [runtime|dev|proto]`.

Standard library only, and written for any Python 3.8, because it is what finds out that the
Python at hand is too old. An environment whose inputs did not change is left as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {
    "runtime": ("config/locks/requirements-build.lock", "config/locks/requirements.lock"),
    "dev": ("config/locks/requirements-dev.lock",),
    "proto": ("config/locks/requirements-proto.lock",),
}
STAMP = ".locked"


class Unusable(Exception):
    """One line for a person: what is missing and how to get it."""


def check_python() -> None:
    """Raises Unusable when this interpreter cannot carry the agent."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        found = "{}.{}".format(*sys.version_info)
        raise Unusable(
            "dra-node-agent needs Python 3.11, 3.12 or 3.13;"
            f" {sys.executable} is {found}. Install one"
            " (Debian 12 or newer: apt-get install python3 python3-venv) or name it:"
            " make PYTHON=/path/to/python3.12 ..."
        )
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        raise Unusable(
            f"{sys.executable} cannot make virtual environments: its ensurepip is missing."
            " Debian and Ubuntu: apt-get install python3-venv"
        ) from None


def key(kind: str) -> str:
    """Changes when the environment has to be made anew or completed."""
    digest = hashlib.sha256((sys.version + str(ROOT)).encode())
    for name in (*LOCKS[kind], "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def make(directory: Path, kind: str) -> None:
    """Make or complete the environment; a failed pip is a CalledProcessError."""
    stamp, wanted = directory / STAMP, key(kind)
    # A development environment can do all that a runtime one can: never step back.
    kinds = ("dev", "runtime") if kind == "runtime" else (kind,)
    lines = stamp.read_text().split() if stamp.exists() else []
    if any(key(k) in lines for k in kinds):
        return
    check_python()
    version = "{}.{}".format(*sys.version_info)
    print(f"making {directory.name} ({kind}, Python {version}) ...", flush=True)
    python = directory / "bin" / "python"
    if not _same_python(python):
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-input", "--no-warn-script-location"]
    requirements = [part for name in LOCKS[kind] for part in ("-r", str(ROOT / name))]
    # --compile: without bytecode the agent takes 30 MiB and two seconds more at each start.
    subprocess.run([*pip, "--compile", "--require-hashes", *requirements], check=True)
    if kind != "proto":
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
        compile_all = [str(python), "-m", "compileall", "-q", str(ROOT / "agent")]
        subprocess.run(compile_all, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
    stamp.write_text(wanted + "\n")


def _same_python(python: Path) -> bool:
    """Whether the environment is there, whole, and of this interpreter's version."""
    if not python.exists():
        return False
    command = [str(python), "-c", "import sys, pip; print(sys.version)"]
    with contextlib.suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() == sys.version.strip()
    return False


def main() -> int:
    """Exit code 2 and one line when this machine lacks something."""
    directory = ROOT / sys.argv[1]
    try:
        make(directory, sys.argv[2] if len(sys.argv) > 2 else "runtime")
    except Unusable as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: this command failed: {' '.join(error.cmd)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
