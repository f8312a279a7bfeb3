# Everything runs in .venv, built here from requirements.lock: `make demo` and `make test` need
# only python3 >= 3.11 with venv, make and git.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= demo-output

.PHONY: demo docs pictures test test-all fuzz lint bench lock clean

# A release is never overwritten, so the demo's own folder goes first; one that OUT names stays.
demo: $(VENV)/.ready
	rm -rf demo-output
	$(BIN)/dpbayes demo --out $(OUT)

# All of it; `pytest` alone is the quick part.
test: lint
	$(BIN)/pytest tests notebooks -m ""

# As test, and with your own CmdStan, of which nothing is skipped. The first time some 45 programs are
# compiled, which takes half an hour of CPU; O=1, for make and for CmdStan's own build, halves it.
test-all: lint
	@$(BIN)/python -c 'from dpbayes.engines import get_engine; get_engine("cmdstan")' 2>/dev/null || \
	  { echo "CmdStan 2.35 or later is not found. Set CMDSTAN to the folder of one that is built, or run" && \
	    echo "$(BIN)/python -m cmdstanpy.install_cmdstan (it needs g++ and make)." && exit 1; }
	DPBAYES_REQUIRE_CMDSTAN=1 $(BIN)/pytest tests notebooks -m ""

# Everything that is typed or read, made up: other cases each time. Takes hours.
fuzz: $(VENV)/.ready
	DPBAYES_FUZZ_CASES=100000 $(BIN)/pytest tests -m fuzz --durations=0 --durations-min=1

# The pages, the docstrings and the notebooks as a site in site/. A warning is an error.
docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python docs/pages.py

# The pictures in README and docs, from the demo; Chromium photographs the pages.
pictures: $(VENV)/.ready
	$(BIN)/python docs/pictures.py

lint: $(VENV)/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/inference.py
	$(BIN)/python benchmarks/dips.py
	$(BIN)/python benchmarks/pegs.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/study_runner.py
	$(BIN)/python benchmarks/rivals.py
	$(BIN)/python benchmarks/plans.py
	$(BIN)/python benchmarks/tables_scale.py --sql

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 11) <= v < (3, 14) and "dpbayes needs Python 3.11 to 3.13, found %d.%d: run make PYTHON=python3.x" % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Needs uv (pip install uv). One file for Python 3.11 to 3.13 on all platforms.
lock:
	echo hatchling | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url \
	  --extra analysis --extra browser --extra cmdstan --extra files --extra large --extra postgresql \
	  --group docs --group studies --group test pyproject.toml - \
	  --output-file requirements.lock

clean:
	rm -rf $(VENV) $(OUT) site .mypy_cache .ruff_cache .pytest_cache
