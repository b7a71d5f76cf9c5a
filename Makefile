# Hotline. `make` lists what there is to do; everything but `setup` makes sure of .venv first.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := services protos/build.py tests deploy benchmarks

.DEFAULT_GOAL := help
.PHONY: help setup protos protos-check fmt check test test-slow demo bench bench-relay bench-overload clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv with everything in it; PYTHON=python3.12 chooses another Python (3.11 or newer)
	@$(PYTHON) deploy/setup/set_up.py

protos: setup ## Generate protos/gen from protos/hotline
	@$(BIN)/python protos/build.py generate

protos-check: setup ## Fail where protos/gen is stale; buf's lint and compatibility rules
	@$(BIN)/python protos/build.py check
	@$(BIN)/python protos/build.py lint

fmt: setup ## Format the code and mend what ruff can mend
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

check: setup protos-check ## Lint, formats, types, import rules, contract, file lengths
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python deploy/setup/file_length.py

test: setup ## The tests of everyday work; offline
	@$(BIN)/pytest

test-slow: setup ## The tests that take longer: the real stack, real models
	@$(BIN)/pytest -m 'slow and not bench'

demo: setup ## Start the default stack, ask it about a screenshot, stop it
	@$(BIN)/python deploy/demo/demo.py

bench-relay: setup ## What relaying a token costs the gateway, against a bare gRPC relay; 5 minutes on two cores
	@$(BIN)/python benchmarks/relay.py $(ARGS)

bench-overload: setup ## Goodput, refusals and memory at three times the load that can be answered; 2 minutes
	@$(BIN)/python benchmarks/overload.py $(ARGS)

bench: ## Where the measurements are
	@cat benchmarks/README.md

clean: ## Remove what was built, .venv too
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
