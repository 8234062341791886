# make demo: curate the documentation on this machine.   make test: all checks and tests.
# make docs: the documentation site, in build/site.
# make soak: 100,000 new random pipelines with faults under the scheduler; SOAK='--seeds 0:5000' for others.
# All need only Python 3.11 or later with pip; name another interpreter with PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BASE := $(VENV)/.base-installed
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

# The tests start many processes: modules are compiled once, not by each of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint types imports pytest docs soak
.DEFAULT_GOAL := test

demo: $(BASE)
	@$(BIN)/python examples/curate.py

test: lint types imports pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/check_wording.py

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# What depends on time, or fills the machine by itself, runs alone.
pytest: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --quiet --ignore=tests/backends --ignore=tests/scheduling
	$(BIN)/python -m pytest tests/backends tests/scheduling --ignore=tests/backends/conformance --ignore=tests/backends/ray
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --quiet tests/backends/conformance tests/backends/ray

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in build/site: open build/site/index.html, or run $(BIN)/mkdocs serve, which has search"

SOAK ?= --new 100000
soak: $(BASE)
	$(BIN)/python -m tests.simulation.campaign $(SOAK) --jobs 0 --keep-going

# The environment is made again when its inputs change. What only the tests or the documentation need is added later. Where the
# interpreter cannot put pip into it (a distribution's Python without ensurepip), the pip outside does.
$(BASE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("gristmill needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	rm -rf $(VENV)
	$(PYTHON) -m venv --without-pip $(VENV)
	@$(BIN)/python -m ensurepip --default-pip >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install --quiet pip
	@echo "installing gristmill and what it needs into $(VENV)"
	@$(PIP) .
	@touch $@

# Tests make checkpoints with the classes of NeMo Curator, which import without the packages that it asks for.
$(STAMP): $(BASE)
	@echo "installing what the tests need into $(VENV)"
	@$(PIP) '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps nemo-curator
	@touch $@

$(DOCS_STAMP): $(BASE)
	@echo "installing what the documentation needs into $(VENV)"
	@$(PIP) '.[docs]'
	@touch $@
