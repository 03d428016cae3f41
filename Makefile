# Every target that needs the environment sets it up first; if nothing changed, this takes no time.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# For example: make setup PYTHON=/opt/python3.12/bin/python3; make fuzz SECONDS=600; make test ARGS="-k mmr"
SECONDS ?= 60
KILLS ?= 50
EVENTS ?= 3000000
ARGS ?=
export PYTHON
# Some machines tell Python to write no compiled modules. The tests start hundreds of programs, and each of them would
# compile everything again, which would take half of its time.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python

# The stamp's name holds a checksum of this directory's path: a tree that was copied or moved together with its
# .venv is set up again, because the environment holds absolute paths.
STAMP := .ready-$(shell pwd -P | cksum | cut -d ' ' -f 1)
READY := .venv/$(STAMP)
UNIT_READY := .venv-unit/$(STAMP)
UNIT_TESTS := $(addprefix tests/,stdx core admission overlays query storage)
LOCKS := pyproject.toml requirements.lock requirements-build.lock

.PHONY: help setup run test unit lint ci fmt fix bench browser docs fuzz faults folds kills streams lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## set up .venv from the lock files and find a Java runtime (other targets do this automatically)

$(READY): $(LOCKS) tools/setup.sh
	@sh tools/setup.sh
	@touch $@

$(UNIT_READY): $(LOCKS) tools/setup.sh tools/unit_lock.py
	@sh tools/setup.sh unit
	@touch $@

run: $(READY) ## run a demo of the protocol, end to end
	@.venv/bin/veen demo $(ARGS)

# One process more than cores, because many tests wait for a hub or a disk. tests/process_groups.py decides which tests
# share a process, so that only one Spark runs in it at a time.
test: $(READY) ## run all tests
	@$(PY) -m pytest -n $$(( $$(nproc) + 1 )) --maxprocesses 8 $(ARGS)

unit: $(UNIT_READY) ## run the quick tests of the packages that need neither Spark nor Java, in an environment of its own
	@.venv-unit/bin/python -m pytest -q -n $$(nproc) --maxprocesses 8 -m "not slow and not sweep" $(UNIT_TESTS) $(ARGS)

lint: $(READY) ## check with ruff, mypy, import contracts and the tidy tests
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-logo
	@$(PY) -m pytest -q tests/tidy

ci: lint test ## run lint and test: both must pass before a change is accepted

fmt: fix

fix: $(READY) ## fix what ruff can fix, and format
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: $(READY) ## measure speed as ratios to the bare primitives
	@$(PY) -m bench $(ARGS)

# For example: make browser CHROMIUM=/opt/chromium/chrome
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
browser: $(READY) ## send requests of foreign web pages with a real Chromium, if installed (CHROMIUM names it)
	@VEEN_BROWSER="$(CHROMIUM)" $(PY) -m pytest -q -n 0 -rs tests/browser $(ARGS)

faults: $(READY) ## run long fault injection: every byte of a store flipped, 1000 random histories, 1000 malformed requests
	@VEEN_REQUEST_EXAMPLES=1000 VEEN_FLIP_STEP=1 VEEN_SWEEP_SEEDS=2 VEEN_MACHINE_EXAMPLES=1000 $(PY) -m pytest -q -n 2 --timeout 3600 tests/storage tests/hub/api/test_generated_requests.py $(ARGS)

folds: $(READY) ## compare folds with their references, in ranges and on Spark: EVENTS events (default 3000000)
	@VEEN_FOLD_EVENTS=$(EVENTS) VEEN_FOLD_SEEDS=20 VEEN_FOLD_RANGES=40 VEEN_FOLD_PARTS=64 $(PY) -m pytest -q -n 2 --timeout 3600 tests/overlays/wallet/test_overlay_random.py tests/overlays/test_random.py tests/overlays/test_laws.py tests/overlays/test_ranges.py tests/pipeline/fold/test_job.py $(ARGS)

streams: $(READY) ## kill Spark jobs and damage logs, KILLS times each (default 50)
	@VEEN_PIPELINE_KILLS=$(KILLS) VEEN_PIPELINE_DAMAGES=$(KILLS) $(PY) -m pytest -q -n 0 --timeout 7200 -k "kill or damage or random" tests/pipeline $(ARGS)

kills: $(READY) ## kill a hub under load, KILLS times (default 50)
	@VEEN_KILLS=$(KILLS) $(PY) -m pytest -q -k kills tests/hub/test_process_killed.py $(ARGS)

docs: $(READY) ## generate the reference pages, then build the site in site/ and check every link
	@$(PY) -m tools.gen_docs $(ARGS)
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

fuzz: $(READY) ## feed random input to the parsers for SECONDS (default 60)
	@$(PY) -m fuzz --seconds $(SECONDS) $(ARGS)

lock: ## resolve package versions and write the lock files (needs uv)
	@sh tools/lock.sh $(ARGS)

clean: ## remove the environments and all caches
	rm -rf .venv .venv-unit .setup.lock .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov dist build site
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
