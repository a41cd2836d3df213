# Apportion's commands. Each installs what it needs first (scripts/setup). Only a command's result goes to stdout.
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Where the tests say what they needed and found (tests/needs).
NEEDS := $(abspath $(TARGET))/needs.txt

.PHONY: setup build package test demo bench doc

# Installs what this machine lacks, ONNX Runtime's library included; safe to run again.
setup:
	@scripts/setup

# The programs, optimised and stripped: $(TARGET)/release/apportion and $(TARGET)/release/apportion-agent. Beside each
# lies its debug information, PROGRAM.debug, which debuggers, profilers and backtraces find there.
build: setup
	@cargo build --release --bin apportion --bin apportion-agent 1>&2
	@scripts/strip "$(TARGET)/release/apportion" "$(TARGET)/release/apportion-agent"

# The Debian package and the wheel, in $(TARGET)/packages. ONNX Runtime's library is in the Debian package.
package: build
	@packaging/build "$(TARGET)/release" "$(TARGET)/packages" "$(or $(ORT_DYLIB_PATH),.cache/onnxruntime/libonnxruntime.so)"

# Every test. All tests are built before the first one runs, and the programs with them: the scenarios in tests/ run them.
# To build the programs by themselves first would compile the service twice: some of its dependencies have more features
# beside the tests. In the end it says what the tests found of what a machine may lack, and how many rows they ran.
test:
	@scripts/setup tests
	@rm -f "$(NEEDS)"
	@export APPORTION_NEEDS_LOG="$(NEEDS)"; if cargo nextest --version >/dev/null 2>&1; then \
		echo cargo nextest run --workspace; cargo nextest run --workspace; \
	else \
		echo cargo test --workspace --tests; cargo test --workspace --tests; \
	fi
	@echo "What the tests needed beyond the build:"; sort "$(NEEDS)"

# Plans, deploys, loads and replans examples/digits on this machine; ARGS goes to `apportion demo`.
demo: build
	@exec "$(TARGET)/release/apportion" demo $(ARGS)

# The benchmarks that docs/benchmarks.md reports.
bench: setup
	cargo bench --workspace --benches

# The documentation of all crates, in $(TARGET)/doc.
doc: setup
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
