# Commands for developers; CONTRIBUTING.md has them without make.
#
#   PYTHON=/path/to/python   which Python to use (3.11 or later); by default the newest that works
#   ARGS="-k release -x"     passed on to pytest (make test), to the demo (make demo), to the benchmarks (make bench)

PYTHON ?= python3.13 python3.12 python3.11 python3 python
ARGS ?=

# New enough, and able to make virtual environments. A pyenv shim without a version behind it fails here, too.
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# Each environment is made anew when pyproject.toml has changed. Those of the demo and of the examples are a user's;
# each other is one dependency group.
DEMO := .venv-demo
EXAMPLES := .venv-examples
TESTS := .venv-tests
LINT := .venv-lint
DOCS := .venv-docs
BENCH := .venv-bench

.DEFAULT_GOAL := help
.PHONY: help demo payments seats wallet test test-all test-interop lint docs bench bench-quick clean

help: ## show this help
	@echo "Usage: make <target> [PYTHON=python3.12] [ARGS='...']"
	@sed -n 's/^\([a-z-]*\):.*## /  \1 - /p' $(MAKEFILE_LIST)

demo: $(DEMO)/.stamp ## watch processes share one account file under a lock, and some of them die
	@$(DEMO)/bin/python -m aiolock demo $(ARGS)

payments: $(EXAMPLES)/.stamp ## serve examples/payments (FastAPI, two workers) on http://127.0.0.1:8000
	@$(EXAMPLES)/bin/python examples/payments/main.py

seats: $(EXAMPLES)/.stamp ## serve examples/seats (aiohttp) on http://127.0.0.1:8080
	@$(EXAMPLES)/bin/python examples/seats/main.py

wallet: $(EXAMPLES)/.stamp ## serve examples/wallet (FastAPI, two workers) on http://127.0.0.1:8000
	@$(EXAMPLES)/bin/python examples/wallet/main.py

# Six at once: the tests wait more than they compute. Who has nothing left to do takes tests from the others.
test: $(TESTS)/.stamp ## run the tests on the embedded Valkey
	AIOLOCK_TEST_SERVERS=valkey $(TESTS)/bin/python -m pytest -n 6 --dist worksteal -m "not slow" $(ARGS)

test-all: $(TESTS)/.stamp ## run every test, also on the redis-server, with java and mvn, where they are on the path
	$(TESTS)/bin/python -m pytest -n 4 --dist worksteal $(ARGS)

test-interop: $(TESTS)/.stamp ## only those that share locks with Redisson; they need java and mvn
	$(TESTS)/bin/python -m pytest -n 2 tests/interop $(ARGS)

lint: $(LINT)/.stamp ## ruff, mypy --strict, pyright on the public names, the architecture
	$(LINT)/bin/ruff check
	$(LINT)/bin/ruff format --check
	$(LINT)/bin/mypy
	PATH="$(CURDIR)/$(LINT)/bin:$$PATH" pyright --verifytypes aiolock --ignoreexternal
	PATH="$(CURDIR)/$(LINT)/bin:$$PATH" pyright tests/typing
	$(LINT)/bin/python -m pytest -q tests/test_architecture.py tests/docs/test_types.py

docs: $(DOCS)/.stamp ## build the documentation into site/
	$(DOCS)/bin/zensical build --clean --strict

bench: $(BENCH)/.stamp ## run all benchmarks on both loops, some hours on an idle machine, and make docs/benchmarks.md and the README's table
	$(BENCH)/bin/python -m benchmarks --loop both --json benchmarks/results.json $(ARGS)
	$(BENCH)/bin/python -m benchmarks.page benchmarks/results.json

bench-quick: $(BENCH)/.stamp ## a look at the benchmarks: less than a minute, smaller and without most peers
	$(BENCH)/bin/python -m benchmarks --quick $(ARGS)

clean: ## remove the environments and all that was built
	rm -rf .venv-* build dist site benchmarks/redisson/target .cache .coverage .coverage.* htmlcov
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find aiolock benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call make-venv,DIRECTORY): an empty environment; pip 25.1 is the first that knows --group.
define make-venv
@rm -rf $1
@for python in $(PYTHON); do \
	if "$$python" -c '$(USABLE)' 2>/dev/null; then \
		echo "making $1 with $$("$$python" --version)"; exec "$$python" -m venv $1; \
	fi; \
done; \
echo "No usable Python among: $(PYTHON)"; \
echo "aiolock needs Python 3.11 or later with venv and ensurepip (Debian, Ubuntu: the python3-venv package)."; \
echo "Name one with: make PYTHON=/path/to/python3"; exit 1
@$1/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
endef

$(DEMO)/.stamp: pyproject.toml
	$(call make-venv,$(DEMO))
	@$(DEMO)/bin/python -m pip install --quiet --editable '.[server,cli]'
	@touch $@

$(EXAMPLES)/.stamp: pyproject.toml
	$(call make-venv,$(EXAMPLES))
	@$(EXAMPLES)/bin/python -m pip install --quiet --editable '.[aiohttp,fastapi,server]' uvicorn
	@touch $@

.venv-%/.stamp: pyproject.toml
	$(call make-venv,.venv-$*)
	@.venv-$*/bin/python -m pip install --quiet --editable . --group $*
	@if [ $* = lint ] && ! node --version >/dev/null 2>&1; then .venv-$*/bin/python -m pip install --quiet 'pyright[nodejs]'; fi
	@touch $@
