from __future__ import annotations

from pathlib import Path

from agent.core.context import NOTHING
from agent.core.model import DeviceState
from agent.report.entry import Entry
from agent.report.examine import Examiner
from tests.support.kube_api import make_slice
from tests.support.kube_bench import bench, config
from tests.support.kube_records import BUSY, GPU, outcome


async def test_a_short_trouble_reads_no_slices(tmp_path: Path) -> None:
    """Claims are read to know what to say; the rest only when something is said."""
    async with bench(tmp_path, config("observe", report={"retryingAfter": 60.0})) as made:
        await made.pod("p")
        made.submit(outcome("p-0", verdict=BUSY), final=False)
        await made.quiet()
        made.submit(outcome("p-0", DeviceState.PREPARED, attempts=2))
        await made.quiet()
        assert not [path for path in made.api.reads() if "resourceslices" in path]


async def test_context_is_read_for_failures_and_dropped_with_them(tmp_path: Path) -> None:
    async with bench(tmp_path, config("observe")) as made:
        made.api.slices.append(make_slice(GPU, {"name": "gpu-0"}))
        await made.pod("p")
        parts = made.reporter._parts
        examiner, entry = Examiner(parts), Entry("uid-p")
        pod = made.pods.get("uid-p")
        assert pod is not None
        parts.book.add(made.submit(outcome("p-0", verdict=BUSY)))
        case = await examiner.case(entry, pod)
        assert [d.device for d in entry.context.inventory] == ["gpu-0"]
        assert case.record.failing
        parts.book.add(made.submit(outcome("p-0", DeviceState.PREPARED)))
        await examiner.case(entry, pod)
        assert entry.context == NOTHING
