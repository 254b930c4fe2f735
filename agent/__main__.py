"""`python -m agent` is the same as the command `dra-agent`."""

from agent.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
