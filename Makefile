# Every target sets up what it needs: a virtual environment with pinned versions, made once and
# again when pyproject.toml or constraints.txt change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
READY_TO_BENCH := $(VENV)/.ready-to-bench
ENV ?= CartPole-v1

.DEFAULT_GOAL := help
.PHONY: help demo train test test-fast lint programs soak bench bench-quick clean

help:
	@echo "make demo            train CartPole to a perfect score and evaluate it"
	@echo "make test            all checks: format, lint, types, layers, tests"
	@echo "make test-fast       the same without the slow tests"
	@echo "make lint            format, lint, types, layers"
	@echo "make programs        install what some tests drive and are skipped without (apt, as root)"
	@echo "make train ENV=…     train an environment (ARGS=\"--seed 1 …\")"
	@echo "make soak            200 kills, 10,000 hostile checkpoints, 100 signals (half an hour)"
	@echo "make bench           all benchmarks, beside other trainers (50 minutes; benchmarks/RESULTS.md)"
	@echo "make bench-quick     a few of them, in three minutes"
	@echo "make clean           remove the virtual environment and caches"

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

# Half a gigabyte that only tests and benchmarks need.
$(READY_TO_TEST): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,envpool]"
	touch $@

# The trainers to measure against, and MuJoCo.
$(READY_TO_BENCH): $(READY_TO_TEST)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,envpool,mujoco,bench]"
	touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py

train: $(READY)
	@$(BIN)/surefoot train $(ENV) $(ARGS)

lint: $(READY_TO_TEST)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest

test-fast: lint
	$(BIN)/pytest -m "not slow and not soak"

# Chromium shows reports, tmux the dashboard. Where they cannot be had, the rest is tested.
programs:
	@which chromium tmux > /dev/null || (apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
		chromium tmux fonts-dejavu-core > /dev/null) || echo "no Chromium or tmux: tests skip them"

soak: $(READY_TO_TEST)
	$(BIN)/python benchmarks/soak.py
	$(BIN)/pytest -m soak

bench: $(READY_TO_BENCH)
	$(BIN)/python benchmarks/run.py

bench-quick: $(READY_TO_BENCH)
	$(BIN)/python benchmarks/run.py --quick

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
