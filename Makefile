# The project's commands. Each installs its missing prerequisites (scripts/bootstrap.sh) and prints them.

SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin

PROFILE ?= release
# The program that the environment names, if any; otherwise one is built.
BUILT := $(KILONOVA)
# Cargo's output directory for the profile.
BUILD = target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
KILONOVA ?= $(BUILD)/kilonova
BENCH = $(BUILD)/kilonova-bench
STATE ?= state
LISTEN ?= 127.0.0.1:8774
NODES ?= examples/nodes/demo.toml
BODIES ?= 1000000
SEED ?=
ARGS ?=
OLD ?=
# The traces of `make bench-packing`.
TRACES ?= ../shared/traces/openb
# The runner of upstream's cases is outside this repository; without it they are skipped.
CASES := $(if $(wildcard ../shared/peers/placement/conformance.py),conformance)

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-upgrade test-tls suites placement-conformance placement-differential run bench bench-placement bench-accelerators bench-packing bench-packing-api bench-dashboard pictures wire-compute fuzz lab lab-up lab-down build deb fmt lint deny

help: ## List these commands
	@echo "Kilonova: servers with GPUs, vGPUs and FPGAs, for the unchanged OpenStack clients."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make run takes STATE (default: $(STATE)), LISTEN ($(LISTEN)) and NODES ($(NODES))"
	@echo "  ARGS=... passes arguments to the program, for example: make demo ARGS=--verbose"

# Unoptimized: building takes longer than the demo.
demo: PROFILE = dev
demo: build ## Run the main story from scratch with the stock openstack client, and check it
	@scripts/bootstrap.sh clients
	@python3 scripts/demo.py --kilonova $(KILONOVA) $(ARGS)

test: ## Run every test on SQLite and PostgreSQL, then the demo and the kill -9 runs
	@scripts/bootstrap.sh build nextest deny
	@KILONOVA_INSTALL="postgres objectstore clients haproxy $(CASES)" scripts/test.sh $(ARGS)

test-long: ## Run the tests with more repetitions (kills, concurrent claims, random requests); takes hours
	@KILONOVA_NEXTEST=long KILONOVA_CRASHES=all KILONOVA_NUMA_STEPS=1000 KILONOVA_KILLS=60 KILONOVA_STRIKES=1000 KILONOVA_LONGEST=90 KILONOVA_CLAIMS=100000 KILONOVA_FUZZ=100000 KILONOVA_FUZZ_BODIES=200000 $(MAKE) --no-print-directory test

test-upgrade: ## Upgrade an earlier build (OLD=program) killed in the middle of every operation, on both databases
	@scripts/bootstrap.sh build postgres
	@KILONOVA_OLD=$(OLD) scripts/test.sh upgrade

test-tls: ## Run all of the clients' commands over TLS, and again behind haproxy
	@scripts/bootstrap.sh build postgres clients haproxy
	@KILONOVA_WHOLE=1 scripts/test.sh tls

placement-conformance: ## Run upstream's Placement cases on both databases, and every osc-placement command
	@scripts/bootstrap.sh build postgres clients $(CASES)
	@scripts/test.sh placement

suites: build ## Run tempest and the clients' own functional tests; ARGS names suites; not part of test
	@scripts/bootstrap.sh suites
	@python3 scripts/suites.py --kilonova $(KILONOVA) $(ARGS)

wire-compute: ## Check every compute operation against upstream's OpenAPI document
	@scripts/bootstrap.sh build nextest
	@cargo nextest run --locked -p kilonova-wire-tests --success-output immediate --no-tests fail $(ARGS)

fuzz: ## Send random bodies to every service on each store: BODIES of them (default 1000000), from SEED
	@scripts/bootstrap.sh build postgres
	@scripts/fuzz.sh $(BODIES) $(SEED)

placement-differential: build ## Compare candidates with upstream Placement's on random provider trees; not part of test
	@scripts/placement_differential.sh $(KILONOVA) $(ARGS)

run: build ## Start the all-in-one system, ready for a first server (docs/quickstart.md)
	@exec $(KILONOVA) serve --dev --state-dir $(STATE) --listen $(LISTEN) --nodes $(NODES) $(ARGS)

bench: bench-programs ## Print the benchmark tables for SQLite and PostgreSQL
	@scripts/bootstrap.sh postgres
	@scripts/bench.sh $(KILONOVA) $(BENCH) $(ARGS)

bench-placement: bench-programs ## Measure Placement requests to Kilonova and to upstream
	@scripts/placement_bench.sh $(KILONOVA) $(BENCH) $(ARGS)

bench-accelerators: bench-programs ## Measure the accelerator API and device reports of Kilonova and of upstream
	@scripts/bootstrap.sh postgres
	@scripts/accelerator_bench.sh $(KILONOVA) $(BENCH) $(ARGS)

bench-packing: ## Replay traces of GPU requests and compare Kilonova's choice of hosts with published policies; TRACES=folder
	@scripts/bootstrap.sh compiler
	@cargo build --profile $(PROFILE) --locked -p kilonova-bench
	@scripts/packing_bench.sh $(BENCH) $(TRACES) $(ARGS)

bench-packing-api: build ## Boot a workload of the trace over HTTP on simulated hosts; TRACES=folder
	@scripts/packing_api.py --kilonova $(KILONOVA) --hosts $(TRACES)/openb_node_list_gpu_node.csv $(ARGS) $(TRACES)/openb_pod_list_default.csv

bench-dashboard: bench-programs ## Measure the dashboard in Chromium with 1,000 hosts and 10,000 servers
	@scripts/bootstrap.sh browser
	@.venv-browser/bin/python scripts/dashboard_bench.py --kilonova $(KILONOVA) $(ARGS)

pictures: build ## Retake the screenshots of docs/dashboard-pages.md
	@scripts/bootstrap.sh clients browser
	@scripts/pictures.sh $(KILONOVA)

lab: lab-programs ## Start two virtual hosts with real devices, run the scenarios with the stock client, tear down
	@python3 lab/lab.py run $(ARGS)

lab-up: lab-programs ## Start the lab and leave it running; print how to enter it
	@python3 lab/lab.py up $(ARGS)

lab-down: ## Stop the lab
	@python3 lab/lab.py down

.PHONY: lab-programs
lab-programs: deb
	@scripts/bootstrap.sh clients

.PHONY: bench-programs
bench-programs:
	@scripts/bootstrap.sh compiler
	@cargo build --profile $(PROFILE) --locked $(if $(BUILT),,-p kilonova) -p kilonova-bench

build: ## Build target/release/kilonova; PROFILE=traceable adds line numbers to backtraces
	@scripts/bootstrap.sh compiler
	@[ -n "$(BUILT)" ] || cargo build --profile $(PROFILE) --locked -p kilonova

# Packages of an unoptimized build are only for the lab, so they are compressed fast: good compression takes minutes.
# They contain the programs that the tests have built, with the features of the whole workspace.
deb: DEB_FAST = $(if $(filter dev,$(PROFILE)),--fast)
deb: DEB_BUILD = $(if $(filter dev,$(PROFILE)),--workspace --bin kilonova --bin kilonova-agent,-p kilonova -p kilonova-agent)
deb: ## Build Debian packages of kilonova and kilonova-agent in target/debian
	@scripts/bootstrap.sh build deb
	@cargo build --profile $(PROFILE) --locked $(DEB_BUILD)
	@scripts/completion.sh $(notdir $(BUILD))
	@cargo deb --locked --no-build --profile $(PROFILE) $(DEB_FAST) -p kilonova
	@cargo deb --locked --no-build --profile $(PROFILE) $(DEB_FAST) -p kilonova-agent

fmt: ## Format the Rust code
	@cargo fmt --all

lint: ## Check formatting, clippy and the scripts' syntax
	@scripts/bootstrap.sh build
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked -- -D warnings
	@for script in .ci/run scripts/*.sh; do bash -n $$script || exit 1; done
	@bash -n lab/files/lab-node && bash -n lab/files/lab-ready && sh -n lab/files/node-early && sh -n lab/files/guest-init
	@python3 -m compileall -q scripts lab

deny: ## Check the dependencies' licences, sources and bans, and advisories if their database is reachable
	@scripts/bootstrap.sh build deny
	@scripts/deny.sh settled
	@if scripts/deny.sh reach; then scripts/deny.sh advisories; fi
