"""DRA and registration messages as plain values: the demo's one place that knows the stubs.

v1 and v1beta1 have the same field numbers for all that is used here, so one set of stubs does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from agent import names
from agent.core.model import ClaimRef
from agent.pb import dra_v1_pb2 as dra
from agent.pb import pluginregistration_v1_pb2 as registration


@dataclass(frozen=True, slots=True)
class Info:
    """What a plugin says about itself in GetInfo."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device of a prepare answer."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """A driver's answer for one claim; an empty error means success."""

    error: str = ""
    permanent_error: bool = False
    devices: tuple[PreparedDevice, ...] = ()


def info(value: Info) -> bytes:
    """GetInfo's answer."""
    return registration.PluginInfo(
        type=value.type,
        name=value.name,
        endpoint=value.endpoint,
        supported_versions=value.versions,
    ).SerializeToString()


def parse_info(body: bytes) -> Info:
    """Read GetInfo's answer. Raises ValueError."""
    try:
        found = registration.PluginInfo.FromString(body)
    except DecodeError as error:
        raise ValueError(f"not a PluginInfo: {error}") from error
    return Info(found.type, found.name, found.endpoint, tuple(found.supported_versions))


def registration_status(error: str) -> bytes:
    """NotifyRegistrationStatus's request; an empty error means registered."""
    return registration.RegistrationStatus(
        plugin_registered=not error, error=error
    ).SerializeToString()


def parse_registration_status(body: bytes) -> tuple[bool, str]:
    """Read NotifyRegistrationStatus's request: registered, error."""
    found = registration.RegistrationStatus.FromString(body)
    return found.plugin_registered, found.error


def claims_request(operation: str, refs: Iterable[ClaimRef]) -> bytes:
    """A prepare or unprepare request."""
    claims = [dra.Claim(namespace=ref.namespace, uid=ref.uid, name=ref.name) for ref in refs]
    if operation == names.PREPARE:
        return dra.NodePrepareResourcesRequest(claims=claims).SerializeToString()
    return dra.NodeUnprepareResourcesRequest(claims=claims).SerializeToString()


def parse_claims(operation: str, body: bytes) -> tuple[ClaimRef, ...]:
    """Read a prepare or unprepare request."""
    if operation == names.PREPARE:
        claims = dra.NodePrepareResourcesRequest.FromString(body).claims
    else:
        claims = dra.NodeUnprepareResourcesRequest.FromString(body).claims
    return tuple(ClaimRef(claim.namespace, claim.uid, claim.name) for claim in claims)


def answers(operation: str, by_uid: Mapping[str, ClaimAnswer]) -> bytes:
    """A prepare or unprepare answer."""
    if operation != names.PREPARE:
        unprepared = dra.NodeUnprepareResourcesResponse()
        for uid, answer in by_uid.items():
            unprepared.claims[uid].error = answer.error
        return unprepared.SerializeToString()
    prepared = dra.NodePrepareResourcesResponse()
    for uid, answer in by_uid.items():
        entry = prepared.claims[uid]
        entry.error = answer.error
        entry.permanent_error = answer.permanent_error
        for device in answer.devices:
            entry.devices.add(
                request_names=device.requests,
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=device.cdi_ids,
            )
    return prepared.SerializeToString()


def parse_answers(operation: str, body: bytes) -> dict[str, ClaimAnswer]:
    """Read a prepare or unprepare answer, by claim UID. Raises ValueError."""
    try:
        if operation != names.PREPARE:
            unprepared = dra.NodeUnprepareResourcesResponse.FromString(body)
            return {uid: ClaimAnswer(one.error) for uid, one in unprepared.claims.items()}
        prepared = dra.NodePrepareResourcesResponse.FromString(body)
    except DecodeError as error:
        raise ValueError(f"not an answer to {operation}: {error}") from error
    return {
        uid: ClaimAnswer(
            one.error,
            one.permanent_error,
            tuple(
                PreparedDevice(
                    tuple(device.request_names),
                    device.pool_name,
                    device.device_name,
                    tuple(device.cdi_device_ids),
                )
                for device in one.devices
            ),
        )
        for uid, one in prepared.claims.items()
    }
