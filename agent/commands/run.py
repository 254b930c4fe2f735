"""`dra-agent run`: from command line and environment to a config and an identity."""

from __future__ import annotations

import gc
import re
from argparse import Namespace
from collections.abc import Mapping

from agent.commands.settings import gather
from agent.core import paths
from agent.errors import UserError
from agent.settings.checks import NO_DRIVER_NAME, driver_name_ok
from agent.settings.load import FLAGS
from agent.settings.model import AgentConfig, NodeIdentity
from agent.settings.tree import show

_NODE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def run(args: Namespace, env: Mapping[str, str]) -> int:
    """Start the agent and stay until it ends; its exit code. UserError when it cannot start."""
    config, identity = prepare(args, env)
    # Imported late: a mistake in the config is said in milliseconds, before gRPC is loaded.
    gc.disable()
    from agent import app
    from agent.reload import Source

    # What is loaded stays: the collector would go through it again and again and find nothing,
    # a dozen times on the way to the first call and for 15 ms in between calls.
    gc.freeze()
    gc.enable()
    return app.run(config, identity, Source(args.config, env, flags(args)))


def prepare(args: Namespace, env: Mapping[str, str]) -> tuple[AgentConfig, NodeIdentity]:
    """Resolve config and identity; UserError with the problems of both."""
    problems: list[str] = []
    identity = _identity(args, env, problems)
    config, found = gather(args.config, env=env, flags=flags(args))
    problems += found
    if problems:
        raise UserError(*problems)
    return config, identity


def flags(args: Namespace) -> dict[str, str]:
    """Values of the flags that were given, by dotted config path."""
    given = {
        path: getattr(args, flag.removeprefix("--").replace("-", "_"), None)
        for path, flag in FLAGS.items()
    }
    return {path: value for path, value in given.items() if value is not None}


def _identity(args: Namespace, env: Mapping[str, str], problems: list[str]) -> NodeIdentity:
    node = args.node_name or env.get("NODE_NAME", "")
    if not node:
        problems.append(
            "no node name: give --node-name, or set NODE_NAME (in a pod: from spec.nodeName)"
        )
    elif not _NODE_NAME.fullmatch(node):
        problems.append(f"--node-name: not a node name: {show(node)}")
    root = args.kubelet_root.rstrip("/") or "/"
    if found := paths.root_problem(root):
        problems.append(f"--kubelet-root: {found}")
    driver = args.driver or ""
    if driver and not driver_name_ok(driver):
        problems.append(f"--driver: {NO_DRIVER_NAME}: {show(driver)}")
    return NodeIdentity(
        node_name=node,
        kubelet_root=root,
        pod_name=args.pod_name or env.get("POD_NAME", ""),
        pod_namespace=args.pod_namespace or env.get("POD_NAMESPACE", ""),
        pod_uid=args.pod_uid or env.get("POD_UID", ""),
        only_driver=driver,
    )
