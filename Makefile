# Set-up, checks and the demo. Every target makes the virtual environment by itself if it is missing.
PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## create .venv and install everything (again only if pyproject.toml or constraints.txt changed)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all,dev]"
	@touch $@

demo: setup ## train on bundled data, compare methods, write a report
	@$(BIN)/colonnade demo

check: setup ## ruff, mypy strict, architecture tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pytest tests/architecture

# One thread per worker: two workers with two threads each fight over two cores.
# worksteal: neighbours (and their module fixtures) stay together until a worker runs dry.
test: export OMP_NUM_THREADS = 1
test: setup check ## check, then the whole test suite
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal

format: setup ## format the code and apply safe lint fixes
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

clean: ## remove the environment, caches and the demo's output
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo-run
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
