# Needs Python 3.11+, git and make. Everything else goes into .venv, which these targets make and keep current.
# Another interpreter: make PYTHON=/path/to/python3 ...      Some tests only: make pytest ARGS="-k fence -x"
BOOT := $(shell command -v python3 || command -v python3.13 || command -v python3.12 || command -v python3.11 || echo python3)
BIN := .venv/bin
ARGS ?=
export PYTHON

.PHONY: help demo shell test env programs lint format types pytest bench crash submissions cluster matrix api facts pins clean

help:            ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*## */\t/' | expand -t 10

demo:            ## watch a leader die and a stale write be refused (20 s)
	@$(BOOT) tools/env.py cli
	@$(BIN)/fencehold demo

shell:           ## a shell that finds fencehold, pgleaderlock and submission-manager; `exit` leaves it
	@$(BOOT) tools/env.py cli,postgres,service
	@echo "fencehold, pgleaderlock and submission-manager are on the PATH here; exit leaves this shell" >&2
	@/bin/sh tools/shell/start.sh "$(CURDIR)/$(BIN)"

test:            ## everything: environment, servers, lint, types, all tests
	@$(MAKE) --no-print-directory env
	@$(MAKE) --no-print-directory -j2 programs lint types
	@$(MAKE) --no-print-directory pytest

env:             ## make or update .venv
	@$(BOOT) tools/env.py dev

programs: env    ## install PgBouncer, HAProxy, etcd, spin, Node, promtool (as root, with apt) and from npm the Cosmos DB test server, TypeScript, pyright
	@$(BIN)/python tools/programs.py

lint: env        ## ruff: rules and formatting
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "run: make format"; exit 1; }
	@echo "lint: ok"

format: env      ## let ruff rewrite the files
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

types: env       ## mypy, strict
	@$(BIN)/mypy --no-error-summary && echo "types: ok"

pytest: env      ## the tests alone
	@$(BIN)/python tools/run_tests.py $(ARGS)

bench: env       ## the speed promises, as ratios
	@$(BIN)/python -m bench $(ARGS)

crash: env       ## the outbox's crash run: 60 s of kill -9, freezes and database restarts under 20,000 events
	@$(BIN)/python -m tests.fencehold.runtime.outbox.crash_run.run $(ARGS)

submissions: env ## SubmissionManager behind HAProxy: dead and frozen leaders, a crashed database, poison, the demo (about 90 s)
	@$(BIN)/python -m pytest -q --long tests/submission_manager/demo tests/submission_manager/instance/test_behind_haproxy.py \
		tests/submission_manager/instance/test_poison.py $(ARGS)

cluster: env     ## three PostgreSQL nodes under Patroni: every failover scenario, 20 lost acquires, 3,000 events (about 8 min)
	@FENCEHOLD_TEST_PROMOTIONS=20 $(BIN)/python -m pytest -q --long tests/across_packages/cluster $(ARGS)

matrix: env      ## write docs/fault-matrix.md anew from the marks of the tests
	@$(BIN)/python tools/fault_matrix.py

api: env         ## write docs/api.txt anew: every public name with its signature
	@$(BIN)/python tools/public_api.py

facts: env       ## write docs/facts.md anew: every fact that the library reports, with its fields
	@$(BIN)/python tools/facts_page.py

pins: env        ## write constraints.txt anew
	@$(BIN)/python tools/pins.py

clean:           ## remove what these targets made
	@rm -rf .venv .bench build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
