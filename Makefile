# make demo   set-up, then SmartFL beside FedAvg, uniform, Krum and median under attack, on embedded data
# make test   set-up, then every check and test
# make federation   a Flower deployment with TLS on loopback, with faults, beside both simulators (some minutes)
# make faults, fuzz, soak, kills   what takes minutes to hours (docs/reliability.md)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export OMP_NUM_THREADS ?= 2

.PHONY: demo test federation lint clean faults fuzz soak kills

SECONDS ?= 3600
SEED ?= 0
ROUNDS ?= 2000
KILLS ?= 200

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

# Every file operation of a real run fails once, in six ways.
faults: $(STAMP)
	SMARTFL_FAULTS=full OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/hardening/test_faults.py -n 2

# Hostile rows, messages, files and experiments for SECONDS.
fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/hardening/fuzz.py --seconds $(SECONDS) --seed $(SEED)

# ROUNDS with attacks and a fault every 50 rounds.
soak: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/hardening/soak.py --rounds $(ROUNDS)

# SIGKILL at random moments.
kills: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/hardening/kills.py --kills $(KILLS) --seed $(SEED)

# Installed anew only when the project file or the pins change.  torch comes first and pinned: a range would fetch
# the newest build with several GB of CUDA packages.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache
