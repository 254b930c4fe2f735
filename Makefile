# dra-node-agent. Needs Python 3.11, 3.12 or 3.13 and make; everything else is fetched into
# .venv* and .cache, hash-checked. `make help` lists the targets.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& echo $$p && break; done)
ARGS ?=
BIN := .venv/bin
# hadolint and buildah are used where they are; `make image` builds with the one given.
BUILDER ?= $(shell for b in buildah podman docker; do command -v $$b && break; done)
IMAGE ?= dra-node-agent:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
LOCKS := config/locks
LOCK := $(BIN)/uv pip compile --generate-hashes --universal --python-version 3.11 --quiet \
	--no-emit-index-url --custom-compile-command "make lock"

.PHONY: help setup demo lint test long bench proto schema lock image clean _python
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*##/  make \1\t/p' Makefile | expand -t 16

_python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "error: no Python 3.11, 3.12 or 3.13 found." \
			"Debian 12 or newer: apt-get install python3 python3-venv;" \
			"or name one: make PYTHON=/path/to/python3.12 ..." >&2; exit 2; fi

setup: _python  ## environment for development, in .venv
	@$(PYTHON) tests/venvs.py .venv dev

demo: _python  ## the agent at work in less than 20 seconds, without a cluster (ARGS=--keep: stays up)
	@$(PYTHON) tests/venvs.py .venv runtime
	@$(BIN)/dra-agent demo $(ARGS)

lint: _python  ## style, imports, types
	@$(PYTHON) tests/run.py lint

test: _python  ## everything but `long`; says what it skips and why (DRA_NO_SKIP=1: fails)
	@$(PYTHON) tests/run.py

long: setup  ## tests that take longer
	@$(PYTHON) tests/run.py long

bench: setup  ## figures beside Envoy, a Go proxy and others; needs Go
	@$(BIN)/python bench/run.py $(ARGS)

proto: _python  ## agent/pb from protos/
	@$(PYTHON) tests/venvs.py .venv-proto proto
	@.venv-proto/bin/python protos/generate.py

schema: setup  ## config/agent.schema.json from agent/settings
	@$(BIN)/dra-agent schema > config/agent.schema.json.new
	@mv config/agent.schema.json.new config/agent.schema.json

lock: setup  ## config/locks from pyproject.toml (ARGS=--upgrade: newest)
	@$(LOCK) $(ARGS) pyproject.toml -o $(LOCKS)/requirements.lock
	@$(LOCK) $(ARGS) pyproject.toml --group dev -c $(LOCKS)/requirements.lock \
		-o $(LOCKS)/requirements-dev.lock
	@$(LOCK) $(ARGS) --group build -o $(LOCKS)/requirements-build.lock
	@$(LOCK) $(ARGS) --group proto -o $(LOCKS)/requirements-proto.lock

image:  ## the container image
	@if command -v hadolint >/dev/null; then hadolint Dockerfile; \
		else echo "hadolint is not installed: Dockerfile not linted"; fi
	@if [ -z "$(BUILDER)" ]; then \
		echo "error: needs buildah, podman or docker to build $(IMAGE)" >&2; exit 2; fi
	$(BUILDER) build -t $(IMAGE) -f Dockerfile .

clean:  ## remove what was fetched, made and built
	rm -rf .venv .venv-* .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis dist build
	find . -name __pycache__ -prune -exec rm -rf {} +
