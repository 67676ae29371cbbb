# Everything a newcomer needs. `make demo` and `make test` set themselves up.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
STAMP := $(VENV)/.synced
WHOLE := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# Tests start hundreds of processes of Python: each would compile what it imports, half of its
# start, where wheels came without bytecode or the user wants none beside the sources (D254).
unexport PYTHONDONTWRITEBYTECODE
BYTECODE := $(VENV)/bytecode
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(BYTECODE)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-postgres test test-unit class-archive test-parts test-steps test-storage test-adapter test-app test-operators test-models test-integration test-services test-environments test-replica test-long test-long-services test-long-units test-long-properties e2e e2e-long e2e-images check format lint types dependencies lock protocol up bench clean

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: $(STAMP) ## bootstrap uv and the locked dependencies into .venv

$(STAMP): requirements.lock pyproject.toml
	@test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(RUN)/uv || $(RUN)/python -m pip install --quiet --disable-pip-version-check uv
	@rm -rf $(BYTECODE) # of a package of another version, with files of the same size and date
	$(RUN)/uv pip sync --quiet --python $(RUN)/python --require-hashes requirements.lock
	$(RUN)/uv pip install --quiet --python $(RUN)/python --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## run the main job on an embedded Kafka, with real data, and check it
	$(RUN)/slackwater demo

demo-postgres: setup ## the same, and the views in a PostgreSQL, checked in SQL at every commit
	$(RUN)/slackwater demo --postgres

test: setup ## every change: all that proves correctness, on a real broker and Spark too
	@echo "those that compute beside those that wait: each run is shown when it has ended"
	@$(BESIDE) --jobs=6 LATER=class-archive test-parts test-adapter test-steps test-replica test-services test-environments test-models test-app test-storage test-operators

# Spark's classes are archived beside the first three, and the others begin behind it.
test-app test-storage test-operators test-models: $(LATER)

BESIDE := $(MAKE) --no-print-directory --keep-going $(WHOLE)
UNIT := -m "not integration and not e2e and not long"
OPERATORS := tests/unit/operators
ADAPTER := tests/unit/adapter
APP := tests/unit/app
STEPS := tests/unit/replica tests/unit/http
STORAGE := tests/unit/storage tests/unit/connectors tests/unit/compaction
MODELS := tests/model tests/contract

test-unit: setup ## those of `make test` that look at one part, without broker and Spark
	@$(BESIDE) --jobs=6 test-operators test-storage test-adapter test-steps test-parts test-app

test-parts: setup # those of `make test-unit` but those of the next five
	$(RUN)/python -m pytest $(UNIT) $(OPERATORS:%=--ignore=%) $(ADAPTER:%=--ignore=%) $(APP:%=--ignore=%) $(STEPS:%=--ignore=%) $(STORAGE:%=--ignore=%) $(MODELS:%=--ignore=%)

test-steps: setup # the replica without Spark
	$(RUN)/python -m pytest $(UNIT) $(STEPS)

test-storage: setup # shards, connectors and compaction
	$(RUN)/python -m pytest $(UNIT) $(STORAGE)

test-adapter: setup # the coordinator
	$(RUN)/python -m pytest $(UNIT) $(ADAPTER)

test-app: setup # the command line
	$(RUN)/python -m pytest $(UNIT) $(APP)

test-operators: setup # the operators; in `make test` once another run has ended
	$(RUN)/python -m pytest $(UNIT) $(OPERATORS)

test-models: setup ## those of `make test` that run several parts, and connectors, against a model
	$(RUN)/python -m pytest $(UNIT) $(MODELS)

test-integration: test-services test-environments test-replica ## the tests of `make test` on a real broker and real Spark

OUTSIDE := tests/contract tests/integration
REPLICA := tests/integration/replica
ENVIRONMENTS := tests/integration/adapter

class-archive: setup # so that each Spark of the tests starts in half the processor time
	@$(RUN)/python -m streams.replica.spark.class_archive

test-services: class-archive # those of `make test-integration` but those of the next two
	$(RUN)/python -m pytest -m "integration and not long" $(OUTSIDE) --ignore=$(REPLICA) --ignore=$(ENVIRONMENTS)

test-environments: class-archive # those of whole environments, which wait for their processes
	$(RUN)/python -m pytest -m "integration and not long" $(ENVIRONMENTS)

test-replica: class-archive # the replica's
	$(RUN)/python -m pytest -m "integration and not long" $(REPLICA)

test-long: setup ## before a release: searches, kill matrices and soaks at full length
	@$(BESIDE) --jobs=3 test-long-services test-long-units test-long-properties

test-long-services: class-archive # those of `make test-long` on a real broker and real Spark
	$(RUN)/python -m pytest -m "long and integration and not e2e" $(OUTSIDE)

test-long-units: setup # those without
	$(RUN)/python -m pytest -m "long and not integration and not e2e and not hypothesis"

test-long-properties: setup # those that Hypothesis draws examples for, with many and new ones
	$(RUN)/python -m pytest -m "hypothesis and not integration" --hypothesis-profile=long

E2E := set -a; . $(VENV)/e2e-images; $(RUN)/python -m pytest tests/e2e

e2e: e2e-images ## images in containers, broken one by one; needs a container engine, or root on Debian
	$(E2E) -m "e2e and not long"

e2e-long: e2e-images ## every fault of every part, three brokers, a Spark cluster, an upgrade
	docker/engine.sh earlier >>$(VENV)/e2e-images
	$(E2E) -m e2e

e2e-images: setup # the engine too
	docker/engine.sh start
	docker/engine.sh images >$(VENV)/e2e-images

check: lint types dependencies ## linters, types, and what is declared against what is used

lint: setup
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

types: setup
	$(RUN)/mypy

PRODUCT := connectors docker schemas streams

dependencies: setup
	$(RUN)/uv pip check --quiet --python $(RUN)/python
	$(RUN)/deptry --no-ansi $(PRODUCT)
	$(RUN)/deptry --no-ansi --ignore DEP002,DEP004 tests

format: setup ## format the code
	$(RUN)/ruff format .
	$(RUN)/ruff check --fix .

lock: ## resolve the dependencies again into requirements.lock
	$(RUN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --upgrade \
	  --group dev pyproject.toml -o requirements.lock

PROTOCOL := $(wildcard schemas/*.proto)

protocol: setup ## generate the messages of the materialization protocol from schemas/*.proto
	$(RUN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $(PROTOCOL)

up: setup ## start an environment on an embedded Kafka
	$(RUN)/slackwater up

bench: setup ## run the benchmarks that need no other program: half an hour
	$(RUN)/slackwater bench all

clean: ## remove what the tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
