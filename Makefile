# make demo   set-up, then SmartFL beside FedAvg, uniform, Krum and median under attack, on embedded data
# make test   set-up, then every check and test
# make federation   a Flower deployment with TLS on loopback, with faults, beside both simulators (some minutes)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export OMP_NUM_THREADS ?= 2

.PHONY: demo test federation lint clean

demo: $(STAMP)
	@$(BIN)/smartfl compare src/smartfl/experiment/presets/demo.toml --seeds 3 --out demo --fresh

test: $(STAMP) lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

federation: $(STAMP)
	$(BIN)/python tests/federation/run.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Installed anew only when the project file or the pins change.  torch comes first and pinned: a range would fetch
# the newest build with several GB of CUDA packages.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache
