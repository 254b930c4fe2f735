"""`dra-agent demo`: the agent on a node that exists only on this machine."""

from __future__ import annotations

import argparse


def run(args: argparse.Namespace) -> int:
    """Play the demo. `args.keep`: leave it running afterwards.

    0: all went as told; 1: not; 130: ended by Ctrl-C before that.
    """
    from agent.demo.main import run as run_demo  # its imports are not for `dra-agent run`

    return run_demo(keep=bool(args.keep))
