"""Which instance of a driver gets a call: the one kubelet itself would have taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent import names


@dataclass(frozen=True, slots=True)
class Candidate:
    """One registered instance of a driver, as far as the choice goes."""

    key: int  # opaque, handed back
    appeared: int  # rises with every registration that is found
    connected: bool
    versions: tuple[str, ...]  # supported_versions, as the driver lists them


def lists(versions: Iterable[str], service: str) -> bool:
    """True when `supported_versions` offers a gRPC service, named as on the wire.

    A service that kubelet does not choose by this list (health, or one we do not know) is taken
    as offered: the driver answers for itself.
    """
    if service not in names.PLUGIN_SERVICES.values():
        return True
    return any(names.PLUGIN_SERVICES.get(version) == service for version in versions)


def choose(candidates: Iterable[Candidate], service: str) -> Candidate | None:
    """Return the most recently appeared instance that is connected and lists `service`.

    Kubelet looks from the newest to the oldest for one whose connection is up, and calls the
    service it chose when that one registered.
    """
    fit = [c for c in candidates if c.connected and lists(c.versions, service)]
    return max(fit, key=lambda c: c.appeared, default=None)
