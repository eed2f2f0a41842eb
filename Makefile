PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PYTEST_ARGS ?=
SCRIPTS := src/detent/web/static tests/dashboard/contrast.js docs/capacity.js

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export DENO_DIR := $(CURDIR)/$(VENV)/deno-cache
export DENO_NO_UPDATE_CHECK := 1
# Compiled once, and not again by each of the hundreds of processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv check test long drills recorded-runs explored up docs sql openapi screenshots pictures bench bench-install bench-full format clean

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## .venv with every extra and the development set

check: $(STAMP) ## format, lint, types, tidy: what pre-commit runs
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	cd examples/shop_fastapi && ../../$(BIN)/python -m mypy --cache-dir=../../.mypy_cache .
	cd examples/shop_django && PYTHONPATH=. ../../$(BIN)/python -m mypy --cache-dir=../../.mypy_cache .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/deno fmt --check --quiet
	$(BIN)/deno check --quiet $(SCRIPTS)
	$(BIN)/python -m pytest -q tests/test_tidy.py

test: $(STAMP) ## every test that fits ten minutes, but what check runs (PYTEST_ARGS="-k name" to choose)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --ignore tests/test_tidy.py $(PYTEST_ARGS)

long: $(STAMP) ## the tests that take more than three seconds each
	$(BIN)/python -m pytest -n 2 --dist load --max-worker-restart 0 -m "long and not drill" $(PYTEST_ARGS)

drills: $(STAMP) ## the tests that take minutes: crashes, simulations, load
	$(BIN)/python -m pytest -m drill -o faulthandler_timeout=7200 $(PYTEST_ARGS)

recorded-runs: $(STAMP) ## tests/proof/recorded_runs.txt: digests of simulated runs, after a change of their behaviour
	PYTHONPATH=tests $(BIN)/python -m support.proof.recorded_runs

explored: $(STAMP) ## the searches of the explorer, and their table on the guarantees page
	PYTHONPATH=tests $(BIN)/python -m support.proof.exploration_table

up: $(STAMP) ## the demo app with API, dashboard and worker at http://127.0.0.1:8400
	$(BIN)/detent up examples/demo.py:app

docs: $(STAMP) ## the documentation site in build/site, checked and without network
	$(BIN)/python -m tools.docs

sql: $(STAMP) ## docs/sql: the claim statements of Postgres as they are sent
	PYTHONPATH=tests $(BIN)/python -m support.postgres.claim_pages

openapi: $(STAMP) ## docs/openapi.json: the OpenAPI document of the REST API
	PYTHONPATH=tests $(BIN)/python -m support.web.openapi_file

screenshots: $(STAMP) ## every page of the dashboard as a picture, in ./screenshots
	PYTHONPATH=tests $(BIN)/python -m dashboard.screenshots

pictures: $(STAMP) ## docs/pictures: a page of the dashboard and a terminal session, drawn from real ones
	PYTHONPATH=tests $(BIN)/python -m dashboard.picture
	$(BIN)/python -m tools.docs.terminal_picture

bench: $(STAMP) ## the short benchmark
	$(BIN)/python -m bench

bench-install: $(STAMP) ## the environments of the peers the benchmark compares with
	$(BIN)/python -m bench --install

bench-full: $(STAMP) ## the full benchmark
	$(BIN)/python -m bench --full

format: $(STAMP) ## rewrite the code in the house format
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .
	$(BIN)/deno fmt --quiet

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# An existing .venv is kept if it has a working pip and a Python that is new enough.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Detent needs Python 3.11 or newer; '$(PYTHON)' is missing or older."; \
	  echo "Install one, or name it: make PYTHON=python3.12 venv"; exit 1; }
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	  || $(PYTHON) -m venv --clear $(VENV) && $(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  echo "'$(PYTHON) -m venv' could not make an environment with pip in it."; \
	  echo "Debian, Ubuntu: apt install python3-venv python3-pip"; \
	  echo "Fedora: dnf install python3-pip    Alpine: apk add py3-pip"; \
	  echo "Elsewhere: a Python that was built with ensurepip, then: make PYTHON=/its/path venv"; exit 1; }
	$(BIN)/python -m pip install --quiet -e '.[all,dev]' -c constraints.txt
	@touch $@
