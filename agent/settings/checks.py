"""What one value cannot show: relations between keys, and the form of texts."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from agent.settings.model import AgentConfig, Registration, Retry
from agent.settings.tree import Say, show

KUBELET_DEADLINE = 45.0
"""Seconds kubelet gives one NodePrepareResources call."""

GET_INFO_LIMIT = 1.0
"""Seconds kubelet gives GetInfo, which it does not repeat."""

FAIL_DELAY = 1.2
"""Seconds. The kubelet looks at its containers once a second; after an earlier patch the phase
flaps, and a ReplicaSet that sees it may delete the good replacement."""

DRIVER_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
"""A DNS subdomain; the API allows at most 63 characters."""

NO_DRIVER_NAME = "not a driver name (a lower-case DNS name of at most 63 characters)"

_GLOB = re.compile(r"[a-z0-9.*?-]{1,63}")
_MINOR = re.compile(r"1\.[0-9]{1,3}")


def driver_name_ok(name: str) -> bool:
    """True for what the API accepts as a DRA driver's name."""
    return len(name) <= 63 and DRIVER_NAME.fullmatch(name) is not None


def parse_listen(listen: str) -> tuple[str, int]:
    """Split `host:port` (IPv6 in brackets); ValueError where it is not that."""
    host, colon, port = listen.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address needs brackets, such as [::1]:9880")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError("expected host:port such as 127.0.0.1:9880")
    if re.search(r"[\s/]", host):
        raise ValueError("expected host:port such as 127.0.0.1:9880")
    return host, int(port)


def check(config: AgentConfig, say: Say) -> None:
    """Say what is wrong with a config whose single values are all of the right type."""
    _retry(config.retry, "retry", say)
    for name, special in config.drivers.per_driver.items():
        path = f"drivers.perDriver[{name}]"
        if not driver_name_ok(name):
            say(path, NO_DRIVER_NAME)
        if special.retry is not None:
            _retry(special.retry, f"{path}.retry", say)
    _drivers(config, say)
    if isinstance(config.registration, Registration):
        _registration(config.registration, say)
    _outcome(config, say)
    _addresses(config, say)
    for index, name in enumerate(config.rules.files):
        if not name.strip():
            say(f"rules.files[{index}]", "expected the path of a file, got nothing")


def _retry(retry: Retry, path: str, say: Say) -> None:
    if retry.initial_delay <= 0:
        say(f"{path}.initialDelay", "must be longer than 0, or a driver would be asked in a loop")
    elif retry.max_delay < retry.initial_delay:
        say(f"{path}.maxDelay", "must not be shorter than initialDelay")
    for key, value in (("margin", retry.margin), ("unprepareWait", retry.unprepare_wait)):
        if value >= KUBELET_DEADLINE:
            say(f"{path}.{key}", "must be shorter than kubelet's own deadline of 45s")


def _drivers(config: AgentConfig, say: Say) -> None:
    drivers = config.drivers
    if not drivers.allow:
        say("drivers.allow", 'serves no driver at all; use ["*"] for all')
    for key, globs in (("allow", drivers.allow), ("deny", drivers.deny)):
        for index, glob in enumerate(globs):
            if not _GLOB.fullmatch(glob):
                say(
                    f"drivers.{key}[{index}]",
                    f"expected a driver name, in which * and ? match anything, got {show(glob)}",
                )
    for key, value in (("rescan", drivers.rescan), ("reconnect", drivers.reconnect)):
        if value <= 0:
            say(f"drivers.{key}", "must be longer than 0")


def _registration(registration: Registration, say: Say) -> None:
    if registration.overlay.get_info_delay >= GET_INFO_LIMIT:
        say("registration.overlay.getInfoDelay", "must be shorter than kubelet's limit of 1s")
    folder = registration.intake_dir
    if folder and not folder.startswith("/"):
        say("registration.intakeDir", f"expected an absolute path, got {show(folder)}")
    if "plugins_registry" in folder.split("/"):
        say(
            "registration.intakeDir",
            "must not be below plugins_registry: kubelet watches that tree and would find the "
            "driver directly",
        )


def _outcome(config: AgentConfig, say: Say) -> None:
    if config.outcome.fail_delay < FAIL_DELAY:
        say("outcome.failDelay", "must be at least 1.2s, or the pod's phase may flap")
    if config.outcome.hold_max < config.outcome.hold:
        say("outcome.holdMax", "must not be shorter than hold")
    for index, version in enumerate(config.outcome.kubelet_versions):
        if not _MINOR.fullmatch(version):
            say(
                f"outcome.kubeletVersions[{index}]",
                f'expected a minor version such as "1.37", got {show(version)}',
            )


def _addresses(config: AgentConfig, say: Say) -> None:
    if config.http.listen:
        try:
            parse_listen(config.http.listen)
        except ValueError as error:
            say("http.listen", f"{error}, got {show(config.http.listen)}")
    endpoint = config.tracing.endpoint
    if endpoint and not is_url(endpoint):
        say(
            "tracing.endpoint",
            f"expected a URL such as http://collector:4318, got {show(endpoint)}",
        )


def is_url(value: str) -> bool:
    """True for an http or https URL with a host."""
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
