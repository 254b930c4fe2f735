"""The config of a command with all it names, so that everything wrong is said at once."""

from __future__ import annotations

from collections.abc import Mapping

from agent.kube import kubeconfig
from agent.settings.load import collect, origin
from agent.settings.model import AgentConfig
from agent.settings.rulefiles import problems_of

KEY = "report.kubeconfig"


def gather(
    path: str | None,
    *,
    env: Mapping[str, str],
    flags: Mapping[str, str] | None = None,
    reports: bool = True,
) -> tuple[AgentConfig, list[str]]:
    """Read the config and check the files it names: rules and, with `reports`, the kubeconfig.

    Returns all problems beside what could be read.
    """
    config, problems = collect(path, env=env, flags=flags)
    problems += problems_of(config.rules)
    if reports and config.report.enabled and config.report.kubeconfig:
        option = origin(KEY, path, env=env, flags=flags)
        problems += kubeconfig.problems(config.report.kubeconfig, option)
    return config, problems
