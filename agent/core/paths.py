"""Names of the agent's sockets and locks; which file names in the registry are the agent's own.

kubelet dials a path through a gRPC target, which is a URL: `%`, `?` and `#` would change its
meaning. A Unix socket's path may have 107 bytes (Linux: sun_path is 108 with its NUL), so names
carry a hash of the driver's name: any driver whose own socket fits leaves room for ours.
"""

from __future__ import annotations

import hashlib
import posixpath
import re

from agent import names

LIMIT = 107
"""Bytes a socket path may have on Linux."""

_GENERATION = re.compile(r"[0-9a-f]{6}")
_FORBIDDEN = "%?#"


def driver_hash(driver: str) -> str:
    """Return the 8 hex digits that stand for a driver's name in file names."""
    return hashlib.sha256(driver.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def registry_dir(kubelet_root: str) -> str:
    """Directory in which kubelet looks for registration sockets."""
    return posixpath.join(kubelet_root, "plugins_registry")


def endpoint_dir(kubelet_root: str) -> str:
    """Directory of the agent's endpoints and locks; not below the registry."""
    return posixpath.join(kubelet_root, "plugins", names.ENDPOINT_DIR)


def intake_dir(kubelet_root: str) -> str:
    """Default directory that drivers register in when registration is `intake`."""
    return posixpath.join(endpoint_dir(kubelet_root), "intake")


def registration_name(driver: str, generation: str) -> str:
    """Base name of one generation's registration socket; `generation` is 6 hex digits."""
    return f"{names.SOCKET_PREFIX}{driver_hash(driver)}~{_checked(generation)}.sock"


def registration_path(kubelet_root: str, driver: str, generation: str) -> str:
    """Full path of one generation's registration socket."""
    return posixpath.join(registry_dir(kubelet_root), registration_name(driver, generation))


def endpoint_path(kubelet_root: str, driver: str, generation: str) -> str:
    """Full path of one generation's endpoint, on which kubelet calls."""
    name = f"{driver_hash(driver)}-{_checked(generation)}.sock"
    return posixpath.join(endpoint_dir(kubelet_root), name)


def lock_path(kubelet_root: str, only_driver: str = "") -> str:
    """File that is locked while an agent runs: one for the node, or one per driver (sidecar)."""
    suffix = f"-{driver_hash(only_driver)}" if only_driver else ""
    return posixpath.join(endpoint_dir(kubelet_root), names.LOCK_FILE + suffix)


def is_ours(basename: str) -> bool:
    """True for a name in the registry that an agent (this one or an earlier one) made."""
    return basename.startswith(names.SOCKET_PREFIX)


def problem(path: str) -> str | None:
    """Say why no socket can be served at `path`, or None; names the path."""
    bad = sorted({char for char in path if char in _FORBIDDEN})
    if bad:
        return f"{path}: a socket path must not contain {' '.join(bad)} (kubelet reads it as a URL)"
    size = len(path.encode("utf-8", "surrogateescape"))
    if size > LIMIT:
        return f"{path}: {size} bytes, but a socket path may have {LIMIT}; use a shorter root"
    return None


def root_problem(kubelet_root: str) -> str | None:
    """Say why the agent's own sockets cannot live below `kubelet_root`, or None."""
    if not kubelet_root.startswith("/"):
        return f"{kubelet_root or '(empty)'}: the kubelet root must be an absolute path"
    for path in (
        registration_path(kubelet_root, "", "000000"),
        endpoint_path(kubelet_root, "", "000000"),
    ):
        if found := problem(path):
            return found
    return None


def _checked(generation: str) -> str:
    if not _GENERATION.fullmatch(generation):
        raise ValueError(f"generation must be 6 lower-case hex digits, not {generation!r}")
    return generation
