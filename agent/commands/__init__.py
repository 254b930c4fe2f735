"""What the subcommands of `dra-agent` do; `agent.cli` reads the command line."""
