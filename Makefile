# Everything runs from .venv, which the first target makes; nothing is installed by hand and nothing needs root.
# A broker needs some 90 MB of it; what only the tests need (PySpark above all) comes with them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BROKER := $(VENV)/.broker
STAMP  := $(VENV)/.ready
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check
# How long a start takes is a promise, and kept by modules that are compiled once, not at each start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test lint spark bench torture clean

run: $(BROKER)
	$(BIN)/aerobee broker run --data ./data

# The parts of the suite, and which run beside each other, are in tests/suite.py.
test: lint
	$(BIN)/python -m tests.suite

spark: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m spark

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.metrics --check

bench: $(STAMP)
	$(BIN)/python -m bench

# make torture ONLY=R2 CYCLES=100 SEED=7 MINUTES=10: each may be left out.
torture: $(STAMP)
	$(BIN)/python -m tests.torture $(if $(ONLY),--only $(ONLY)) $(if $(CYCLES),--cycles $(CYCLES)) \
		$(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

$(BROKER): pyproject.toml
	@echo "Installing the broker and its libraries into $(VENV) (about 90 MB, once) ..."
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[compression]'
	touch $(BROKER)

$(STAMP): $(BROKER)
	@echo "Installing what the tests need into $(VENV) (about 900 MB with PySpark, once) ..."
	$(PIP) -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
