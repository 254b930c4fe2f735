"""A driver's text as one line, and the single errors it is joined of."""

from __future__ import annotations

import re

from agent.core import masks, text

ENDS = 4096
"""Characters of the start and of the end of a text that patterns are run on. Prefixes are at the
start and causes at the end; what lies between is a list of the same."""
MAX_PARTS = 16
"""Errors of a joined text that are looked at one by one."""

# What the agent itself puts before a text (core/answer.py): as an event shows it, it is read back.
_OWN_PREFIX = re.compile(r"dra-agent: [^ :]{1,253}: (?:[a-z]{1,20} \([^()]{0,300}\): )?")
_LIST = re.compile(r"\[([^\[\]]{1,4000})\]$")


def split(said: str) -> tuple[str, tuple[str, ...]]:
    """Return (the whole as one line, its single errors; none where there is only one)."""
    said = text.ends(said, ENDS)
    whole = _OWN_PREFIX.sub("", text.clean(said, 8 * ENDS))
    found: list[str] = []
    lines = [part for part in whole.split("; ") if part.strip()]
    if len(lines) > 1:
        found.extend(_some(lines))
    listed: list[str] = []
    for line in (whole, *found):
        aggregate = _LIST.search(line[-ENDS:])
        if aggregate is not None and ", " in aggregate[1]:
            listed.extend(aggregate[1].split(", "))
    found.extend(_some(listed))
    return whole, tuple(dict.fromkeys(found))


_UID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Kubernetes names: words alone are left ("claim is gone"), so one needs a digit, dash, dot, slash.
_NAMED = re.compile(
    r"\b((?:resource)?claims?(?:id|name|uid)?|pods?|namespace|node|user|retrieve claim)"
    rf"(?:[ =:]|: (?=[a-z0-9.-]{{1,253}}/[a-z0-9]|{_UID}))"
    r"(['\"(]{0,2}(?=[a-z]{0,63}[0-9./-])[a-z0-9][a-z0-9./-]{0,320}"
    rf"(?::{_UID})?)",
    re.IGNORECASE | re.ASCII,
)
# The layers that the shared helper and its users put before every error of a prepare.
_WRAPPER = re.compile(
    r"\b(?:error |failed )?(?:to )?(?:un)?prepar(?:e|ing) (?:[a-z0-9]{1,12} )?"
    r"(?:devices?|resources?|resource claims|dynamic resources)(?: failed)?"
    r"(?: for [a-z]{1,14} [^ ]{1,360})?: |\bdevice plugin: "
    r"|\bnode(?:un)?prepareresources (?:failed|error)(?: for resourceclaim [^ ]{1,253})?: ",
    re.IGNORECASE | re.ASCII,
)
_ANY_UID = re.compile(_UID, re.IGNORECASE)
_CONSTANT = re.compile(r"\b[A-Z][A-Z0-9]{1,24}(?:_[A-Z0-9]{1,24}){1,8}\b", re.ASCII)


def mask(part: str) -> str:
    """The same text, as long, without what has no meaning: names of claims, pods and nodes, and
    the layers that stand before every error.

    A claim may be called `busy-0` or `invalid-config`. Rules for all drivers see this form.
    """
    part = _WRAPPER.sub(lambda m: "_" * (len(m[0]) - 2) + ": ", without_company(masks.layers(part)))
    part = _ANY_UID.sub(lambda m: "_" * len(m[0]), part)
    return masks.names(masks.layers(part))


def spelled(part: str) -> str:
    """The same text, as long, with the constants of vendors' libraries as words: LIB_ERROR_BUSY."""
    return _CONSTANT.sub(lambda m: m[0].replace("_", " "), part)


def without_company(part: str) -> str:
    """The same text, as long, without the names of claims, pods, namespaces and nodes."""
    return _NAMED.sub(lambda m: m[0][: m.start(2) - m.start()] + "_" * len(m[2]), part)


def _some(errors: list[str]) -> list[str]:
    """The first and the last ones of a long list."""
    if len(errors) <= MAX_PARTS:
        return errors
    half = MAX_PARTS // 2
    return errors[:half] + errors[-half:]
