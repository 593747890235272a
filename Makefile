# Everything runs in .venv, which is made when it is missing. A machine needs python3 (3.11 or newer), pip, gcc and make.
#
#   make up                  three nodes on 127.0.0.1: 5672, 5673, 5674; installs the node alone
#   make setup test          the tests for each commit; installs all that tests need
#   make run                 a node on 127.0.0.1:5672
#
# ARGS go to the command behind a target: make test ARGS="-k topic", make run ARGS="--config my.conf".

PYTHON ?= python3
LISTEN ?= 127.0.0.1:5672
BASE_PORT ?= 5672
FUZZ_S ?= 60
ROUNDS ?= 100
SEED ?= 1
MINUTES ?= 10
CRASHES ?= 5000
SEEDS ?= 200
RING_SEEDS ?= 20000
MIRROR_SEEDS ?= 200
SAFETY_SEEDS ?= 20000
LIVENESS_SEEDS ?= 5000
ARGS ?=

ROOT := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
BIN := .venv/bin
INSTALLED_NODE := .venv/.installed-node
INSTALLED := .venv/.installed
INSTALLED_FUZZ := .venv/.installed-fuzz
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RABBITMQ := /usr/lib/rabbitmq/bin/rabbitmq-server

# Whatever goes wrong with .venv, nothing is ever installed into the machine's own Python.
export PIP_REQUIRE_VIRTUALENV := 1

.PHONY: setup up run test test-all check bench conformance fuzz crashes faults cluster-faults mirror-faults chaos chaos-sites audit sim rebalance-demo screenshots proto clean

setup: $(INSTALLED)

up: $(INSTALLED_NODE)
	@mkdir -p var
	exec $(BIN)/fluffle cluster --data var/cluster --base-port $(BASE_PORT) $(ARGS)

run: $(INSTALLED_NODE)
	@mkdir -p var
	exec $(BIN)/fluffle start --data var/node --listen $(LISTEN) $(ARGS)

# What to run before each commit: at most five minutes. ARGS that name files run these alone, all that is in them.
test: $(INSTALLED)
	$(BIN)/python -m tests.run_gate fast $(ARGS)

# All tests, in lanes beside each other: at most thirty minutes. Needs Java, Chromium and, for some, root.
test-all: $(INSTALLED)
	$(BIN)/python -m tests.run_gate all $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_import_rules.py tests/test_tidy.py tests/test_tidy_facts.py tests/test_tidy_references.py \
		tests/test_tidy_style.py

bench: $(INSTALLED)
	$(BIN)/python -m bench $(ARGS)

conformance: $(INSTALLED)
	@test -x $(RABBITMQ) || { echo "make conformance: needs RabbitMQ 3.10, Debian's package rabbitmq-server"; exit 1; }
	FLUFFLE_TEST_AGAINST=rabbitmq $(BIN)/python -m pytest tests/conformance $(ARGS)

fuzz: $(INSTALLED_FUZZ)
	@mkdir -p var/fuzz
	for target in tests/fuzz/atheris_*.py; do \
	  $(BIN)/python "$$target" -max_total_time=$(FUZZ_S) -artifact_prefix=var/fuzz/ $(ARGS) || exit 1; done

crashes: $(INSTALLED)
	FLUFFLE_CRASHES=$(CRASHES) $(BIN)/python -m pytest -s tests/node/store/test_crashes.py $(ARGS)

faults: $(INSTALLED)
	$(BIN)/python -m tests.durability.kill_loop --rounds $(ROUNDS) --seed $(SEED) $(ARGS)

cluster-faults: $(INSTALLED)
	$(BIN)/python -m tests.chaos.cluster_faults --rounds $(ROUNDS) --seed $(SEED) $(ARGS)

mirror-faults: $(INSTALLED)
	$(BIN)/python -m tests.chaos.mirror_faults --rounds $(ROUNDS) --seed $(SEED) $(ARGS)

# Also under RabbitMQ: ARGS="--against rabbitmq". Best as root, in network namespaces, with haproxy.
chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos.run --minutes $(MINUTES) --seed $(SEED) $(ARGS)

# Two sites in network namespaces; needs root, ip and iptables.
chaos-sites: $(INSTALLED)
	$(BIN)/python -m tests.chaos.two_sites --minutes $(MINUTES) --seed $(SEED) $(ARGS)

audit: $(INSTALLED)
	$(BIN)/python -m tests.security.audit $(ARGS)

sim: $(INSTALLED)
	SEEDS=$(SEEDS) RING_SEEDS=$(RING_SEEDS) MIRROR_SEEDS=$(MIRROR_SEEDS) $(BIN)/python -m pytest -s tests/sim $(ARGS)
	$(BIN)/python -m tests.sim.world_runner --safety $(SAFETY_SEEDS) --liveness $(LIVENESS_SEEDS)

# Three nodes with an uneven load, a plan for them, the plan applied, and a report. Needs Java.
rebalance-demo: $(INSTALLED)
	@mkdir -p var
	$(BIN)/python -m examples.rebalance_demo --folder var/rebalance-demo $(ARGS)

# The pictures of the documents. Needs Chromium.
screenshots: $(INSTALLED)
	$(BIN)/python -m tests.ui.screenshots docs/screenshots $(ARGS)

# A new NAME.proto: make an empty NAME_pb2.py beside its user first.
proto: $(INSTALLED)
	for proto in proto/*.proto; do \
	  module=$$(find cluster -name "$$(basename "$$proto" .proto)_pb2.py"); \
	  test -n "$$module" || { echo "$$proto: make an empty NAME_pb2.py beside its user first"; exit 1; }; \
	  folder=$$(dirname "$$module"); \
	  $(BIN)/python -m grpc_tools.protoc -I proto --python_out="$$folder" --pyi_out="$$folder" "$$proto" || exit 1; done

# Leaves var, where a node that `make run` started keeps its data.
clean:
	cd "$(ROOT)" && rm -rf .venv build dist fluffle.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	cd "$(ROOT)" && find node cluster tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian's python3 has no ensurepip unless python3-venv is installed; then the machine's own pip fills the environment.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fluffle needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv || { $(PYTHON) -m venv --without-pip .venv && \
	  $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check pip; }

# The node and nothing else: what `make up` and `make run` need. Where all is installed it is there.
$(INSTALLED_NODE): pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) --editable .
	@touch $@

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $(INSTALLED_NODE) $@

$(INSTALLED_FUZZ): $(INSTALLED)
	$(PIP_INSTALL) --editable '.[fuzz]'
	@touch $@
