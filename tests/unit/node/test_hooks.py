from __future__ import annotations

from agent.node.hooks import Handlers, Hooks
from tests.support.node_standins import Relay


def test_every_hook_may_be_left_out() -> None:
    hooks = Hooks()
    hooks.on_trigger("gpu.example.com", "bypass")
    hooks.on_generation("gpu.example.com", "start")
    hooks.on_driver("gpu.example.com", True)
    hooks.on_registered("gpu.example.com", False)
    hooks.on_ready("gpu.example.com", "start")
    hooks.on_crash("link gpu.example.com", RuntimeError())


def test_handlers_is_what_a_proxy_is() -> None:
    handlers: Handlers = Relay()
    assert callable(handlers.unary)
