from __future__ import annotations

from agent.core.pods import Condition
from agent.report.entry import Entry
from tests.support.kube_records import pod


def test_what_we_wrote_wins_over_a_late_watch() -> None:
    entry = Entry("uid-p")
    seen = pod(phase="Pending")
    assert entry.over(seen) is seen
    ours = Condition("dra-agent.io/DevicesPrepared", "False")
    entry.written = pod(phase="Old", conditions=(ours,), annotations=(("a", "b"),))
    merged = entry.over(seen)
    assert (merged.phase, merged.conditions) == ("Pending", (ours,))
    assert merged.annotations == (("a", "b"),)
