"""What the words that a rule matched speak of: the clause that they stand in.

A device that stands elsewhere in a text is a bystander (`refusing gpu-1 because a switch failed`),
and so is one in a clause that speaks of another thing (`peer of gpu-1 marked faulty`). To blame too
few is far better than to blame one that is innocent, so whatever is doubtful gives nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.core import naming
from agent.core.late import Late

_REACH = 400
"""Characters looked at before and after the match."""
_MAX_CLAUSES = 32

_BREAK = Late(
    r"(?P<colon>: )|(?P<comma>, )|(?P<semicolon>; )|(?P<stop>\. )(?=[a-z]{3})"
    r"| [-\u2013\u2014]{1,2} "
    r"|,? (?:but|while|because|since|when|whereas|although|though|so|before|during"
    r"|for(?! the moment| now)|refus(?:ing|ed)|(?:un)?preparing"
    r"|(?:which|that|who) (?=is|has|was|are|have|reports?)) ",
    re.IGNORECASE,
)
# Things that are no device of a claim, or another device than the one that is named.
_THINGS = (
    r"host|chassis|switch(?:es)?|peers?|siblings?|neighbou?rs?|an?other|other|parents?|racks?"
    r"|psus?|power suppl(?:y|ies)|(?:system|root|boot|local|host|disk|data) disks?|disks? pools?"
    r"|state files?|checkpoints?|cdi|files?|file ?systems?|daemons?|slots?|fabric|backplane|riser"
    r"|enclosure|(?:mother|main|base)board|dimms?|cpu ?[0-9]{0,4}|cpus|sockets?|numa|upstream"
    r"|root ports?|root complex|bridge|hub|retimer|partner|counterpart|sister|remote|far end"
    r"|server|database|service|plugin|agent|operator|scheduler|kubelet|api|sidecar|helper|nodes?"
    r"|bmc (?:is|was|has|did|does|not|lost|failed|timed)|network|storage|ups|cooling|shared"
    r"|waits? (?:for|on)|depends? on|behind|next to|adjacent|instead"
    r"|unrelated|hosting|bays?|shar(?:es?|ing)|tray|shelf|cage|pdu"
    r"|rest of|all (?:other|of)"
    r"|pf(?! ?[0-9a-z]{0,8}[0-9])|(?:of|in|on|from|at|by) the (?:dpu|nic|gpu|npu|tpu|fpga|pf|hca)"
    r"|(?:with|of|by|from|to|on) an? (?:[a-z]{2,8} )?(?:card|device|gpu|npu|nic|adapter|drive)"
    r"|state of|system memory"
    r"|ok|okay|fine|healthy|innocent|unaffected|fans? in|cable to|claims? wants?"
)
_OTHER = Late(rf"(?<![\w.-])(?:{_THINGS})(?![\w-])|/dev/sd[a-z]", re.IGNORECASE)
_NOT_OTHER = Late(
    r"\bnot (?:ok|okay|fine|healthy)\b|\bno longer healthy\b|\bnode[ =:]{1,2}['\"]?_{2,}"
    r"|\bhost (?:network )?(?:namespace|netns)\b|\bin use by another (?:client|process|user)\b"
    r"|\b(?:out of|in|into) service\b",
    re.IGNORECASE,
)
_TYPE = (
    r"the|this|requested|allocated|device|gpu|npu|tpu|fpga|dpu|nic|vf|card|chip|adapter|accelerator"
    r"|interface|port|link|controller|drive|disk|block|engine|board|partition|instance|namespace"
    r"|nvme|qat|netdev|minor|index|number|pci|rdma|ib|hca|module|unit|core|representor|bdf"
)
_STATE = (
    r"failed|dead|lost|gone|removed|broken|down|faulty|defective|unhealthy|hung|stuck|offline"
    r"|unusable|wedged|bad|not healthy|not usable|failing|error|fault|failure|missing"
    r"|(?:temperature|wear|health|status)(?: [^ ]{1,16}){0,2}"
)
_WORD = r"[\"'(\[]?[A-Za-z0-9/][^\s\"'()\[\],;]{0,127}[\"')\]]?"
# A clause that says which device the next ones are about: `gpu-1`, `device gpu-1 was removed`.
_LABEL = Late(
    rf"(?:(?:{_TYPE}) ){{0,3}}{_WORD}(?: at {_WORD}| \({_WORD}\))?"
    rf"(?: (?:is|was|has|had|been|got|went|now|marked|reported|permanently)){{0,3}}"
    rf"(?: (?:{_STATE}))?"
    r"|(?:[a-z-]{1,16} ){0,2}(?:format|test|self-?test|check|reset|probe|scrub"
    rf"|training) (?:of|on) (?:(?:{_TYPE}) ){{0,2}}{_WORD} failed",
    re.IGNORECASE,
)
# What stands for a device that was named before.
_REFERS = Late(
    r"(?:the |this )?(?:device|gpu|npu|tpu|fpga|card|chip|adapter|accelerator|drive|interface"
    r"|board) (?!in |of |at |on |gpu|[a-z]{1,12}[-_ ]?[0-9])|.{0,80}\b(?:it|itself)\b"
    r"|(?:please )?(?:retry|try again|try later|back ?off|wait)\b"
    r"|end of life$|waiting$|(?:power|cold)[- ]?cycle |reboot |replace ",
    re.IGNORECASE,
)
# What the system says of a call that failed; of the last thing named, that is.
_REASON = Late(
    r"(?:[0-9]{1,2}: )?(?:(?:device or )?resource busy|in use(?: by another (?:client|process))?"
    r"|link not found|(?:operation |connection )?timed out|context deadline exceeded"
    r"|input/output error)(?: \(os error [0-9]{1,3}\))?$",
    re.IGNORECASE,
)
_ADVICE = Late(
    r"(?:a )?(?:(?:power|cold)[- ]?cycle|reboot) (?:is )?(?:needed|required)"
    r"|replace (?:the |this )?(?:card|device|board|drive|adapter|gpu|npu)",
    re.IGNORECASE,
)
# What a driver does for a claim says nothing about the device.
_HANDLING = Late(
    r"\b(?:refus|reject|allocat|asked|claim|prepar|releas|skip|roll|writ|restor|attach|cannot"
    r"|could not|unable|waits?\b|add)",
    re.IGNORECASE,
)
_BARE = Late(rf"(?:(?:{_TYPE}) ){{0,2}}{_WORD}", re.IGNORECASE)
_LIKE_A_NAME = Late(r"[0-9]|[a-z][-_.:/][a-z]", re.IGNORECASE)


def subject(part: str, span: tuple[int, int]) -> str:
    """The words in which the device stands that the matched ones speak of, where there is one.

    "" where they speak of another thing, or may do so.
    """
    clauses = _clauses(part, span)
    # A pattern may bridge clauses; what it says of a thing is in the last one.
    at = max((n for n, one in enumerate(clauses) if one[0] < span[1]), default=0)
    first = _label_before(part, clauses, at)
    if first == at:
        first = _meant(part, clauses, at)
    start = clauses[first][0]
    end = clauses[_label_after(part, clauses, at)][1]
    said = part[start:end]
    if _OTHER.regex.search(_NOT_OTHER.regex.sub("_", said)):
        return ""
    return said


def others(part: str, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Start and end of each clause around a match, but for those that it lies in."""
    for start, end, _ in _clauses(part, span):
        if end <= span[0] or start >= span[1]:
            yield start, end


_Clause = tuple[int, int, str]
"""Start, end, and what kind of break follows: "colon", "comma", "semicolon", or ""."""


def _clauses(part: str, span: tuple[int, int]) -> list[_Clause]:
    """The clauses around a match; no word is cut."""
    low, high = max(0, span[0] - _REACH), min(len(part), span[1] + _REACH)
    if low:
        low = part.find(" ", low, span[0]) + 1 or span[0]
    if high < len(part):
        high = max(part.rfind(" ", span[1], high), span[1])
    found: list[_Clause] = []
    start = low
    for match in _BREAK.regex.finditer(part, low, high):
        found.append((start, match.start(), match.lastgroup or ""))
        start = match.end()
    return [*found, (start, high, "")]


def _label_before(part: str, clauses: list[_Clause], at: int) -> int:
    """The clause before, of the same statement, that says which device all this is about; else
    `at`. One that may be a device's name is better than a mere word.
    """
    found = at
    for n in range(at - 1, max(-1, at - _MAX_CLAUSES), -1):
        start, end, kind = clauses[n]
        if kind not in ("colon", "comma"):
            break
        said = part[start:end].strip()
        if kind == "colon" and _LABEL.regex.fullmatch(said):
            if _LIKE_A_NAME.regex.search(said):
                return n
            found = n if found == at else found
    return found


def _meant(part: str, clauses: list[_Clause], at: int) -> int:
    """The clause before that names the device, where this one speaks of it by another word
    (`it`, `device`) or is a mere reason (`device or resource busy`); else `at`.
    """
    start, end, _ = clauses[at]
    said = part[start:end].strip()
    if not (_REFERS.regex.match(said) or _REASON.regex.match(said)) or naming.names(said):
        return at
    nearest = at
    kinds = {"colon", "comma"}
    if _ADVICE.regex.fullmatch(said):
        kinds.add("semicolon")
    if _REASON.regex.match(said):
        kinds.add("stop")
    for n in range(at - 1, max(-1, at - _MAX_CLAUSES), -1):
        start, end, kind = clauses[n]
        said = part[start:end]
        if kind not in kinds or _HANDLING.regex.search(said):
            break
        if naming.names(said):
            return n
        nearest = n if nearest == at else nearest
    return nearest


def _label_after(part: str, clauses: list[_Clause], at: int) -> int:
    """The clause after that ends the statement by naming the device, else `at`: `device is
    unhealthy: gpu-1`.
    """
    if clauses[at][2] != "colon" or clauses[at + 1][2]:
        return at
    start, end, _ = clauses[at + 1]
    return at + 1 if _BARE.regex.fullmatch(part[start:end].strip()) else at
