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
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable
# pip compiles modules one by one, which takes longer than all else that it does: several processes do it here. Some packages
# contain files that are no Python.
COMPILE := $(BIN)/python -m compileall -q -q -j 0 $(VENV)/lib >/dev/null || true

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
	$(BIN)/mypy --num-workers 2

imports: $(STAMP)
	$(BIN)/lint-imports

# Other tests than those of the scheduler and the kernels wait now and then, so there are more processes than CPUs. Tests of
# clusters wait most: for nodes to start, to end and to be given up. What depends on time (mark "alone") runs at the end.
CONFORMANCE := tests/backends/conformance
CLUSTERS := tests/backends/ray tests/core tests/deploy
OTHERS := --ignore=$(CONFORMANCE) --ignore=tests/backends/ray

pytest: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 3 --quiet --ignore=tests/backends --ignore=tests/core --ignore=tests/deploy
	$(BIN)/python -m pytest --numprocesses 3 --dist loadscope --quiet $(CONFORMANCE)
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --quiet $(CLUSTERS)
	$(BIN)/python -m pytest --numprocesses 3 --quiet -m "not alone" tests/backends $(OTHERS)
	$(BIN)/python -m pytest --quiet -m alone tests/backends $(OTHERS)

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
	@$(COMPILE)
	@touch $@

# Tests make checkpoints with the classes of NeMo Curator, which import without the packages that it asks for.
$(STAMP): $(BASE)
	@echo "installing what the tests need into $(VENV)"
	@$(PIP) '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --no-deps nemo-curator
	@$(COMPILE)
	@touch $@

$(DOCS_STAMP): $(BASE)
	@echo "installing what the documentation needs into $(VENV)"
	@$(PIP) '.[docs]'
	@$(COMPILE)
	@touch $@
