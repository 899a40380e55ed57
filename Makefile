# g-ray: `make demo` and `make test` do all set-up by themselves; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
SETUP := pyproject.toml constraints.txt packaging/lab/pyproject.toml packaging/weights/pyproject.toml
OUT ?= out/demo
# By file, so that fixtures of a module are made once; in order, so that the long files do not come last.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder
# Tests of cameras, rays, coordinates, encodings and attention.
LIBRARY := $(addprefix tests/g_ray/,geometry cameras rays coordinates encodings nn)
# One thread a process: two test workers then share two cores without fighting.
export OMP_NUM_THREADS ?= 1
# Keep bytecode: tests start many processes, and compiling our modules with shape checks takes each of them 9 seconds.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo test quick quick-all package lint types imports docs generated serve-docs pytest fuzz slow-tests bench format clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/' | expand -t 14

demo: $(VENV)/.ready-demo ## Set up, then write the demo page to out/demo
	$(BIN)/g-ray demo --out $(OUT)

test: lint types imports docs package pytest ## Set up, then lint, types, import contract, docs, distributions, tests

quick: lint ## Lint and the tests of the library: under a minute
	$(PYTEST) -q -m "not slow" $(LIBRARY)

quick-all: lint ## Lint and all tests that are not in tests/slow_tests.txt
	$(PYTEST) -q -m "not slow"

lint: $(VENV)/.ready-dev ## Style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-dev ## Static types
	$(BIN)/pyright

imports: $(VENV)/.ready-dev ## Who may import whom
	$(BIN)/lint-imports --cache-dir .cache/imports

docs: $(VENV)/.ready-dev ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

package: $(VENV)/.ready-dev ## Build the distributions into dist/, and check what is in them
	@rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist . > dist.log 2>&1 || { cat dist.log; exit 1; }
	$(BIN)/python -m build --no-isolation --wheel --outdir dist packaging/lab > dist.log 2>&1 || { cat dist.log; exit 1; }
	$(BIN)/python -m build --no-isolation --wheel --outdir dist packaging/weights > dist.log 2>&1 || { cat dist.log; exit 1; }
	@rm dist.log
	$(BIN)/twine check --strict dist/*
	$(BIN)/python packaging/check_dist.py dist

generated: $(VENV)/.ready-dev ## Rewrite the generated tables of the README and the docs, and the notebook's outputs
	$(BIN)/python tests/house/generated_text.py
	$(BIN)/python tests/house/notebook.py

serve-docs: $(VENV)/.ready-dev ## Read the documentation in a browser
	$(BIN)/mkdocs serve

pytest: $(VENV)/.ready-dev ## Tests only
	$(PYTEST)
	G_RAY_TYPECHECK=0 $(BIN)/pytest -n 2 --dist worksteal tests/unchecked

fuzz: $(VENV)/.ready-dev ## Mutated calibrations, photographs and command lines: 2,000 of each kind
	G_RAY_FUZZ=2000 $(PYTEST) tests/fuzz

slow-tests: $(VENV)/.ready-dev ## Measure all tests, and rewrite the list of those that `make quick` leaves out
	@mkdir -p out && rm -f out/costs.txt
	$(PYTEST) --costs out/costs.txt
	$(BIN)/python tests/slow_tests.py out/costs.txt

bench: $(VENV)/.ready-dev ## Time encodings, ray maps and reconstruction on this machine
	$(BIN)/g-ray bench encodings --views 3 --grid 32 --batch 2 --json out/bench/encodings_3x1024.json
	$(BIN)/g-ray bench encodings --views 16 --grid 16 --batch 1 --json out/bench/encodings_16x256.json
	$(BIN)/g-ray bench rays --json out/bench/rays.json
	$(BIN)/g-ray bench reconstruction --views 2 4 8 16 --json out/bench/reconstruction_small.json
	$(BIN)/g-ray bench coordinates --json out/bench/coordinates.json

format: $(VENV)/.ready-dev ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove everything that make has made
	rm -rf $(VENV) .cache .hypothesis .pytest_cache .ruff_cache .import_linter_cache out site build dist

$(VENV)/.ready-demo: $(SETUP) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[tool,view]" -e packaging/weights
	@touch $@

$(VENV)/.ready-dev: $(SETUP) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" -e packaging/lab -e packaging/weights
	@touch $@ $(VENV)/.ready-demo

# The first Python that is new enough; set PYTHON=… to choose one yourself.
$(BIN)/python:
	@for python in $(PYTHON) python3.11 python3 python3.12 python3.13; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$python"; \
	    "$$python" -m venv $(VENV) || { rm -rf $(VENV); echo "g-ray: $$python has no working venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }; \
	    exit 0; \
	  fi; \
	done; \
	echo "g-ray: needs Python 3.11 or newer and found none; install it, or run: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1
