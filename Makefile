# make demo: see it work.   make test: all checks.   Both install what they need into .venv on the first run.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test fuzz format results readme clean

demo: .venv/.demo
	$(BIN)/fmean learn

test: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile

# 10,000 random cases of every path against a float64 loop; DEVICE=cuda on a GPU. Without one, the kernels for a GPU are
# tried as well, in Triton's interpreter, on fewer cases, as that is slow.
fuzz: .venv/.dev
	$(BIN)/python -m tests.fuzz --cases 10000 --device $(or $(DEVICE),cpu)
	$(if $(DEVICE),,$(BIN)/python -m tests.fuzz --cases 1000 --paths triton)

format: .venv/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Measures again the figures of README that take minutes, and writes them there. For the others: fmean bench,
# fmean reproduce regression and fmean reproduce gnn-regression, then make readme.
results: .venv/.dev
	$(BIN)/python benchmarks/inversion.py
	for f in sinh mlp invertible; do \
		$(BIN)/fmean learn --fresh --f $$f && cp learned/$$f/table.json results/learn_$$f.json || exit 1; done
	cp learned/sinh/overview.png docs/learned.png
	$(BIN)/python benchmarks/readme.py

readme: .venv/.dev
	$(BIN)/python benchmarks/readme.py

clean:
	rm -rf .venv learned reproduced .pytest_cache .mypy_cache .ruff_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("fmean needs Python 3.10 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; say make PYTHON=python3.11, for example" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv .venv

# torch first and alone, so that pip takes the pinned build and nothing newer.
.venv/.torch: constraints.txt | .venv/bin/python
	$(PIP) torch
	@touch $@

.venv/.demo: .venv/.torch pyproject.toml
	$(PIP) --editable '.[cli]'
	@touch $@

.venv/.dev: .venv/.torch pyproject.toml
	$(PIP) --editable '.[dev]'
	@touch $@ .venv/.demo
