# A new machine needs Python 3.10 or later with pip and venv, make and git; everything else comes with `make setup`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Tests and the demo start hundreds of processes; without compiled code each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo example test test-fast test-fast-agent test-fast-commands-a-h test-fast-commands-i-w test-fast-plans test-fast-rest test-units test-units-commands test-units-plans test-units-rest test-ray test-ray-a-f test-ray-g-s test-ray-t-z test-placement test-thorough test-life test-long test-engines lint bench bench-placement bench-replicas chaos life loop hostile hostile-cluster fuzz-fmt mutants schemas requirements clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

setup: $(READY) ## make .venv with the pinned dependencies and the fleetctl command

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "fleetctl needs Python 3.10 or later")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned dependencies into $(VENV); the first time this takes one to five minutes"
	@$(PIP) install --no-compile --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/|/ray/(data|llm|rllib|serve|train|tune)/|/pip/' $(VENV)/lib || \
		true  # some packages bring files for other Pythons
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

demo: setup ## a local Ray of four nodes: plan, apply, query an engine, take it all down
	@$(BIN)/fleetctl demo run

example: setup ## a real model on CPUs in the demo cluster: start two replicas, ask them, take it all down
	@PATH="$(CURDIR)/$(BIN):$$PATH" fleets/real-model/run.sh

MEASURED := $(BIN)/python tests/measured.py

test: setup ## the whole test suite, real Ray clusters and a real browser included
	@echo "units, properties, documents and pages, beside what runs on clusters of this machine; each prints when it is done"
	@+$(MEASURED) $(MAKE) --no-print-directory --jobs=6 --output-sync=target $(UNIT_PARTS) $(RAY_PARTS)

test-fast: setup ## at the desk, under two minutes: no Ray, no browser, few processes, a tenth of the random cases
	@+$(MEASURED) $(MAKE) --no-print-directory --jobs=5 --output-sync=target $(FAST_PARTS)

FAST := FLEETCTL_TEST_CASES=0.1 $(BIN)/python -m pytest -q -m 'not ray and not browser and not slow and not long'
FAST_PARTS := test-fast-commands-i-w test-fast-commands-a-h test-fast-agent test-fast-plans test-fast-rest
AGENT := tests/agent tests/life
COMMANDS := tests/watch tests/cli tests/docs tests/hostile
PLANS := tests/planner tests/review tests/fleetfile tests/importers tests/ci tests/forge

test-fast-agent: setup
	@$(FAST) $(AGENT)

test-fast-commands-a-h: setup
	@$(FAST) tests/docs tests/hostile tests/cli/test_[a-h]*.py

test-fast-commands-i-w: setup
	@$(FAST) tests/watch tests/cli/test_[i-w]*.py

test-fast-plans: setup
	@$(FAST) $(PLANS)

test-fast-rest: setup
	@$(FAST) tests $(AGENT:%=--ignore=%) $(COMMANDS:%=--ignore=%) $(PLANS:%=--ignore=%)

# They give way to what runs on clusters, which waits a lot and would otherwise be the last to end, on idle cores.
UNITS := nice -n 5 $(BIN)/python -m pytest -m 'not ray and not long'
UNIT_PARTS := test-units-commands test-units-plans test-units-rest

test-units: setup ## what needs no Ray: three parts, side by side
	@+$(MAKE) --no-print-directory --jobs=3 --output-sync=target $(UNIT_PARTS)

test-units-commands: setup
	@$(UNITS) $(COMMANDS)

test-units-plans: setup
	@$(UNITS) $(PLANS)

test-units-rest: setup
	@$(UNITS) tests $(COMMANDS:%=--ignore=%) $(PLANS:%=--ignore=%)

test-placement: setup ## plans of over 4,000 random fleets against the optimum that CP-SAT finds
	@FLEETCTL_TEST_CASES=8 $(BIN)/python -m pytest tests/planner/test_optimality.py tests/planner/test_variant_optimality.py

test-thorough: setup ## what needs no Ray, with 40 times as many random cases as make test: half an hour
	@FLEETCTL_TEST_CASES=8 $(BIN)/python -m pytest -m 'not ray'

test-life: setup ## 3,000 random sequences of verbs, applies and faults on a model of a cluster: ten minutes
	@FLEETCTL_TEST_CASES=50 $(BIN)/python -m pytest tests/life

# A cluster's tests wait a lot, so several parts share the cores, and a cluster costs even where nothing happens, so they
# are few.
RAY := $(BIN)/python -m pytest -m 'ray and not long'
RAY_PARTS := test-ray-a-f test-ray-g-s test-ray-t-z

test-ray: setup ## what runs on real Ray clusters: three parts, side by side
	@+$(MAKE) --no-print-directory --jobs=3 --output-sync=target $(RAY_PARTS)

test-ray-a-f: setup
	@$(RAY) tests/chaos tests/demo tests/e2e/test_[a-f]*.py tests/e2e/test_h*.py

test-ray-g-s: setup
	@$(RAY) tests/e2e/test_[gi-s]*.py

test-ray-t-z: setup
	@$(RAY) tests/e2e/test_[t-z]*.py

test-long: setup ## what takes long and rarely says more than the rest: real clusters, some minutes
	@$(BIN)/python -m pytest -m long

ENGINES := $(CURDIR)/build/engines

test-engines: setup ## real vLLM on CPUs with a tiny model, on a real Ray: installs 3 GB the first time, then ten minutes
	@$(PYTHON) tests/engines/environment.py $(ENGINES)
	@FLEETCTL_TEST_ENGINES=$(ENGINES) $(BIN)/python -m pytest -s --durations=0 tests/engines

lint: setup ## ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: setup ## what loading, planning and starting up cost; the last line of each is one JSON object
	@for bench in tests/benchmarks/[a-z]*.py; do \
		echo "== $$bench"; $(BIN)/python -m "$$(echo "$${bench%.py}" | tr / .)" --json || exit 1; \
	done

FAULTS ?= 500
SEED ?= 1

chaos: setup ## faults of every kind on a real Ray, repaired by applies: FAULTS=500 SEED=1 takes about half an hour
	@$(BIN)/python -m tests.chaos.stages
	@$(BIN)/python -m tests.chaos --faults $(FAULTS) --seed $(SEED)

STEPS ?= 200

life: setup ## verbs, applies and faults in random order on a real Ray: STEPS=200 SEED=1 takes about half an hour
	@$(BIN)/python -m tests.chaos.life --steps $(STEPS) --seed $(SEED)

KILLS ?= 100

loop: setup ## watchers killed at random moments on a real Ray, by a real repository: KILLS=100 SEED=1 takes half an hour
	@$(BIN)/python -m tests.chaos.loop --kills $(KILLS) --seed $(SEED)

CASES ?= 500

hostile: setup ## hostile changes of every kind, in random compositions: CASES=500 SEED=1 takes about 20 minutes
	@$(BIN)/python -m tests.hostile --cases $(CASES) --seed $(SEED)

hostile-cluster: setup ## a cluster full of lies and silent connections: CASES=500 SEED=1 takes some minutes
	@$(BIN)/python -m tests.hostile_cluster --cases $(CASES) --seed $(SEED)

FILES ?= 100000

fuzz-fmt: setup ## mutated fleet files through fmt, judged by another YAML reader: FILES=100000 SEED=1 takes ten minutes
	@$(BIN)/python -m tests.fleetfile.mutants --count $(FILES) --seed $(SEED)

MUTANTS ?= 60

mutants: setup ## small changes of the most dangerous files, which their tests must notice: MUTANTS=60 SEED=1, ten minutes
	@$(BIN)/python -m tests.mutants --most $(MUTANTS) --seed $(SEED)

SEEDS ?= 42-44

bench-placement: setup ## placement on traces and synthetic fleets, a JSON line per result; SEEDS=42-51 as published
	@$(BIN)/python -m tests.benchmarks.placement.suite --seeds $(SEEDS)
	@for kind in planted fragmented selectors gangs vram; do \
		$(BIN)/python -m tests.benchmarks.scale --kind $$kind --json || exit 1; \
	done

REPLICAS ?= 120

bench-replicas: setup ## processor time and memory of REPLICAS=120 replicas on 16 nodes of a real Ray here, beside a plain script's
	@$(BIN)/python -m tests.benchmarks.start.per_replica --replicas $(REPLICAS) --json

schemas: setup ## write schemas/*.json and the tables of docs/fleet-file.md from the models again
	@for name in fleet fleet-part model inventory plan event diff endpoints history history-run; do \
		$(BIN)/fleetctl schema $$name > schemas/$$name.schema.json.new && \
		mv schemas/$$name.schema.json.new schemas/$$name.schema.json || exit 1; \
	done
	@$(BIN)/python tests/documents/fleet_reference.py

requirements: ## pin the dependencies again (needs uv; see CONTRIBUTING.md)
	@for target in "runtime" "dev --extra ray --extra mcp --extra dev"; do \
		set -- $$target; name=$$1; shift; \
		UV_CUSTOM_COMPILE_COMMAND="make requirements" uv pip compile --quiet --upgrade --generate-hashes --universal \
			--python-version 3.10 --no-emit-index-url --no-emit-find-links "$$@" pyproject.toml \
			--output-file requirements/$$name.txt || exit 1; \
	done

.PHONY: dist
dist: setup ## wheel, source archive and SBOM in dist/: the same bytes from any checkout of a commit
	@rm -rf dist
	@export SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}"; \
		$(BIN)/python -m build --no-isolation && $(BIN)/python requirements/sbom.py

clean: ## remove .venv and everything that is built or cached
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
