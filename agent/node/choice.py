"""Which registrations are drivers that this agent serves; what they say is hostile."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent import names
from agent.core import paths, text
from agent.node.info import PluginInfo

# API types: a DNS subdomain of at most 63 bytes (DriverNameMaxLength).
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LIMIT = 63


@dataclass(frozen=True, slots=True)
class Choice:
    """Which drivers are served."""

    allow: Sequence[str] = ("*",)
    deny: Sequence[str] = ()
    only: str = ""  # sidecar: this one alone
    plugin_only: bool = True  # overlay: a registration without a DRAPlugin service is no use

    def serves(self, driver: str) -> bool:
        """True when a driver of this name is to be served; `deny` wins."""
        if self.only and driver != self.only:
            return False
        if any(fnmatch.fnmatchcase(driver, pattern) for pattern in self.deny):
            return False
        return any(fnmatch.fnmatchcase(driver, pattern) for pattern in self.allow)

    def refusal(self, info: PluginInfo, endpoint: str) -> str:
        """Say why this registration is none of ours, or an empty string."""
        if info.type != names.PLUGIN_TYPE:
            return f"it is a {text.clean(info.type, 64)}, not a {names.PLUGIN_TYPE}"
        shown = text.clean(info.name, 128)
        if len(info.name) > _NAME_LIMIT or not _NAME.fullmatch(info.name):
            return f"{shown!r} is not a driver name"
        if not self.serves(info.name):
            return f"{shown} is excluded by --driver or by drivers.allow and drivers.deny"
        if self.plugin_only and not info.plugin_versions:
            return f"{shown} lists no {names.PLUGIN_TYPE} service"
        if not endpoint.startswith("/") or "\0" in endpoint:
            return f"its endpoint {text.clean(info.endpoint, 128)!r} is not an absolute path"
        return OWN if is_own(endpoint) else ""


OWN = "its endpoint is the agent's own"


def is_own(endpoint: str) -> bool:
    """True for a socket of the agent, or a link to one: calls to it would go round in a circle."""
    path = os.path.realpath(endpoint)
    if paths.is_ours(os.path.basename(path)):
        return True
    # Its own directory, under whatever root (intake is another one).
    return os.path.basename(os.path.dirname(path)) == names.ENDPOINT_DIR
