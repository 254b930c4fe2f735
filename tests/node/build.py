"""Prepares what the node tests run: Debian packages unpacked, two Go programs built.

Everything goes to the git-ignored `.cache/` of the repository; nothing is installed into the
system. Steps whose inputs did not change are skipped, so the tests' launcher calls this always.
DRA_KUBE=oldest prepares for a run on the oldest supported Kubernetes instead of the newest.
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
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))  # for when this file is started itself

from tests.node import registries  # noqa: E402

CACHE = HERE.parent.parent / ".cache"
DEBS = CACHE / "debs"
ROOT = DEBS / "root"
BIN = CACHE / "bin"
GO = HERE / "go"

PACKAGES = (
    "busybox-static",
    "containerd",
    "containernetworking-plugins",
    "etcd-server",
    "libseccomp2",
    "runc",
)
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

CHOICE = "DRA_KUBE"
_VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Kube:
    """A release of Kubernetes: all components in one program."""

    program: str
    version: str
    modules: str  # the pair of module files it is built with, without their endings
    gates: tuple[str, ...] = ()  # that an admin turns on to see devices' health
    notifies_again: bool = True  # a driver that did not take the notice of its registration
    health_v1: bool = True  # knows that version of the health service

    @property
    def binary(self) -> Path:
        return BIN / self.program

    @property
    def minor(self) -> str:
        """As people call it: 1.37."""
        return ".".join(self.version.removeprefix("v").split(".")[:2])


NEWEST = Kube("kube", "v1.37.2", "go")
OLDEST = Kube(
    "kube-oldest",
    "v1.34.4",
    "oldest",
    ("ResourceHealthStatus",),
    notifies_again=False,
    health_v1=False,
)
KUBES = {"newest": NEWEST, "oldest": OLDEST}
DRIVER = "driver"


class Missing(Exception):
    """Something that this program may not install itself."""


def kube() -> Kube:
    """The release that this session runs."""
    choice = os.environ.get(CHOICE) or "newest"
    if choice not in KUBES:
        raise SystemExit(f"error: {CHOICE} is {choice!r}; there are {', '.join(KUBES)}")
    return KUBES[choice]


def programs() -> tuple[str, str]:
    """The Go programs of this session."""
    return kube().program, DRIVER


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
    return parts + [name for name in programs() if not program_is_built(name)]


def _stamped(stamp: Path, key: str) -> bool:
    return stamp.exists() and stamp.read_text() == key


def _debs_key() -> str:
    return hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()


@dataclass(frozen=True)
class _Recipe:
    """What goes into one Go program."""

    folder: str  # in cmd/
    modules: str
    flags: str  # for the linker


def _recipe(program: str) -> _Recipe:
    """The driver and the programs of other tests have the newest release's version, too."""
    for release in KUBES.values():
        if release.program == program:
            return _Recipe(NEWEST.program, release.modules, _flags(release.version))
    return _Recipe(program, NEWEST.modules, _flags(NEWEST.version))


def _flags(version: str) -> str:
    """Else components call themselves v0.0.0, which version-dependent code believes."""
    major, minor, _ = version.removeprefix("v").split(".")
    return (
        f"-s -w -X {_VERSION_PACKAGE}.gitVersion={version}"
        f" -X {_VERSION_PACKAGE}.gitMajor={major} -X {_VERSION_PACKAGE}.gitMinor={minor}"
    )


def _go_key(program: str, module: Path) -> str:
    """Hash of everything that goes into one program, so that an edit of one builds one."""
    recipe = _recipe(program)
    digest = hashlib.sha256(recipe.flags.encode())
    sources = sorted((module / "cmd" / recipe.folder).glob("*.go"))
    modules = (module / f"{recipe.modules}.{ending}" for ending in ("mod", "sum"))
    for source in (*modules, *sources):
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
    registries.debian(archives, {"PATH": search_path()}, PACKAGES)
    for archive in sorted(archives.glob("*.deb")):
        _run("dpkg", "-x", str(archive), str(ROOT), cwd=archives)
    shutil.rmtree(archives)
    (DEBS / "key").write_text(_debs_key())


def program_is_built(name: str, module: Path = GO) -> bool:
    """`module` is for the tests that have a Go module of their own (tests/wire)."""
    return _stamped(BIN / f"{name}.key", _go_key(name, module))


def build_program(name: str, module: Path = GO) -> None:
    """Builds one Go program; static, so that it runs the same everywhere."""
    BIN.mkdir(parents=True, exist_ok=True)
    recipe = _recipe(name)
    what = ("-modfile", f"{recipe.modules}.mod", "-ldflags", recipe.flags, "-o", str(BIN / name))
    package = f"./cmd/{recipe.folder}"
    registries.go(module, recipe.modules, package, {"PATH": search_path()})
    command = ("go", "build", "-trimpath", *what, package)
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
            for name in programs():
                if name in todo:
                    with _timed(f"Go build of {name} (the first one takes about 8 minutes)"):
                        build_program(name)
        except registries.Unreachable as silent:
            print(f"the node tests cannot be built: {silent}", file=sys.stderr)
            return EXIT_MISSING
        except subprocess.CalledProcessError as failed:
            print(f"node tests: failed: {' '.join(failed.cmd)}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
