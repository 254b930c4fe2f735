"""The command line of `dra-agent explain`: where the text is from, and what is known about it."""

from __future__ import annotations

import argparse
import base64
import binascii
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent.core import codes, wire
from agent.core.model import Failure, Surface, Transport
from agent.core.rules import CODES
from agent.errors import UserError
from agent.kube import kubeconfig
from agent.settings.checks import NO_DRIVER_NAME, driver_name_ok
from agent.settings.tree import near, show

if TYPE_CHECKING:
    from agent.core.classify import RuleSet
    from agent.settings.model import AgentConfig

_ABOUT = """\
Say what a driver's error text means: verdict, culprit, device, hint, and what the agent would do
about it under the given config. Needs no cluster.

--jsonl reads one object per line (id, driver, op, surface, grpc_code, text; optionally devices, the
claim's allocated devices as {driver, pool, device, attributes}) and prints one object per line: id,
verdict, culprit, device, rule, hint.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Give the parser its arguments."""
    parser.description = _ABOUT
    parser.add_argument("text", metavar="TEXT", nargs="?", help='the error text; "-" reads stdin')
    parser.add_argument("--file", metavar="FILE", help="read the error text from a file")
    parser.add_argument(
        "--jsonl", metavar="FILE", help='many texts, one object per line ("-": stdin)'
    )
    parser.add_argument(
        "--pod", metavar="NS/NAME", help="what became of a pod's devices, read from the cluster"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="for --pod (default: KUBECONFIG)"
    )
    parser.add_argument("--driver", default="", help="driver name; its own rules come first")
    parser.add_argument("--op", choices=["prepare", "unprepare"], help="(default: prepare)")
    parser.add_argument("--code", help="gRPC code of a failed call, such as UNAVAILABLE or 14")
    parser.add_argument("--details", metavar="BASE64", help="the call's grpc-status-details-bin")
    parser.add_argument(
        "--claim", metavar="UID", default="", help="the claim, for a driver's marker"
    )
    parser.add_argument(
        "--transport",
        choices=[str(kind) for kind in Transport],
        help="the call broke in this way, without an answer (needs no TEXT)",
    )
    parser.add_argument(
        "--permanent-error", action="store_true", help="the driver set permanent_error"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--config", metavar="FILE", help="config file (default: none)")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace, env: Mapping[str, str]) -> int:
    """Print the explanation; UserError for a wrong use."""
    from agent.commands import explain
    from agent.settings.rulefiles import load_rules

    given = [name for name in ("text", "file", "jsonl", "pod") if getattr(args, name) is not None]
    if not given and args.transport:
        args.text = ""  # a call without an answer has no words
    elif len(given) != 1:
        raise UserError("explain: give one of TEXT, --file FILE, --jsonl FILE, --pod NS/NAME")
    _refuse_idle(args)
    config = _settings(args, env)
    rules = load_rules(config.rules)
    if args.jsonl is not None:
        return _many(args.jsonl, rules)
    if args.pod is not None:
        return _pod(args, env, rules, config)
    failure = _failure(args)
    print(explain.explain(failure, rules, config, as_json=args.json))
    return 0


def _settings(args: argparse.Namespace, env: Mapping[str, str]) -> AgentConfig:
    """Read the config; UserError with its problems and those of the arguments."""
    from agent.commands.settings import gather

    config, problems = gather(args.config, env=env, reports=False)
    if args.driver and not driver_name_ok(args.driver):
        problems.append(f"--driver: {NO_DRIVER_NAME}: {show(args.driver)}")
    for check, written in ((_code, args.code), (_details, args.details)):
        try:
            check(written)
        except UserError as error:
            problems += error.problems
    if problems and args.pod is not None and args.kubeconfig:
        # Without other problems it is read once, where it is used: it may be a pipe.
        problems += kubeconfig.problems(args.kubeconfig, "--kubeconfig")
    if problems:
        raise UserError(*problems)
    return config


_ABOUT_ONE = ("driver", "op", "code", "details", "claim", "transport", "permanent_error")


def _refuse_idle(args: argparse.Namespace) -> None:
    """Options that would do nothing are a mistake."""
    idle: tuple[str, ...]
    if args.jsonl is not None:
        idle, why = (*_ABOUT_ONE, "json"), "the lines say it, and the output is JSON anyway"
    elif args.pod is not None:
        idle, why = _ABOUT_ONE, "the cluster says it"
    else:
        return
    given = ["--" + name.replace("_", "-") for name in idle if getattr(args, name)]
    if given:
        source = "--jsonl" if args.jsonl is not None else "--pod"
        raise UserError(f"explain: {', '.join(given)}: not with {source}; {why}")


def _many(path: str, rules: RuleSet) -> int:
    from agent.commands import corpus

    odd = corpus.Odd()
    for line in corpus.answers(corpus.read(path, odd), rules):
        print(line)
    if odd.skipped:
        lines = "1 line is" if odd.skipped == 1 else f"{odd.skipped} lines are"
        print(f"explain: {lines} no JSON object and left out", file=sys.stderr)
    return 1 if odd.skipped else 0


def _pod(
    args: argparse.Namespace, env: Mapping[str, str], rules: RuleSet, config: AgentConfig
) -> int:
    from agent.commands.explain_pod import explain_pod

    print(
        explain_pod(
            args.pod,
            kubeconfig=args.kubeconfig,
            env=env,
            rules=rules,
            config=config,
            as_json=args.json,
        )
    )
    return 0


def _failure(args: argparse.Namespace) -> Failure:
    from agent.commands import reading

    code = _code(args.code)
    said = reading.read_stdin() if args.text == "-" else args.text
    if args.file is not None:
        said = reading.read_file(args.file)
    answered = Surface.CLAIM_ERROR if code is None and not args.details else Surface.CALL_ERROR
    return Failure(
        driver=args.driver,
        operation=args.op or "prepare",
        surface=Surface.TRANSPORT if args.transport else answered,
        text=said,
        code=code,
        transport=Transport(args.transport) if args.transport else None,
        permanent_error=args.permanent_error,
        details=_details(args.details),
        claim=args.claim,
    )


def _details(written: str | None) -> bytes | None:
    if not written:
        return None
    try:
        raw = base64.b64decode(written + "=" * (-len(written) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"--details: not base64: {error}") from error
    try:
        kinds = {field.tag >> 3 for field in wire.fields(raw)}
    except wire.WireError:
        kinds = set()
    if not kinds & {1, 2, 3}:
        raise UserError("--details: not a google.rpc.Status, which grpc-status-details-bin holds")
    return raw


def _code(written: str | None) -> int | None:
    try:
        return codes.number(written)
    except ValueError:
        near_ones = near(written or "", list(CODES))
        raise UserError(f"--code: unknown gRPC code {written!r}{near_ones}") from None
