"""Where the API server is and how we prove who we are: service account files or a kubeconfig.

Without a kubeconfig only the pod's service account is used, never a person's ~/.kube/config: the
agent must not run with somebody's admin rights by accident.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agent.errors import UserError
from agent.kube.lazy import Library

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Configuration = Any  # the library's, which is loaded late and has no types
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


def users_kubeconfig(environ: Mapping[str, str]) -> str:
    """Where kubectl would look. For commands that a person runs, never for the agent."""
    return environ.get("KUBECONFIG") or "~/.kube/config"


def kubeconfigs(path: str) -> list[Path]:
    """Those of the files, joined by colons in a kubeconfig setting, that are there."""
    written = (Path(os.path.expanduser(each)) for each in path.split(os.pathsep) if each)
    return [file for file in written if file.is_file()]


async def from_kubeconfig(
    library: Library, path: str, option: str = "report.kubeconfig"
) -> Configuration:
    """Return the library's Configuration for a kubeconfig, or several joined by colons.

    Raises UserError with the reason; `option` is what the user set.
    """
    files = kubeconfigs(path)
    if not files:
        raise UserError(f"{option}: no such file: {path}. Correct the path or leave it out.")
    configuration = library.configuration()
    try:
        await library.load_kube_config(
            config_file=os.pathsep.join(map(str, files)),
            client_configuration=configuration,
            persist_config=False,
        )
        token_file = next(filter(None, map(_token_file, files)), None)
    except (library.config_exception, yaml.YAMLError, OSError, ValueError, TypeError) as exc:
        line = " ".join(str(exc).split())[:300]
        raise UserError(f"{option}: {path} cannot be used: {line}") from exc
    if token_file is not None:
        _use_token(configuration, token_file)
    return configuration


def _use_token(configuration: Configuration, path: Path) -> None:
    hook = TokenFile(path)
    hook(configuration)
    configuration.refresh_api_key_hook = hook


def _token_file(file: Path) -> Path | None:
    """Find `tokenFile` of the current context's user, which `token` overrides."""
    document = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    context = _entry(document.get("contexts"), document.get("current-context")).get("context") or {}
    user = _entry(document.get("users"), context.get("user")).get("user") or {}
    name = user.get("tokenFile")
    return file.parent / name if name and not user.get("token") else None


def _entry(entries: Any, name: Any) -> dict[str, Any]:  # noqa: ANN401 - YAML
    return next((e for e in entries or [] if isinstance(e, dict) and e.get("name") == name), {})
