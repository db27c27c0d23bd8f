# make demo   sets everything up and runs the library's main job on embedded data
# make test   sets everything up and runs linter, type checker and tests
# make docs   builds the documentation, docs/_build/html/index.html, and runs its code; a warning is an error
PYTHON ?= python3
TORCH  ?= torch==2.13.0
JOBS   ?= 3
BIN    := .venv/bin

.PHONY: demo test lint docs check browser clean
demo: .venv/core.stamp
	$(BIN)/identifiable demo

test: .venv/dev.stamp lint browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not docs"

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -a -E docs docs/_build/html
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q -m docs tests/test_docs.py tests/test_examples.py
	@echo "==> docs/_build/html/index.html"

# The HTML pages are tested in chromium, which no Python package brings.
browser:
	@command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && echo "==> installing chromium (once), to test the HTML pages in" \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	  || echo "==> no chromium, and it cannot be installed here: the tests of the HTML pages in a browser are skipped"

# torch comes first and pinned, so that no later requirement pulls in another, much larger build of it.
.venv/core.stamp: pyproject.toml Makefile
	@echo "==> creating .venv and installing torch, then identifiable (once; a few minutes)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --upgrade "pip>=24"
	$(BIN)/python -m pip install "$(TORCH)"
	$(BIN)/python -m pip install "$(TORCH)" -e .
	@touch $@

.venv/dev.stamp: .venv/core.stamp
	@echo "==> installing the test and development tools (once)"
	$(BIN)/python -m pip install "$(TORCH)" -e ".[test,dev]"
	@touch $@

clean:
	rm -rf .venv dist docs/_build identifiable-demo
