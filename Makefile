# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
OLDEST ?= $(shell python3.10 -c 'import sys; print(sys.executable)' 2> /dev/null || echo $(PYTHON))
BIN := .venv/bin
PICTURES := demo/out

.PHONY: demo test test-lowest soak defects lint types laws bench pages docs dist reproduce-quick reproduce clean

demo: .venv/ready
	$(BIN)/python demo/run.py --out $(PICTURES)

test: lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The quick part of the suite with the oldest allowed versions (torch excepted), in an environment of its own, with
# Python 3.10 where there is one. Old packages call what newer ones deprecate, so those warnings are no errors here.
# What needs onnx is left out.
test-lowest: .venv-lowest/ready
	.venv-lowest/bin/python -m pytest -W default::DeprecationWarning -W default::PendingDeprecationWarning \
		tests/unit tests/laws/test_numbers.py --ignore tests/unit/synthetic --ignore tests/unit/app \
		--ignore tests/unit/test_runtime.py -k 'not onnx'

# Faults by the thousand: about an hour, so not in CI.
soak: .venv/ready
	$(BIN)/python -m pytest -m soak tests

# A defect in each of a hundred places, one at a time, in a copy: do the tests of its room see it? A quarter of an hour.
defects: .venv/ready
	$(BIN)/python -m tests.planted --table tests/planted/RESULTS.md

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	if command -v python3.10 > /dev/null && python3.10 -c '' 2> /dev/null; then python3.10 -m compileall -q src; fi

types: .venv/ready
	$(BIN)/mypy

laws: .venv/ready
	$(BIN)/python -m pytest tests/laws

bench: .venv/ready
	$(BIN)/python -m benchmarks

# Every table, sentence and figure that is made of docs/results, anew. Tests say which sentences by hand are wrong then.
pages: .venv/ready
	$(BIN)/python -m experiments.stability page docs/results/stability docs/stability.md docs/appendix/stability.md
	$(BIN)/python docs/figures/stability.py
	$(BIN)/python -m experiments.benchmark main
	$(BIN)/python -m experiments.benchmark cross-method
	$(BIN)/python -m experiments.readme docs/results README.md docs/*.md docs/how-to/*.md

# The site, strict: every warning is an error. Open docs/_build/html/index.html.
docs: .venv/ready
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# Wheel and sdist, checked, and the wheel tried by itself without extras.
dist:
	PYTHON=$(PYTHON) bash .ci/dist

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

.venv-lowest/ready: pyproject.toml constraints-lowest.txt
	$(OLDEST) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt -e '.[bench,plot,higra]' \
		hypothesis pytest statsmodels
	touch $@

clean:
	rm -rf .venv .venv-lowest dist docs/_build $(PICTURES)
