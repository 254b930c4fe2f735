"""The command `dra-agent`. Mistakes of the user end with exit code 2 and one line for each."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from agent import __version__
from agent.errors import UserError

PROGRAM = "dra-agent"

_ABOUT = """\
Sits between the kubelet and the DRA drivers of a node. A prepare that fails for a passing reason
is retried inside the same kubelet call; one that can never work is recognised and said in the
pod's status, with the device, the cause and a hint.
"""

_EPILOG = """\
Start here:
  dra-agent demo                         see it at work, without a cluster
  dra-agent explain "TEXT OF AN ERROR"   what a driver's error means, and what would be done
  dra-agent check-config agent.yaml      what a config file means

Settings come from defaults, the file (--config), the environment (DRA_AGENT_...) and flags; later
wins. Exit codes: 0 done, 1 failed, 2 wrong usage or config.
"""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps our line breaks, and commands and their meaning on one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


class _Parser(argparse.ArgumentParser):
    """Says mistakes in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    command: Callable[[argparse.Namespace, Mapping[str, str]], int] = args.command
    try:
        code = command(args, os.environ)
        sys.stdout.flush()
    except UserError as error:
        for problem in error.problems:
            print(f"{PROGRAM}: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        _drop_output()
        return 1
    except OSError as error:
        if error.errno not in _FULL:
            raise
        print(f"{PROGRAM}: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        _drop_output()
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _open_closed_streams() -> None:
    """A stream that the caller closed (`>&-`) is None, and its number goes to our next file."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (for the whole process)


def _drop_output() -> None:
    """What is still buffered goes nowhere, or the interpreter would fail over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = _Parser(prog=PROGRAM, description=_ABOUT, epilog=_EPILOG, formatter_class=_Help)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_run(commands)
    _add_demo(commands)
    _add_explain(commands)
    _add_rules(commands)
    check = commands.add_parser(
        "check-config",
        help="check a config file and say what it means",
        description="Check a config file, with the rule files and the kubeconfig it names and the "
        "environment laid over it. All problems are printed at once; exit code 2 if there are any.",
    )
    check.add_argument("file", metavar="FILE")
    check.add_argument("--print", action="store_true", help="print the whole effective config")
    check.set_defaults(command=_check)
    schema = commands.add_parser(
        "schema",
        help="print the JSON Schema of the config file",
        description="Print the JSON Schema of the config file, for editors and CI.",
    )
    schema.set_defaults(command=_schema)
    return parser


def _add_run(commands: argparse._SubParsersAction[_Parser]) -> None:
    run = commands.add_parser(
        "run",
        help="run the agent on this node",
        description="Run the agent on this node, until SIGTERM. Needs root, or write access to "
        "the kubelet's plugin directories.",
    )
    where = run.add_argument_group("where it runs")
    where.add_argument("--node-name", metavar="NAME", help="this node (default: NODE_NAME)")
    where.add_argument(
        "--kubelet-root",
        metavar="DIR",
        default="/var/lib/kubelet",
        help="the kubelet's root directory (default: %(default)s)",
    )
    where.add_argument("--driver", metavar="DRIVER", help="sidecar: serve this driver alone")
    where.add_argument("--pod-name", metavar="NAME", help="the agent's pod (default: POD_NAME)")
    where.add_argument("--pod-namespace", metavar="NS", help="its namespace (POD_NAMESPACE)")
    where.add_argument("--pod-uid", metavar="UID", help="its UID (POD_UID)")
    settings = run.add_argument_group("settings", "Each wins over the file and the environment.")
    settings.add_argument("--config", metavar="FILE", help="config file (default: none)")
    settings.add_argument(
        "--mode", metavar="MODE", help="observe: retry and tell; enforce: also act"
    )
    settings.add_argument(
        "--registration",
        metavar="KIND",
        help="overlay: register after the drivers; intake: drivers register with the agent",
    )
    settings.add_argument(
        "--kubeconfig", metavar="FILE", help="reach the API server by this file, not as the pod"
    )
    settings.add_argument(
        "--http-listen", metavar="HOST:PORT", help='health, metrics and state; "" for none'
    )
    settings.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    settings.add_argument("--log-format", metavar="FORMAT", help="text or json")
    run.set_defaults(command=_run)


def _add_demo(commands: argparse._SubParsersAction[_Parser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="see the agent at work: no cluster, no root, no network",
        description="Show the agent at work with a stand-in kubelet, driver and API server on "
        "this machine, in less than 20 s. Exit code 0 only if all went as told.",
    )
    demo.add_argument("--keep", action="store_true", help="leave it running to look at")
    demo.set_defaults(command=_demo)


def _add_explain(commands: argparse._SubParsersAction[_Parser]) -> None:
    from agent.commands import explainargs

    explain = commands.add_parser(
        "explain",
        help="say what a driver's error text means",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explainargs.add(explain)


def _add_rules(commands: argparse._SubParsersAction[_Parser]) -> None:
    rules = commands.add_parser(
        "rules",
        help="check and try rule files",
        description="Check and try rule files (docs/classification.md). Needs no cluster.",
    )
    words = rules.add_subparsers(title="commands", metavar="COMMAND", required=True)
    lint = words.add_parser(
        "lint",
        help="check rule files",
        description="Check rule files: keys, patterns (their cost must be linear in the text), "
        "doubled ids, and generic rules that name a driver. Exit code 2 if a file is refused.",
    )
    lint.add_argument("files", metavar="FILE", nargs="+")
    lint.set_defaults(command=_lint)
    test = words.add_parser(
        "test",
        help="try a rule file's examples, and show what it changes",
        description="Try each rule's examples, and show every text of the corpus whose verdict "
        "the files change. Exit code 1 if an example is decided by another rule, or a failure of "
        "the corpus that is not permanent would be called so.",
    )
    test.add_argument("files", metavar="FILE", nargs="+")
    test.add_argument("--corpus", metavar="FILE", help="JSON Lines (default: the one built in)")
    test.set_defaults(command=_test)


def _run(args: argparse.Namespace, env: Mapping[str, str]) -> int:
    from agent.commands import run

    return run.run(args, env)


def _demo(args: argparse.Namespace, env: Mapping[str, str]) -> int:
    from agent import demo

    return demo.run(args)


def _lint(args: argparse.Namespace, env: Mapping[str, str]) -> int:
    from agent.commands import rules

    print("\n".join(rules.lint(args.files)))
    return 0


def _test(args: argparse.Namespace, env: Mapping[str, str]) -> int:
    from agent.commands import rules

    return rules.test(args.files, args.corpus)


def _check(args: argparse.Namespace, env: Mapping[str, str]) -> int:
    from agent.commands import check

    print(check.check(args.file, env, whole=args.print))
    return 0


def _schema(args: argparse.Namespace, env: Mapping[str, str]) -> int:
    from agent.settings import docs

    print(docs.schema(), end="")
    return 0
