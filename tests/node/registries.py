"""Whether the places that packages come from answer, asked through their own clients.

A machine without a way to them skips what it cannot build, as one without Go does. Only what is
not in a local cache needs them, so all of these look there first. Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT = 30.0  # seconds for an answer; a mirror that has to fetch first takes several
GO_MODULE = "google.golang.org/protobuf"  # any module that every build here needs
_WORDS = 240  # the last characters of a client's own words


class Unreachable(Exception):
    """A registry gives no answer: what to do is in the text, one line."""


def go(folder: Path, modules: str, package: str, env: Mapping[str, str]) -> None:
    """The Go module proxy, for a package of the module in `folder`."""
    flags = {"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0", **env}
    listed = ("go", "list", "-deps", "-modfile", f"{modules}.mod", package)
    if _ask(listed, folder, {**flags, "GOPROXY": "off"}) is None:
        return
    said = _ask(("go", "list", "-m", "-versions", GO_MODULE), folder, flags, LIMIT)
    if said is not None:
        raise Unreachable(
            f"the Go module proxy does not answer; set GOPROXY to one that does: {said}"
        )


def crates(folder: Path, env: Mapping[str, str]) -> None:
    """The crates registry, for the package in `folder`; downloads what the build needs."""
    retries = {"CARGO_NET_RETRY": "1", "CARGO_HTTP_TIMEOUT": str(int(LIMIT))}
    said = _ask(("cargo", "fetch", "--locked"), folder, {**retries, **env})
    # A lock file that does not fit is our mistake; the build says so.
    if said is not None and "--locked" not in said:
        raise Unreachable(
            "the crates registry does not answer; name a mirror in cargo's config ([source]): "
            f"{said}"
        )


def pypi(python: Path, folder: Path) -> None:
    """The Python package index. Ask after an install failed: pip has no look at its cache."""
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--retries", "1")
    said = _ask((*pip, "index", "versions", "pip"), folder, {}, LIMIT)
    if said is not None:
        raise Unreachable(
            f"the Python package index does not answer; set PIP_INDEX_URL to one that does: {said}"
        )


def debian(folder: Path, env: Mapping[str, str], packages: Sequence[str]) -> None:
    """Downloads packages of the Debian archive into `folder`."""
    waits = [f"-oAcquire::{kind}::Timeout={LIMIT:.0f}" for kind in ("http", "https")]
    # apt's own user can seldom read a work tree; downloading as root avoids its warning.
    apt = ("apt-get", "-q", *waits, "-oAcquire::Retries=1", "-oAPT::Sandbox::User=root")
    if _ask((*apt, "download", *packages), folder, env) is None:
        return
    # There are no lists yet, or they are older than the archive: what they name is gone. Without
    # the mode a list that could not be fetched is but a warning.
    silent = _ask((*apt, "-oAPT::Update::Error-Mode=any", "update"), folder, env)
    said = _ask((*apt, "download", *packages), folder, env)
    if said is None:
        return
    if silent is not None:
        raise Unreachable(
            f"the Debian archive does not answer; see /etc/apt/sources.list*: {silent}"
        )
    print(said, file=sys.stderr)
    raise subprocess.CalledProcessError(1, (*apt, "download", *packages))


def _ask(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], limit: float | None = None
) -> str | None:
    """None when the command succeeded, else its last words."""
    environment = {**os.environ, **env}
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            stdout=sys.stderr if argv[0] == "apt-get" else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"no answer to `{argv[0]}` within {LIMIT:.0f} s"
    if done.returncode == 0:
        return None
    said = " ".join(done.stderr.split()) or f"{argv[0]} ended with {done.returncode}"
    return said if len(said) <= _WORDS else f"…{said[-_WORDS:]}"
