#!/usr/bin/env python3
"""Runs the node tests in namespaces and control groups of their own: `run.py [pytest arguments]`.

A kubelet, a containerd and their containers leave mounts, addresses, control groups and files in
fixed places. Here all of that happens in private namespaces (mounts, network, processes, control
groups) with throw-away layers over the folders they write to, so when pytest ends, by whatever
means, everything is gone and the machine is as before. Fixed ports do no harm for the same reason.

The interpreter that runs this file runs pytest too. The exit code is pytest's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
# Short, because the kubelet's socket paths end at 107 bytes.
WORK = Path("/run/dra-node")
# Set inside the namespaces, so that the tests can refuse to run anywhere else.
MARK = "DRA_NODE_NAMESPACES"
PREFIX = "dra-node-"
# Folders in which kubelet and containerd have constant paths (device plugins, links to logs).
LAYERED = ("/etc", "/var", "/opt")


def main() -> int:
    if os.environ.get(MARK) == "entering":
        return inside(sys.argv[1:])
    if not os.environ.get("DRA_NO_BUILD"):
        code = subprocess.run([sys.executable, str(HERE / "build.py")], check=False).returncode
        if code:
            return code
    return outside(sys.argv[1:])


def outside(arguments: list[str]) -> int:
    """Makes the control groups, starts the namespaces in them, and cleans up behind them."""
    sweep()
    groups = make_groups(f"{PREFIX}{os.getpid()}")
    files = [str(group / "cgroup.procs") for group in groups]
    command = (
        # The namespaces' root group is the one in which unshare is called.
        *("sh", "-c", f'for f in {shlex.join(files)}; do echo $$ > "$f"; done; exec "$@"', "sh"),
        # unshare must not outlive this process, or nobody would remove the groups.
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "-m", "-n", "-p", "-C", "-i", "--fork", "--kill-child", "--mount-proc"),
        *(sys.executable, str(Path(__file__).resolve()), *arguments),
    )
    try:
        child = subprocess.Popen(command, env={**os.environ, MARK: "entering"})
        with forwarding(child):
            code = child.wait()
    finally:
        for group in groups:
            remove_group(group)
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def forwarding(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Hands SIGTERM on; Ctrl-C reaches pytest by itself, for it is in the same process group."""

    def terminate(number: int, frame: FrameType | None) -> None:
        child.kill()  # unshare holds SIGTERM back; with its end all in the namespaces ends

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, nothing),
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def nothing(number: int, frame: FrameType | None) -> None:
    """Handles a signal that is another process's to act on.

    Unlike SIG_IGN it is not inherited by programs started from here.
    """


def hierarchies() -> Iterator[tuple[Path, Path]]:
    """The mounted control group hierarchies, each with this process's own group in it."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup":
            mounted = set(options.split(","))
            paths = (
                path for names, path in own.items() if names and set(names.split(",")) <= mounted
            )
            yield Path(folder), Path(folder) / next(paths, "/").lstrip("/")
        elif kind == "cgroup2":
            # A group with processes cannot have children with controllers: begin at the root.
            yield Path(folder), Path(folder)


def make_groups(name: str) -> list[Path]:
    groups = []
    for folder, own in hierarchies():
        group = (own if own.is_dir() else folder) / name
        group.mkdir()
        groups.append(group)
        # A new cpuset is empty and takes no process before it has been filled.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (group / setting).exists() and not (group / "cgroup.controllers").exists():
                (group / setting).write_text((group.parent / setting).read_text())
        if (group / "cgroup.controllers").exists():
            enable_controllers(group.parent)
    return groups


def enable_controllers(group: Path) -> None:
    """Passes every controller of a version 2 group on to its children."""
    for controller in (group / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def remove_group(group: Path, limit: float = 10) -> None:
    """Removes a group and those below it, as soon as the last process in them is reaped."""
    end = time.monotonic() + limit
    while group.exists():
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if time.monotonic() > end:
            print(f"node tests: cannot remove {group}", file=sys.stderr)
            return
        time.sleep(0.02)


def sweep() -> None:
    """Removes what an earlier run left that was killed without a chance to clean up."""
    for _, own in hierarchies():
        for group in own.glob(f"{PREFIX}*"):
            if not Path("/proc", group.name.removeprefix(PREFIX)).exists():
                remove_group(group)


def inside(arguments: list[str]) -> int:
    """Process 1 of the namespaces: prepares them, starts pytest and reaps orphans."""
    signal.signal(signal.SIGINT, nothing)
    prepare_mounts()
    prepare_network()
    command = (sys.executable, "-m", "pytest", str(HERE), "--timeout=300", *arguments)
    pytest = subprocess.Popen(command, env={**os.environ, MARK: "1"}, cwd=REPOSITORY)
    while True:
        # Containers' shims become children of process 1: reap whatever ends.
        process, status = os.wait()
        if process == pytest.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _call(*argv: str) -> None:
    subprocess.run(argv, check=True)


def prepare_mounts() -> None:
    _call("mount", "--make-rprivate", "/")
    remount_groups()
    _call("mount", "-t", "tmpfs", "-o", "mode=755", "dra-node", "/run")
    WORK.mkdir(mode=0o755)
    kept = Path("/run/repository")
    kept.mkdir()
    _call("mount", "--rbind", str(REPOSITORY), str(kept))
    for folder in LAYERED:
        if Path(folder).is_dir():
            layer = Path("/run/layers") / folder.strip("/")
            for part in ("upper", "work"):
                (layer / part).mkdir(parents=True)
            options = f"lowerdir={folder},upperdir={layer}/upper,workdir={layer}/work"
            _call("mount", "-t", "overlay", "-o", options, "overlay", folder)
            if REPOSITORY.is_relative_to(folder):
                # Logs of failed tests are to survive.
                _call("mount", "--rbind", str(kept), str(REPOSITORY))


def remount_groups() -> None:
    """Shows the own control group as the root, as in a container.

    The mounts of the machine would still show its whole tree, and a kubelet's `/kubepods` would be
    the machine's.
    """
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup":
            plain = {"rw", "ro", "nosuid", "nodev", "noexec", "relatime"}
            wanted = [option for option in options.split(",") if option not in plain]
            _call("umount", folder)  # a second mount at the same place is refused
            _call("mount", "-t", "cgroup", "-o", ",".join(wanted), "cgroup", folder)
        elif kind == "cgroup2":
            _call("umount", folder)
            _call("mount", "-t", "cgroup2", "cgroup2", folder)
            leaf = Path(folder) / "tests"
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text("0")
            enable_controllers(Path(folder))


def prepare_network() -> None:
    """API server and kubelet refuse to start without an address and a default route."""
    ip = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if ip is None:
        raise SystemExit("node tests: `ip` is missing (apt-get install iproute2)")
    _call(ip, "link", "set", "lo", "up")
    _call(ip, "link", "add", "nodebr", "type", "bridge")
    _call(ip, "address", "add", "10.221.0.1/24", "dev", "nodebr")
    _call(ip, "link", "set", "nodebr", "up")
    _call(ip, "route", "add", "default", "via", "10.221.0.254")


if __name__ == "__main__":
    sys.exit(main())
