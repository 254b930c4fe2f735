"""Prepares what the node tests run: Debian packages unpacked, two Go programs built.

Everything goes to the git-ignored `.cache/` of the repository; nothing is installed into the
system. Steps whose inputs did not change are skipped, so the tests' launcher calls this always.
Only the standard library is used: it must work before any virtual environment exists.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache"
DEBS = CACHE / "debs"
ROOT = DEBS / "root"
BIN = CACHE / "bin"
GO = HERE / "go"

VERSION = "v1.37.2"
PACKAGES = (
    "busybox-static",
    "containerd",
    "containernetworking-plugins",
    "etcd-server",
    "libseccomp2",
    "runc",
)
PROGRAMS = ("kube", "driver")
TOOLS = {
    "go": "Go 1.26 or newer (https://go.dev/dl)",
    "apt-get": "a Debian or Ubuntu system",
    "dpkg": "a Debian or Ubuntu system",
    "openssl": "apt-get install openssl",
    "ip": "apt-get install iproute2",
    "unshare": "apt-get install util-linux",
    "setpriv": "apt-get install util-linux",
}
EXIT_MISSING = 3

_VERSION_PACKAGE = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = VERSION.removeprefix("v").split(".")
# Without these the components call themselves v0.0.0, which version-dependent code believes.
LDFLAGS = (
    f"-s -w -X {_VERSION_PACKAGE}.gitVersion={VERSION}"
    f" -X {_VERSION_PACKAGE}.gitMajor={_MAJOR} -X {_VERSION_PACKAGE}.gitMinor={_MINOR}"
)


class Missing(Exception):
    """Something that this program may not install itself."""


def search_path() -> str:
    """PATH with the places where Go and system tools usually are, for minimal environments."""
    extra = ("/usr/local/go/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
    return os.pathsep.join((os.environ.get("PATH", "/usr/bin:/bin"), *extra))


def check_tools() -> None:
    """Fails with the whole list at once, so that nobody has to run this once per missing tool."""
    missing = [
        f"{tool} ({hint})"
        for tool, hint in TOOLS.items()
        if shutil.which(tool, path=search_path()) is None
    ]
    if os.geteuid() != 0:
        missing.append("root (namespaces, mounts and containers: run with sudo)")
    if missing:
        raise Missing("the node tests need " + ", ".join(missing))


def outdated() -> list[str]:
    """Names the parts that a run would have to make; empty when the tests can start."""
    parts = [] if _stamped(DEBS / "key", _debs_key()) else ["debian packages"]
    return parts + [name for name in PROGRAMS if not _stamped(BIN / f"{name}.key", _go_key(name))]


def _stamped(stamp: Path, key: str) -> bool:
    return stamp.exists() and stamp.read_text() == key


def _debs_key() -> str:
    return hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()


def _go_key(program: str, module: Path = GO) -> str:
    """Hash of everything that goes into one program, so that an edit of one builds one."""
    digest = hashlib.sha256(LDFLAGS.encode())
    sources = sorted((module / "cmd" / program).glob("*.go"))
    for source in (module / "go.mod", module / "go.sum", *sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def _run(*argv: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    environment = {**os.environ, "PATH": search_path(), **(env or {})}
    subprocess.run(argv, cwd=cwd, env=environment, check=True, stdout=sys.stderr)


def prepare_debs() -> None:
    """Downloads and unpacks the packages; `dpkg -x` runs no maintainer script."""
    archives = DEBS / "archives"
    for folder in (archives, ROOT):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    if not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
        _run("apt-get", "-q", "update", cwd=archives)
    # apt's own user can seldom read a work tree; downloading as root avoids its warning.
    sandbox = "APT::Sandbox::User=root"
    try:
        _run("apt-get", "-q", "-o", sandbox, "download", *PACKAGES, cwd=archives)
    except subprocess.CalledProcessError:
        # The lists are older than the archive: what they name is no longer there.
        _run("apt-get", "-q", "update", cwd=archives)
        _run("apt-get", "-q", "-o", sandbox, "download", *PACKAGES, cwd=archives)
    for archive in sorted(archives.glob("*.deb")):
        _run("dpkg", "-x", str(archive), str(ROOT), cwd=archives)
    shutil.rmtree(archives)
    (DEBS / "key").write_text(_debs_key())


def program_is_built(name: str, module: Path) -> bool:
    """For the tests that have a Go module of their own (tests/wire)."""
    return _stamped(BIN / f"{name}.key", _go_key(name, module))


def build_program(name: str, module: Path = GO) -> None:
    """Builds one Go program; static, so that it runs the same everywhere."""
    BIN.mkdir(parents=True, exist_ok=True)
    output = BIN / name
    command = ("go", "build", "-trimpath", "-ldflags", LDFLAGS, "-o", str(output), f"./cmd/{name}")
    _run(*command, cwd=module, env={"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"})
    (BIN / f"{name}.key").write_text(_go_key(name, module))


@contextlib.contextmanager
def _timed(what: str) -> Iterator[None]:
    print(f"node tests: {what} …", flush=True)
    began = time.monotonic()
    yield
    print(f"node tests: {what}: {time.monotonic() - began:.1f} s", flush=True)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Two runs at once would unpack over each other."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    try:
        check_tools()
    except Missing as missing:
        print(missing, file=sys.stderr)
        return EXIT_MISSING
    with locked():
        todo = outdated()
        if not todo:
            print("node tests: everything is built")
        try:
            if "debian packages" in todo:
                with _timed("Debian packages"):
                    prepare_debs()
            for name in PROGRAMS:
                if name in todo:
                    with _timed(f"Go build of {name} (the first one takes about 8 minutes)"):
                        build_program(name)
        except subprocess.CalledProcessError as failed:
            print(f"node tests: failed: {' '.join(failed.cmd)}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
