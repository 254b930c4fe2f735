"""Where the API server is and how we prove who we are: service account files or a kubeconfig.

Without a kubeconfig only the pod's service account is used, never a person's ~/.kube/config: the
agent must not run with somebody's admin rights by accident.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.core.text import clean
from agent.errors import UserError
from agent.kube import kubeconfig
from agent.kube.lazy import Library

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Configuration = Any  # the library's, which is loaded late and has no types
_USERS = "~/.kube/config"
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class TokenFile:
    """Puts the file's token into each request. kubelet rewrites the file of a bound token about
    hourly; the library re-reads it into a copy of its configuration, and for a kubeconfig's
    `tokenFile` never (tomplus/kubernetes_asyncio#253). Reading 1 KiB of tmpfs per request is
    cheaper than being wrong, and requests are rare.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, configuration: Configuration) -> None:
        """Put the token as it is now into the configuration."""
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return  # between two writes; the old one may still hold
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"


def in_cluster(environ: Mapping[str, str], folder: Path) -> bool:
    """Tell whether a service account and an API server address are there."""
    return bool(environ.get(_HOST) and environ.get(_PORT) and (folder / "token").is_file())


def from_service_account(
    library: Library, environ: Mapping[str, str], folder: Path
) -> Configuration:
    """Return the library's Configuration for the pod's own service account."""
    host = environ[_HOST]
    host = f"[{host}]" if ":" in host else host
    configuration = library.configuration()
    configuration.host = f"https://{host}:{environ[_PORT]}"
    configuration.ssl_ca_cert = str(folder / "ca.crt")
    _use_token(configuration, folder / "token")
    return configuration


def users_kubeconfig(environ: Mapping[str, str]) -> tuple[str, str]:
    """Where kubectl would look, and what a person calls that; UserError where nothing is there.

    For commands that a person runs, never for the agent.
    """
    if environ.get("KUBECONFIG"):
        return environ["KUBECONFIG"], "KUBECONFIG"
    if not os.path.exists(os.path.expanduser(_USERS)):
        raise UserError(f"no kubeconfig: give --kubeconfig, set KUBECONFIG, or make {_USERS}")
    return _USERS, "kubeconfig"


async def from_kubeconfig(
    library: Library, path: str, option: str = "report.kubeconfig"
) -> Configuration:
    """Return the library's Configuration for a kubeconfig, or several joined by colons.

    Raises UserError with the reasons; `option` is what the user set.
    """
    found = kubeconfig.read(path, option)
    configuration = library.configuration()
    try:
        await library.load_kube_config_from_dict(found.document, client_configuration=configuration)
    except Exception as exc:  # it raises of everything, and an exec plugin may fail in any way
        line = clean(str(exc), 300) or type(exc).__name__
        raise UserError(f"{option}: {path} cannot be used: {line}") from exc
    if found.token_file is not None:
        _use_token(configuration, found.token_file)
    return configuration


def _use_token(configuration: Configuration, path: Path) -> None:
    hook = TokenFile(path)
    hook(configuration)
    configuration.refresh_api_key_hook = hook
