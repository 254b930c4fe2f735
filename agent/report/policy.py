"""The settings that reporting depends on, and what the last FailPods leave to be minded."""

from __future__ import annotations

from agent.core.history import Limits
from agent.core.outcome import Policy
from agent.core.pods import Pod
from agent.core.record import PodRecord
from agent.settings.model import AgentConfig, NodeIdentity
from agent.settings.sections import Mode

_OWNERS = 1024  # owners remembered; older ones are long past their minimum


class Rules:
    """Settings as decisions need them."""

    def __init__(self, settings: AgentConfig, identity: NodeIdentity) -> None:
        self._settings = settings
        self.node = identity.node_name
        self.only_driver = identity.only_driver
        self.events = settings.report.events
        self.retrying_after = float(settings.report.retrying_after)
        self.limits = _limits(settings)
        self._failed_at: dict[str, float] = {}  # owner UID -> loop time

    def update(self, settings: AgentConfig) -> None:
        """Go by changed settings: mode, outcome, `report.retryingAfter`, `report.escalate…`."""
        self._settings = settings
        self.limits = _limits(settings)
        self.retrying_after = float(settings.report.retrying_after)

    def mode(self, record: PodRecord) -> Mode:
        """Return enforce where any driver with a permanent failure is in that mode."""
        modes = {self._settings.mode_of(driver) for driver in _permanent(record)}
        return "enforce" if "enforce" in (modes or {self._settings.mode}) else "observe"

    def policy(self, record: PodRecord) -> Policy:
        """Return the policy, with the mode of each driver that failed for good."""
        outcome, mode = self._settings.outcome, self._settings.mode
        modes = {driver: self._settings.mode_of(driver) for driver in _permanent(record)}
        return Policy(
            mode=mode,
            modes={driver: own for driver, own in modes.items() if own != mode},
            parameters=outcome.parameters,
            claim=outcome.claim,
            fail_delay=float(outcome.fail_delay),
            min_between_failures=float(outcome.min_between_failures),
            kubelet_versions=tuple(outcome.kubelet_versions),
            only_driver=self.only_driver,
        )

    def owner_failed_at(self, pod: Pod) -> float | None:
        """When a pod of the same owner was last failed; bare pods have none."""
        return self._failed_at.get(pod.owner.uid) if pod.owner else None

    def set_owner_failed(self, pod: Pod, at: float | None) -> None:
        """Note it before the patch goes out, so that two pods of one owner cannot pass together;
        None takes it back.
        """
        if pod.owner is None:
            return
        self._failed_at.pop(pod.owner.uid, None)
        if at is not None:
            self._failed_at[pod.owner.uid] = at
        while len(self._failed_at) > _OWNERS:
            self._failed_at.pop(next(iter(self._failed_at)))


def _limits(settings: AgentConfig) -> Limits:
    report = settings.report
    return Limits(report.escalate_after_attempts, float(report.escalate_after))


def _permanent(record: PodRecord) -> set[str]:
    return {driver for (driver, _), h in record.failing if h.verdict and h.verdict.permanent}
