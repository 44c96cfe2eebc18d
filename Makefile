# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PICTURES := demo/out

.PHONY: demo test lint types laws bench reproduce-quick reproduce clean

demo: .venv/ready
	$(BIN)/python demo/run.py --out $(PICTURES)

test: lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

laws: .venv/ready
	$(BIN)/python -m pytest tests/laws

bench: .venv/ready
	$(BIN)/python -m benchmarks

# The controlled study, in small (minutes) and in full (hours); both go on where they were interrupted.
reproduce-quick: .venv/ready
	$(BIN)/python -m experiments.synthetic --quick

reproduce: .venv/ready
	$(BIN)/python -m experiments.synthetic

# The stamp is written last, so an interrupted install starts over instead of half working.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv $(PICTURES)
