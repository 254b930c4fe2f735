"""containerd from unpacked Debian packages: its configuration, network and images."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from .images import write_image
from .objects import IMAGE, PAUSE_IMAGE
from .process import Process
from .waiting import wait_for

# restrict_oom_score_adj: without CAP_SYS_RESOURCE runc dies on a negative oom_score_adj.
_CONFIG = """\
version = 2
root = "{dir}/data"
state = "{dir}/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", \
"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{dir}/c.sock"
[ttrpc]
  address = "{dir}/t.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["{dir}/cdi"]
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{root}/usr/lib/cni"
    conf_dir = "{dir}/cni"
"""


def tool_environment(root: Path) -> dict[str, str]:
    """A small environment in which the unpacked binaries find each other and their libraries."""
    folders = [str(root / folder) for folder in ("usr/bin", "usr/sbin", "bin", "sbin")]
    libraries = sorted({str(found.parent) for found in root.glob("**/lib*.so*")})
    return {
        "PATH": ":".join((*folders, os.environ.get("PATH", "/usr/bin:/bin"), "/usr/sbin:/sbin")),
        "LD_LIBRARY_PATH": ":".join(libraries),
        "HOME": "/root",
    }


class Runtime:
    """One containerd in a folder of its own."""

    def __init__(self, folder: Path, root: Path, log: Path) -> None:
        self.folder = folder
        self.root = root
        self.socket = folder / "c.sock"
        self.process = Process(
            "containerd",
            (root / "usr/bin/containerd", "-c", folder / "config.toml"),
            log=log,
            env=tool_environment(root),
        )

    def start(self) -> None:
        """Starts containerd without waiting, so that other components start meanwhile."""
        (self.folder / "cni").mkdir(parents=True)
        config = _CONFIG.format(dir=self.folder, root=self.root, pause=PAUSE_IMAGE)
        (self.folder / "config.toml").write_text(config)
        # Leases of host-local stay in the system's folder unless told otherwise.
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": "10.222.0.0/16"}]],
            "dataDir": str(self.folder / "leases"),
        }
        bridge = {"type": "bridge", "bridge": "podbr", "isGateway": False, "ipam": ipam}
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (self.folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))
        self.process.start()

    def load_images(self) -> None:
        busybox = self.root / "bin/busybox"
        images = {PAUSE_IMAGE: ["/bin/sleep", "infinity"], IMAGE: ["/bin/sleep", "3600"]}
        wait_for(self._listening, 20, "containerd")
        for number, (name, command) in enumerate(images.items()):
            archive = self.folder / f"image-{number}.tar"
            write_image(archive, name, command, busybox)
            self.ctr("images", "import", str(archive))

    def _listening(self) -> bool:
        self.process.expect_running()
        return self.socket.exists()

    def ctr(self, *arguments: str) -> str:
        """Runs containerd's command line in the kubelet's namespace."""
        command = (self.root / "usr/bin/ctr", "-a", self.socket, "-n", "k8s.io", *arguments)
        done = subprocess.run(
            [str(part) for part in command],
            env=tool_environment(self.root),
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"ctr {arguments}: {done.stderr}"
        return done.stdout

    def stop(self) -> None:
        """Ends containerd; its containers end with the namespaces' process 1."""
        self.process.stop()
