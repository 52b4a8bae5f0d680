# Sennit's everyday verbs; `make help` lists them. CARGO_TARGET_DIR is honoured.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test bench torture planted fuzz fmt audit

export CARGO_TARGET_DIR ?= $(CURDIR)/target
export PATH := $(CARGO_TARGET_DIR)/tools/bin:$(PATH)

SECONDS ?= 10

help: ## List these verbs
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10
	@sed -n 's/^#   \(TORTURE_[A-Z_]*=\)/            \1/p' .ci/torture

run: ## Build the broker and serve from ./data (Ctrl-C stops it)
	@cargo build --release -p sennit
	@exec "$(CARGO_TARGET_DIR)/release/sennit" serve --data data

test: ## All that a change must pass (installs what it needs); test-lint, test-browser and so on are its parts
	@.ci/test

test-%:
	@.ci/test $*

bench: ## Measure the broker on this machine
	@cargo build --release -p sennit
	@for workload in publish burst steady round-trip lifecycle; do \
	    "$(CARGO_TARGET_DIR)/release/sennit" bench $$workload --serve --probe --runs 3; \
	done
	@for workload in restart checkpoint catch-up; do \
	    "$(CARGO_TARGET_DIR)/release/sennit" bench $$workload; \
	done

torture: ## The long runs, within 180 minutes on two cores: simulator, kill -9 loops, planted bugs, soak, fuzzing; longer with the variables below
	@.ci/torture

torture-%:
	@.ci/torture $*

planted: ## Plant a storage bug after the other: the simulator has to find each
	@sim/planted/run

fuzz: ## Fuzz every decoder (SECONDS=10 each)
	@fuzz/run $(SECONDS)

fmt: ## Format all code
	@cargo fmt --all
	@cargo fmt --manifest-path fuzz/Cargo.toml

audit: test-tools ## Ask the advisory database about our dependencies (needs the network)
	@cargo deny check advisories
