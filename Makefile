# make demo: watch a pipeline balance itself.   make test: all checks and tests.
# Both need only Python 3.11 or later with pip; name another interpreter with PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin

.PHONY: demo test lint types imports pytest
.DEFAULT_GOAL := test

demo: $(STAMP)
	@$(BIN)/python examples/balance.py

test: lint types imports pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

pytest: $(STAMP)
	$(BIN)/python -m pytest

# The environment is made anew when what it is made from changes. Where the interpreter cannot put pip into it
# (a distribution's Python without ensurepip), the pip outside installs into it.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("gristmill needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	rm -rf $(VENV)
	$(PYTHON) -m venv --without-pip $(VENV)
	@if $(BIN)/python -m ensurepip --version >/dev/null 2>&1; \
	then $(BIN)/python -m ensurepip --default-pip >/dev/null; pip="$(BIN)/python -m pip"; \
	else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	echo "installing what is needed into $(VENV)"; \
	$$pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
