# Set-up, checks and the demo. Every target makes the virtual environment by itself if it is missing.
PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup server browser demo docs notebooks dist lint check test measure format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## create .venv and install everything (again only if pyproject.toml or constraints.txt changed)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all,dev]"
	@touch $@

# Debian starts a service as soon as it is installed, and at every boot: policy-rc.d and the last line say no.
define INSTALL_SERVER
set -eu
made=
trap 'rm -f "$$made"' EXIT
if [ ! -e /usr/sbin/policy-rc.d ]; then
  made=/usr/sbin/policy-rc.d
  printf '#!/bin/sh\nexit 101\n' > "$$made"
  chmod 755 "$$made"
fi
export DEBIAN_FRONTEND=noninteractive
get() { apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 "$$@"; }
get install --no-install-recommends nats-server || { get update; get install --no-install-recommends nats-server; }
systemctl disable nats-server || true
endef
export INSTALL_SERVER

server: ## install nats-server for the tests of separate organisations, where apt-get is allowed
	@export PATH="$$PATH:/usr/sbin:/usr/local/sbin"; \
	if command -v nats-server > /dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	command -v apt-get > /dev/null && $$as_root sh -c "$$INSTALL_SERVER" < /dev/null > /dev/null 2>&1 \
		|| echo "nats-server is not installed and apt-get is not allowed here; tests that need it are left out"

define INSTALL_BROWSER
set -eu
export DEBIAN_FRONTEND=noninteractive
get() { apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 "$$@"; }
get install --no-install-recommends chromium || { get update; get install --no-install-recommends chromium; }
endef
export INSTALL_BROWSER

browser: ## install Chromium for the tests of pages, where apt-get is allowed
	@for name in chromium chromium-browser google-chrome; do command -v $$name > /dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	command -v apt-get > /dev/null && $$as_root sh -c "$$INSTALL_BROWSER" < /dev/null > /dev/null 2>&1 \
		|| echo "Chromium is not installed and apt-get is not allowed here; tests that need it are left out"

demo: setup ## is it worth joining? each party alone, all together, and in one place, on bundled data
	@$(BIN)/colonnade demo

docs: setup ## the documentation as a site, in site/; a warning or a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "written: site/index.html"

dist: ## build wheel and sdist, check them, try them in a new environment, write an SBOM; TAG=v0.2.0: as that release
	@$(PYTHON) tools/dist.py $(if $(TAG),--tag $(TAG))

notebooks: setup ## examples/notebooks, made from the pages of docs/tutorials
	@$(BIN)/python docs/notebooks.py
	@echo "written: examples/notebooks"

# One thread per worker: two workers with two threads each fight over two cores.
# worksteal: neighbours (and their module fixtures) stay together until a worker runs dry.
# Compiled files are kept, whatever the shell says: else each of some hundred processes compiles the package again.
check test measure: export OMP_NUM_THREADS = 1
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

check: lint ## while you work: ruff, mypy strict and the quick tests; under two minutes on two cores
	@$(PYTEST) -m "not slow"

test: setup server browser lint ## everything that must hold: ruff, mypy strict and all tests; what CI runs
	@$(PYTEST)

measure: setup server browser ## run all tests alone, one after the other, and write down which are slow (tests/slow.txt)
	@$(BIN)/python -m pytest -p tests.measure

format: setup ## format the code and apply safe lint fixes
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

clean: ## remove the environment, caches and the demo's output
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo-run site
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
