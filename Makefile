# Needs Python 3.11+, git and make. Everything else goes into .venv, which these targets make and keep current.
BOOT := $(shell command -v python3 || command -v python3.13 || command -v python3.12 || command -v python3.11 || echo python3)
BIN := .venv/bin
export PYTHON

.PHONY: help env clean

help:            ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*## */\t/' | expand -t 10

env:             ## make or update .venv
	@$(BOOT) tools/env.py dev

clean:           ## remove what these targets made
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
