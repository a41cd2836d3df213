# Apportion's commands. Each installs what it needs first (scripts/setup). Only a command's result goes to stdout.
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: setup build test demo bench doc

# Installs what this machine lacks, ONNX Runtime's library included; safe to run again.
setup:
	@scripts/setup

# The programs, optimised: $(TARGET)/release/apportion and $(TARGET)/release/apportion-agent.
build: setup
	@cargo build --release --bin apportion --bin apportion-agent 1>&2

# Every test. The programs are built first: the scenarios in tests/ run them.
test: setup
	@scripts/setup tests
	cargo build --workspace --bins
	@if cargo nextest --version >/dev/null 2>&1; then \
		echo cargo nextest run --workspace; cargo nextest run --workspace; \
	else \
		echo cargo test --workspace --tests; cargo test --workspace --tests; \
	fi
	cargo test --workspace --doc

# Plans, deploys, loads and replans examples/digits on this machine; ARGS goes to `apportion demo`.
demo: build
	@exec "$(TARGET)/release/apportion" demo $(ARGS)

# The benchmarks that docs/benchmarks.md reports.
bench: setup
	cargo bench --workspace --benches

# The documentation of all crates, in $(TARGET)/doc.
doc: setup
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
