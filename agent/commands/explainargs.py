"""The command line of `dra-agent explain`: where the text is from, and what is known about it."""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent.core.model import Failure, Surface, Transport
from agent.core.rules import CODES
from agent.errors import UserError
from agent.settings.tree import near

if TYPE_CHECKING:
    from agent.core.classify import RuleSet

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
    parser.add_argument(
        "--op", choices=["prepare", "unprepare"], default="prepare", help="(default: prepare)"
    )
    parser.add_argument("--code", help="gRPC code of a failed call, such as UNAVAILABLE or 14")
    parser.add_argument("--details", metavar="BASE64", help="the call's grpc-status-details-bin")
    parser.add_argument(
        "--claim", metavar="UID", default="", help="the claim, for a driver's marker"
    )
    parser.add_argument(
        "--transport",
        choices=[str(kind) for kind in Transport],
        help="the call broke in this way, without an answer",
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
    from agent.settings.load import load
    from agent.settings.rulefiles import load_rules

    given = [name for name in ("text", "file", "jsonl", "pod") if getattr(args, name) is not None]
    if len(given) != 1:
        raise UserError("explain: give one of TEXT, --file FILE, --jsonl FILE, --pod NS/NAME")
    config = load(args.config, env=env)
    rules = load_rules(config.rules)
    if args.jsonl is not None:
        return _many(args.jsonl, rules)
    if args.pod is not None:
        return _pod(args, env, rules)
    failure = _failure(args)
    print(explain.explain(failure, rules, config, as_json=args.json))
    return 0


def _many(path: str, rules: RuleSet) -> int:
    from agent.commands import corpus

    for line in corpus.answers(corpus.read(path), rules):
        print(line)
    return 0


def _pod(args: argparse.Namespace, env: Mapping[str, str], rules: RuleSet) -> int:
    from agent.commands.explain_pod import explain_pod

    print(
        explain_pod(args.pod, kubeconfig=args.kubeconfig, env=env, rules=rules, as_json=args.json)
    )
    return 0


def _failure(args: argparse.Namespace) -> Failure:
    from agent.commands import explain

    code = _code(args.code)
    said = explain.read_stdin() if args.text == "-" else args.text
    if args.file is not None:
        said = explain.read_file(args.file)
    answered = Surface.CLAIM_ERROR if code is None and not args.details else Surface.CALL_ERROR
    return Failure(
        driver=args.driver,
        operation=args.op,
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
        return base64.b64decode(written + "=" * (-len(written) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"--details: not base64: {error}") from error


def _code(written: str | None) -> int | None:
    if written is None:
        return None
    name = written.upper().replace("CANCELED", "CANCELLED")
    if name in CODES:
        return CODES[name]
    if written.isascii() and written.isdigit() and int(written) in CODES.values():
        return int(written)
    raise UserError(f"--code: unknown gRPC code {written!r}{near(written, list(CODES))}")
