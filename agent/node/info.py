"""Messages of kubelet's plugin registration, changed without losing fields that we do not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from agent import names
from agent.pb import pluginregistration_v1_pb2 as pb


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A driver's answer to GetInfo; `raw` is what it sent."""

    raw: bytes
    type: str
    name: str
    endpoint: str  # empty: the registration socket itself
    versions: tuple[str, ...]  # in the driver's order, which decides kubelet's choice

    @property
    def plugin_versions(self) -> tuple[str, ...]:
        """Those versions that name a DRAPlugin service, order kept."""
        return tuple(version for version in self.versions if _is_plugin(version))


def parse_info(raw: bytes) -> PluginInfo:
    """Read a PluginInfo. Raises ValueError when the bytes are none."""
    try:
        read = pb.PluginInfo.FromString(raw)
    except DecodeError as error:
        raise ValueError(f"not a PluginInfo: {error}") from error
    return PluginInfo(raw, read.type, read.name, read.endpoint, tuple(read.supported_versions))


def republished(info: PluginInfo, endpoint: str, *, plugin_only: bool) -> bytes:
    """Return what the driver says with our endpoint, and without other services if asked."""
    message = pb.PluginInfo.FromString(info.raw)
    message.endpoint = endpoint
    if plugin_only:
        del message.supported_versions[:]
        message.supported_versions.extend(info.plugin_versions)
    return message.SerializeToString()


def make_info(*, name: str, endpoint: str, versions: Sequence[str]) -> bytes:
    """Return a DRA driver's PluginInfo (for drivers that we play ourselves)."""
    return pb.PluginInfo(
        type=names.PLUGIN_TYPE, name=name, endpoint=endpoint, supported_versions=versions
    ).SerializeToString()


def parse_status(raw: bytes) -> tuple[bool, str]:
    """Read a RegistrationStatus: (registered, error). Raises ValueError when the bytes are none."""
    try:
        read = pb.RegistrationStatus.FromString(raw)
    except DecodeError as error:
        raise ValueError(f"not a RegistrationStatus: {error}") from error
    return read.plugin_registered, read.error


def make_status(*, registered: bool, error: str = "") -> bytes:
    """Return a RegistrationStatus (for kubelets that we play ourselves)."""
    return pb.RegistrationStatus(plugin_registered=registered, error=error).SerializeToString()


def _is_plugin(version: str) -> bool:
    return version.rpartition(".")[2] == names.PLUGIN_TYPE
