# Sennit's everyday verbs; `make help` lists them. CARGO_TARGET_DIR is honoured.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test bench torture planted fuzz fmt audit \
        test-tools test-format test-lint test-docs test-licences test-workspace test-conformance \
        test-browser test-summary

export CARGO_TARGET_DIR ?= $(CURDIR)/target
TOOLS := $(CARGO_TARGET_DIR)/tools
export PATH := $(TOOLS)/bin:$(PATH)

SECONDS ?= 10
TORTURE_SECONDS ?= 600
TORTURE_SEEDS ?= 20000
TORTURE_ACTS ?= 5
SOAK_SECONDS ?= 1200
CARGO_DENY := 0.20.2

# $(call step,NAME,COMMAND): runs it and says how long it took.
begun := $(shell date +%s)
step = @begin=$$(date +%s); printf '\n=== $(1)\n'; $(2); printf '=== $(1): %s s\n' "$$(( $$(date +%s) - begin ))"

help: ## List these verbs
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

run: ## Build the broker and serve from ./data (Ctrl-C stops it)
	@cargo build --release -p sennit
	@exec "$(CARGO_TARGET_DIR)/release/sennit" serve --data data

test: test-tools test-format test-lint test-docs test-licences fuzz test-workspace test-conformance test-browser test-summary ## All that a change must pass (installs what it needs)

bench: ## Measure the broker on this machine
	@cargo build --release -p sennit
	@for workload in publish burst steady round-trip lifecycle; do \
	    "$(CARGO_TARGET_DIR)/release/sennit" bench $$workload --serve --probe --runs 3; \
	done
	@for workload in restart checkpoint catch-up; do \
	    "$(CARGO_TARGET_DIR)/release/sennit" bench $$workload; \
	done

torture: ## The long runs: simulator (TORTURE_SEEDS=20000, TORTURE_ACTS=5), kill -9 loops, planted bugs, fuzzing (TORTURE_SECONDS=600 each), soak (SOAK_SECONDS=1200)
	$(call step,torture,SENNIT_TORTURE_SECONDS=$(TORTURE_SECONDS) SENNIT_SIM_SEEDS=$(TORTURE_SEEDS) SENNIT_SIM_SEQUENCE=$(TORTURE_ACTS) cargo test -p sennit-sim -p sennit -p sennit-shard -- --nocapture)
	$(call step,planted bugs,sim/planted/run)
	$(call step,soak,SENNIT_SOAK_SECONDS=$(SOAK_SECONDS) cargo test -p sennit --test process soak -- --nocapture)
	$(call step,fuzzing,fuzz/run $(TORTURE_SECONDS))

planted: ## Plant a storage bug after the other: the simulator has to find each
	$(call step,planted bugs,sim/planted/run)

fuzz: ## Fuzz every decoder (SECONDS=10 each)
	$(call step,fuzzing $(SECONDS) s a target,fuzz/run $(SECONDS))

fmt: ## Format all code
	@cargo fmt --all
	@cargo fmt --manifest-path fuzz/Cargo.toml

audit: ## Ask the advisory database about our dependencies (needs the network)
	@$(MAKE) --no-print-directory test-tools
	@cargo deny check advisories

# What the other steps need and a fresh Debian lacks: two rustup components, a C++ compiler for
# libFuzzer, cargo-deny (docs/decisions/0005-dependencies.md).
test-tools:
	$(call step,tools,$(install-tools))

define install-tools
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt; \
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy; \
if ! command -v c++ >/dev/null; then \
    root=; [ "$$(id -u)" = 0 ] || root=sudo; \
    $$root apt-get update -q; $$root apt-get install -qy g++; \
fi; \
if [ "$$(cargo deny --version 2>/dev/null)" != "cargo-deny $(CARGO_DENY)" ]; then \
    cargo install --quiet --locked --debug --root "$(TOOLS)" cargo-deny@$(CARGO_DENY); \
fi
endef

test-format:
	$(call step,format,cargo fmt --all --check; cargo fmt --manifest-path fuzz/Cargo.toml --check)

test-lint:
	$(call step,lint,cargo clippy --workspace --all-targets --locked -- -D warnings; git apply --check sim/planted/*.patch)

test-docs:
	$(call step,docs,RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked)

test-licences:
	$(call step,licences and dependencies,$(check-licences))

define check-licences
cargo deny check -A license-exception-not-encountered licenses bans sources; \
cargo deny --manifest-path fuzz/Cargo.toml --config "$(CURDIR)/deny.toml" check \
    -A unmatched-skip licenses bans sources
endef

test-workspace:
	$(call step,tests,$(run-tests))

define run-tests
cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$(CARGO_TARGET_DIR)/tests.log" \
    || { $(sum-up); exit 1; }
endef

# Others' words for what the HTTP streams have to do (conformance/README.md). The broker is the one that
# was built for the tests before.
test-conformance:
	$(call step,conformance,$(run-conformance))

define run-conformance
cargo test --workspace --locked --no-run --quiet; \
conformance/durable-streams/run --jobs 1; \
conformance/durable-streams/clients/run; \
conformance/openapi/run
endef

# The example for browsers in Chromium, which comes from Debian if there is none.
test-browser:
	$(call step,browser,$(run-browser))

define run-browser
cargo build -p sennit --locked --quiet; \
examples/ai-answer/test/run
endef

# Closes with the sum over all test programs, in the words of each of them.
test-summary:
	@printf '\nmake test took %s s\n' "$$(( $$(date +%s) - $(begun) ))"
	@$(sum-up)

sum-up = awk '/^test result:/ { passed += $$4; failed += $$6 } END { printf "%d passed, %d failed\n", passed, failed }' "$(CARGO_TARGET_DIR)/tests.log"
