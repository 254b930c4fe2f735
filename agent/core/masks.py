"""What in a text has no meaning: layers that only say who or where, and what people named.

A device may be called `gpu-unsupported-4`, a directory `/mnt/busy`, a driver `retry.example.com`.
Rules for all drivers see the text without such words. Every mask keeps the length, so that a
position in the masked text is one in the text.
"""

from __future__ import annotations

import re

from agent.core import naming
from agent.core.late import Late

_MAX_LAYERS = 8
_MAX_LAYER = 200
"""Characters of one layer; longer ones say something."""

_NAME = r"[\"'(\[]?(?=[^ ]{0,80}[0-9./_-])[a-z0-9_][a-z0-9._/:-]{0,252}[\"')\]]?"
_WORD = (
    r"failed to|unable to|could not|cannot|can't|error(?: while| when| during)?|failed|failure"
    r"|while|when|during|for|on|in|at|by|of|from|to|the|this|a|call(?:ing)?|via|grpc"
    r"|(?:un)?prepar(?:e|ing|ed)|handl(?:e|ing)|process(?:ing)?|complet(?:e|ing)|finish(?:ing)?"
    r"|check(?:ing)? (?:state|status)|set(?:ting)? up (?:the )?(?:devices?|device group)"
    r"|node(?:un)?prepareresources?|resource ?claims?|dynamic resources|resources|devices|claims?"
    r"|request|hook|handler|operation|preparer|kubelet|dra|dra-plugin|plugin|driver|service|server"
    r"|after waiting|(?:attempt|retry|try) [0-9]{1,4}(?: ?(?:/|of) ?[0-9]{1,4})?"
    r"|\((?:timeout|attempt|after) [0-9a-z/. ]{1,20}\)"
    rf"|(?:node|host|worker|pod|namespace|container|machine|request|plugin|driver|claim) {_NAME}"
    r"|request [a-z0-9._-]{1,63}"
)
# A layer: only such words, and then a colon. `driver not loaded: x` is none.
_LAYER = Late(rf"(?:(?:{_WORD})(?:,? |(?=: ))){{1,10}}: ", re.IGNORECASE | re.ASCII)
_HEAD = Late(
    r"\[(?:(?:claim|pod|node|host|request) )?[a-z0-9_][a-z0-9._/-]{0,160}\] "
    r"|[EWIF][0-9]{4} [0-9:.]{8,18} {1,8}[0-9]{1,8} [\w.:-]{1,80}\] "
    r"|(?:time=[^ ]{1,40} )?level=[a-z]{1,8} msg=|\"?[0-9-]{10}T[0-9:.]{8,20}Z?\"? (?:[A-Z]{4,5} )?"
    r"|rpc error: code = (?:unknown|internal) desc = (?!context )|_{2,}: ",
    re.IGNORECASE | re.ASCII,
)

# The kind of place says something (`/dev`, `/sys`, a cgroup), the rest is what people chose.
_PATH = Late(r"(?<![\w.:/-])/[\w.@+-]{1,255}/[\w.@+/-]{1,2000}", re.ASCII)
_KERNELS = ("/dev/", "/sys/", "/proc/")
_PLACES = frozenset(
    {"usr", "bin", "sbin", "lib", "lib64", "run", "var", "cdi", "cgroup", "apis", "api"}
)
_DOMAIN = Late(
    r"(?<![\w./@-])[a-z0-9](?:[a-z0-9-]{0,62}\.){1,6}(?:com|org|net|io|dev|local|example|internal"
    r"|cloud|ai|test|co|eu|us)(?![\w-]|\.[a-z])",
    re.ASCII,
)
_FILE_OF = Late(_DOMAIN.pattern.replace(r"(?![\w-]|", r"(?![a-z0-9]|"), re.ASCII)
_API_GROUPS = ("resource.k8s.io", "cdi.k8s.io")
_PCI = Late(
    r"(?<![\w/.:-])(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?![\w])", re.IGNORECASE
)
_TOKEN = Late(
    r"(?<![\w.-])(?=[a-z_-]{1,125}[0-9])[a-z_][a-z0-9_-]{0,125}(?![\w-])", re.IGNORECASE | re.ASCII
)
_LETTERS = Late(r"[a-z]{1,63}", re.IGNORECASE)
# What rules may know about a device from its name.
_TYPE = Late(
    r"device|dev|gpu|npu|tpu|fpga|dpu|vf|pf|card|chip|adapter|accelerator|accel|acc|interface|port"
    r"|link|controller|drive|engine|board|nic|partition|nvme|region|hca|lane|core|transceiver"
    r"|slice|instance|queue|channel",
    re.IGNORECASE,
)


def layers(part: str) -> str:
    """The same text, as long, with the layers before it that only say who or where blanked out."""
    at = 0
    for _ in range(_MAX_LAYERS):
        match = _HEAD.regex.match(part, at) or _LAYER.regex.match(part, at, at + _MAX_LAYER)
        if match is None or match.end() >= len(part):
            break
        at = match.end()
    return part if at < 3 else "_" * (at - 2) + ": " + part[at:]


def names(part: str) -> str:
    """The same text, as long, with what people named made of letters without a meaning: parts of
    paths, domains, and devices, of which the type in front stays.
    """
    part = _PATH.regex.sub(_path, _PCI.regex.sub(_address, part))
    part = _DOMAIN.regex.sub(_domain, part)
    return _TOKEN.regex.sub(_device, part)


def _address(match: re.Match[str]) -> str:
    return "device" + "-" * (len(match[0]) - 6)


def _path(match: re.Match[str]) -> str:
    said = match[0]
    if said.startswith(_KERNELS):
        return said
    *folders, last = said.split("/")
    kept = [one if one in _PLACES else "x" * len(one) for one in folders]
    return "/".join([*kept, _FILE_OF.regex.sub(_domain, last)])


def _domain(match: re.Match[str]) -> str:
    said = match[0]
    group = next((one for one in _API_GROUPS if said.endswith(one)), "")
    if group:
        return said
    name, _, top = said.rpartition(".")
    return re.sub(r"[a-z0-9-]", "x", name) + "." + top


def _device(match: re.Match[str]) -> str:
    word = match[0]
    if not naming.is_name(word.lstrip("_-")):
        return word
    return _LETTERS.regex.sub(
        lambda m: m[0] if _TYPE.regex.fullmatch(m[0]) else "x" * len(m[0]), word
    )
