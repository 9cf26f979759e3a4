# `make` prints what there is. Recipes are plain sh; everything installed lives in .venv.

PYTHON       ?= python3
PYTEST_FLAGS ?=
RUNS         ?= 1000
SEED         ?= 0

BIN   := .venv/bin
STAMP := .venv/.installed
CODE  := $(wildcard src tests tools bench examples)

# Without bytecode each process that tests start compiles all anew: half of the time of collecting tests.
unexport PYTHONDONTWRITEBYTECODE

# $(call pytest,markers): the tests with these markers; Spark's in one session of their own, which they share.
define pytest
	$(BIN)/python -m pytest -m '($(1)) and not spark' -n auto --dist worksteal --timeout=1800 $(PYTEST_FLAGS)
	$(BIN)/python -m pytest -m '($(1)) and spark' --timeout=1800 $(PYTEST_FLAGS)
endef

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup fmt lint docs compiled test check ci soak sim brokers bench demo tidy clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  PYTHON=python3.12 chooses the interpreter of setup; PYTEST_FLAGS="-k name" goes to pytest.'

setup: $(STAMP)  ## make .venv and install the package with all that tests, bench and demo need
	@echo 'Ready: the package and its tools are in .venv.'

$(STAMP): pyproject.toml
	@command -v '$(PYTHON)' >/dev/null || { \
	    echo 'There is no "$(PYTHON)" here. Install Python 3.11 or newer, or name one: make setup PYTHON=python3.12' >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo 'Quiver needs Python 3.11 or newer. Name one: make setup PYTHON=python3.12' >&2; exit 1; }
	@'$(PYTHON)' -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo 'This Python cannot make virtual environments. Install its venv module (on Debian and Ubuntu: apt install python3-venv) and run make setup again.' >&2; exit 1; }
	test -x $(BIN)/python || '$(PYTHON)' -m venv .venv
	@echo 'Installing into .venv: some minutes and 1.8 GB the first time, with Spark and a Java for it …'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	@touch $@

fmt: $(STAMP)  ## format the code, fix what can be fixed safely, generate what is generated
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/python tools/faces.py

lint: $(STAMP)  ## ruff, formatting, types, imports, generated code, and that only values cross the seams
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/faces.py --check
	$(BIN)/python tools/seam.py src/quiver

compiled: $(STAMP)
	@$(BIN)/python -m compileall -q src tests  # once, not by each of the processes that tests start

# How many examples the tests make up; `HYPOTHESIS_PROFILE=hunt make test` looks for new ones.
test: export HYPOTHESIS_PROFILE ?= test
check: export HYPOTHESIS_PROFILE ?= check
ci: export HYPOTHESIS_PROFILE ?= ci
soak: export HYPOTHESIS_PROFILE ?= soak

test: compiled  ## the quick tests, Spark's included: at most four minutes
	$(call pytest,not (check or slow or soak))

docs: $(STAMP)  ## the docs as a site with a search, in build/site; a link that leads nowhere is an error
	$(BIN)/sphinx-build -q -E -W --keep-going -n -c docs . build/site
	@echo 'The site is build/site/index.html.'

check: lint docs compiled  ## what to run before a commit: lint and all tests but the slow ones; at most ten minutes
	$(call pytest,not (slow or soak))

ci: lint docs compiled  ## what CI runs: all tests but the full counts; at most forty minutes
	$(call pytest,not soak)

soak: compiled  ## every test with its full counts: hours
	$(call pytest,slow or not slow)

sim: $(STAMP)  ## simulate clusters of peers with faults: RUNS= seeds from SEED= on, on all cores
	$(BIN)/python -m tests.raft.simulation --runs $(RUNS) --first $(SEED) --jobs 0

brokers: $(STAMP)  ## fetch Kafka, ElasticMQ and NATS for bench, into .brokers (needs mvn)
	$(BIN)/python -m bench.brokers.fetch

bench: $(STAMP)  ## measure, next to the peers that are there
	$(BIN)/python -m bench

demo: $(STAMP)  ## an order system with failures, crashes, a count, and Spark at the end
	$(BIN)/quiver demo

tidy: $(STAMP)  ## print the ten longest functions and files
	$(BIN)/python tools/tidy.py src

clean:  ## remove caches and build output (not .venv)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
