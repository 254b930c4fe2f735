"""The sentences about a pod's devices, for conditions, events and the phase's message."""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.history import History
from agent.core.model import Culprit, Device, DeviceState
from agent.core.record import DeviceRecord, PodRecord
from agent.core.text import clean, cut

_CAUSE_LIMITS = (1024, 512, 256, 128, 64)
_STATE_WORDS = {
    DeviceState.BLOCKED: "Blocked by it",
    DeviceState.PENDING: "Not asked for yet",
    DeviceState.PREPARED: "Prepared",
}
_SHOWN = 8  # names in one list
_FEW = 3


def message(record: PodRecord, note: str, limit: int) -> str:
    """Say in at most `limit` bytes how all devices stand, worst first, then `note`."""
    failed = record.of(DeviceState.FAILED)
    verb = "not prepared yet, being retried" if record.retrying else "could not be prepared"
    head = f"{len(failed)} of {len(record.devices)} devices {verb}."
    tail = [_listing(state, record.of(state)) for state in _STATE_WORDS]
    if note:
        tail.append(f"Pod {note}." if not note.endswith(".") else f"Pod {note}")
    end = " ".join(part for part in tail if part)
    for cause in _CAUSE_LIMITS:
        middle = " ".join(_group(record, devices, cause) for devices in _grouped(failed))
        text = " ".join(part for part in (head, middle, end) if part)
        if len(text.encode()) <= limit:
            return text
    room = limit - len(head.encode()) - min(len(end.encode()), limit // 4) - 2
    return cut(f"{head} {cut(middle, max(room, 0))} {end}", limit)


def parameters(device: Device) -> str:
    """Say whose the opaque parameters of a device are, or ""."""
    the_class = f"DeviceClass {device.device_class}" if device.device_class else "the DeviceClass"
    whose = {
        "claim": "parameters of the claim",
        "class": f"parameters of {the_class}",
        "claim,class": f"parameters of the claim and of {the_class}",
    }
    return whose.get(device.parameters_from, "")


def _grouped(failed: Sequence[DeviceRecord]) -> list[list[DeviceRecord]]:
    groups: dict[tuple[str, str], list[DeviceRecord]] = {}
    for device in failed:
        groups.setdefault((device.device.driver, device.device.claim.uid), []).append(device)
    return list(groups.values())


def _group(record: PodRecord, devices: Sequence[DeviceRecord], cause: int) -> str:
    first = devices[0]
    where = f"{_names(devices)} of {first.device.driver} (claim {first.device.claim.name})"
    history, verdict = first.history, first.verdict
    text = f"{where}: {cut(first.cause, cause)}" if first.cause else f"{where}: failed"
    if verdict is not None:
        if verdict.hint:
            text += f". Hint: {cut(verdict.hint, cause)}"
        text += f" [{verdict.kind}, {verdict.culprit}, rule {verdict.rule}{_counts(history)}]"
    text += "" if text.endswith(".") else "."
    return " ".join([text, *_besides(record, devices)])


def _besides(record: PodRecord, devices: Sequence[DeviceRecord]) -> list[str]:
    """Whatever else is known, each a sentence."""
    first, said = devices[0], []
    verdict, history = first.verdict, first.history
    key = (first.device.driver, first.device.claim.uid)
    if verdict is not None and verdict.culprit is Culprit.PARAMETERS:
        whose = sorted({text for d in devices if (text := parameters(d.device))})
        if whose:
            said.append(f"At fault: {clean('; '.join(whose[:_FEW]), 300)}.")
    if first.blocker is not None:
        said.append(f"Blocked by {first.blocker}.")
    if key in record.escalated and history is not None and history.run is not None:
        run = history.run
        said.append(
            f"No longer normal: the same failure for {_span(run.seconds)}, {run.attempts} attempts."
        )
    spread = dict(record.widespread).get(key)
    if spread is not None:
        said.append(f"Suspect: {spread}.")
    accused = [d for d in devices if d.suspect == "device"]
    if accused:
        said.append(f"Suspect: {_names(accused)}, which failed for other claims too.")
    holders = sorted({ref.name for d in devices for ref in d.holders})
    if holders and first.blocker is None:
        said.append(f"Also allocated to: {_list(holders)}.")
    taints = sorted({clean(taint, 128) for d in devices for taint in d.taints})
    if taints:
        said.append(f"Tainted: {_list(taints)}.")
    return said


def _list(words: Sequence[str]) -> str:
    more = f" and {len(words) - _FEW} more" if len(words) > _FEW else ""
    return ", ".join(words[:_FEW]) + more


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _counts(history: History | None) -> str:
    if history is None:
        return ""
    text = f", attempts {history.attempts}" if history.attempts else ""
    return text + (f", trace {history.trace_id}" if history.trace_id else "")


def _listing(state: DeviceState, devices: Sequence[DeviceRecord]) -> str:
    return f"{_STATE_WORDS[state]}: {_names(devices)}." if devices else ""


def _names(devices: Sequence[DeviceRecord]) -> str:
    shown = [device.device.device for device in devices[:_SHOWN]]
    more = len(devices) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
