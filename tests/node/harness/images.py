"""Container images made of nothing but busybox: no registry can be reached from the tests."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
APPLETS = ("sh", "sleep", "cat", "echo", "ls", "env", "true", "false")


def write_image(file: Path, name: str, command: list[str], busybox: Path) -> None:
    """Writes a docker-archive that `ctr images import` reads: one layer, config and manifest."""
    layer = _layer(busybox)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    content = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(content).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]
    with tarfile.open(file, "w") as archive:
        _add(archive, layer_name, layer)
        _add(archive, config_name, content)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _layer(busybox: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        _add(archive, "bin/busybox", busybox.read_bytes(), mode=0o755)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
