# Two commands set everything up: `make run` and `make test`.
PYTHON ?= python3
TORCH  ?= torch==2.13.0
VENV   ?= .venv
# Test processes at once: more than the cores would make the tests on terminals wait for each other.
JOBS   ?= 2
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run test lint types contracts format bench clean install

run: $(VENV)/.app          ## install, then open the screen on a first real run of GPT-2
	@$(BIN)/kernelscope run gpt2

test: $(STAMP) lint types contracts  ## the whole suite, as CI runs it
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

install: $(STAMP)

# torch goes first and on its own line, so that TORCH=... decides which build the rest is installed beside.
$(VENV)/.app: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(STAMP): pyproject.toml $(VENV)/.app
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)            ## the budgets, measured as ratios; prints, never fails
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info
