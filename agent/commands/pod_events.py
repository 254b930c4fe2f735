"""Reads what kubelet's event about a failed prepare says.

Forms (kubelet 1.34 to 1.37), each behind two prefixes of kubelet's own:
`NodePrepareResources failed for ResourceClaim NAME: TEXT` and
`NodePrepareResources: rpc error: code = CODE desc = TEXT`. Where the agent stands between, TEXT
begins with `dra-agent: DRIVER: VERDICT (CULPRIT): `.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.core import codes
from agent.core.model import Failure, Surface
from agent.core.rules import CODES

_CLAIM = re.compile(r"NodePrepareResources failed for ResourceClaim ([^ :]{1,253}): ")
_CALL = re.compile(r"NodePrepareResources: rpc error: code = (\w{1,40}) desc = ")
_AGENT = re.compile(
    r"dra-agent: ([a-z0-9.-]{1,253}): (?:(?:transient|permanent|ambiguous) \([^)]{0,300}\): )?"
)
_PREFIX = re.compile(r"(?:Failed to prepare dynamic resources: )?(?:prepare dynamic resources: )?")


@dataclass(frozen=True, slots=True)
class Said:
    """One failure. Empty: the event does not tell."""

    text: str
    claim: str = ""
    driver: str = ""
    code: int | None = None

    def failure(self, driver: str) -> Failure:
        """Return it as rules take it."""
        surface = Surface.CLAIM_ERROR if self.code is None else Surface.CALL_ERROR
        return Failure(driver, "prepare", surface, self.text, self.code)


def failures_in(message: str) -> list[Said]:
    """Return what an event's message says; kubelet stops at the first failure, so it is one."""
    if not message:
        return []
    claim, code, rest = "", None, ""
    named, call = _CLAIM.search(message), _CALL.search(message)
    if named is not None:
        claim, rest = named[1], message[named.end() :]
    elif call is not None:
        code = _code(call[1])
        rest = message[call.end() :]
    else:
        start = _PREFIX.match(message)
        rest = message[start.end() :] if start else message
    agent = _AGENT.match(rest)
    driver = agent[1] if agent else ""
    return [Said(rest[agent.end() :] if agent else rest, claim, driver, code)]


def _code(written: str) -> int:
    """Return the number of a code as Go writes it: DeadlineExceeded."""
    try:
        return codes.number(written) or CODES["UNKNOWN"]
    except ValueError:
        return CODES["UNKNOWN"]
