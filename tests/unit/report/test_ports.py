from __future__ import annotations

import inspect

from agent.proxy.proxy import Proxy
from agent.report.ports import CallsPort
from tests.support.kube_bench import Calls


def test_the_proxy_and_the_tests_stand_in_have_the_same_questions() -> None:
    wanted = [name for name in vars(CallsPort) if not name.startswith("_")]
    assert len(wanted) == 7
    for name in wanted:
        expected = list(inspect.signature(getattr(CallsPort, name)).parameters)
        for kind in (Proxy, Calls):
            assert list(inspect.signature(getattr(kind, name)).parameters) == expected
