# Every target sets up what it needs in .venv; a machine needs Python 3.11+ and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# uv needs seconds where pip needs four minutes of CPU. pip takes its place where uv cannot be
# installed, or finds no packages, since it does not read pip's settings.
WANTED := install --quiet --editable '.[all,dev,docs]'

# Tests start hundreds of interpreters: without stored byte code each of them would compile numpy,
# scipy and numba again, which takes seconds. That of packages is made when they are installed:
# where tests made it, a package's own invalid escape sequences would be errors.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: dist test-lowest demo docs notebooks test open-bandit conformance uncompiled test-long crashtest \
  crashtest-cluster soak lint bench clean

demo: $(READY)
	$(BIN)/dyclu demo --out demo-out

# Tests whose branch coverage is measured. It is held by fail_under in pyproject.toml. Measuring makes
# a test half as slow again, so tests of error rates, which run no other lines, are not among them.
COVERED := $(addprefix src/dyclu/,core kernels policies) \
  $(addprefix tests/,unit/core unit/kernels unit/policies properties)

# Of the checks, the types take one core for a minute. Beside them the conformance suite compiles the
# kernels of all policies, so that the processes of the next stage need not do it twice. In the last
# stage many tests wait for a time to pass or for a disk, so it has more processes than cores. Each
# process begins with a part of its own (worksteal): what tests of a file share is made once.
test: $(READY)
	$(MAKE) -j 2 lint conformance uncompiled
	$(BIN)/pytest -n 2 --dist worksteal -m "not long" \
	  --cov --cov-append --cov-report= --cov-fail-under=0 $(COVERED)
	$(BIN)/coverage report
	$(BIN)/pytest -n 3 --dist worksteal -m "not long" \
	  $(addprefix --ignore=,$(COVERED) tests/conformance)

# The Open Bandit sample, which a wheel carries, for the tests that compare estimates with a real log.
# Where it cannot be fetched, they skip and say so. The wheel is only unpacked, so its own bound on
# Python does not matter.
SAMPLE := data/open-bandit

open-bandit:
	@test -d $(SAMPLE)/obd || { rm -rf $(SAMPLE) && mkdir -p $(SAMPLE) && cd $(SAMPLE) \
	  && $(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps \
	    --ignore-requires-python --timeout 15 --retries 1 --dest . obp==0.4.1 \
	  && $(PYTHON) -m zipfile -e obp-0.4.1-py3-none-any.whl wheel && mv wheel/obp/dataset/obd obd \
	  && rm -r wheel obp-0.4.1-py3-none-any.whl; } > /dev/null 2>&1 \
	  || echo "the Open Bandit sample cannot be fetched; its tests will skip" >&2

conformance: $(READY)
	$(BIN)/pytest -q -m "not long" tests/conformance

# Coverage cannot see compiled code, so tests of kernels run once more without the compiler. There
# numpy warns of an overflow to infinity, which compiled code computes silently.
uncompiled: $(READY)
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q -m "uncompiled and not long" -W ignore:overflow \
	  --cov --cov-report= --cov-fail-under=0 $(COVERED)

test-long: $(READY)
	$(BIN)/pytest -m long

soak: $(READY)
	$(BIN)/python -m benchmarks.soak

crashtest: $(READY)
	$(BIN)/python -m tests.service.crash --kills 200

crashtest-cluster: $(READY)
	$(BIN)/python -m tests.service.cluster_crash --kills 100 --database-kills 20

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo open site-out/index.html

# Runs notebooks/*.py and stores them with their outputs as notebooks/*.ipynb, which the site shows.
notebooks: $(READY)
	$(BIN)/python -m website.notebooks

# Wheel and sdist, the same bytes every time: all times in them are that of the last commit.
dist:
	$(PYTHON) -m venv .venv-dist && .venv-dist/bin/pip install --quiet build
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .venv-dist/bin/python -m build --outdir dist .

# The library at the lowest versions of its dependencies that pyproject.toml allows.
LOWEST := $(addprefix tests/unit/,core kernels policies data evaluate test_storage.py test_validation.py) \
  tests/conformance tests/golden

test-lowest:
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) -m tests.lowest > .venv-lowest/constraints.txt
	.venv-lowest/bin/pip install --quiet --constraint .venv-lowest/constraints.txt '.[all]' \
	  duckdb hypothesis pandas polars pytest scikit-learn
	.venv-lowest/bin/python -m pytest -m "not long" -W default $(LOWEST)

bench: $(READY)
	$(BIN)/python -m benchmarks --out bench-out

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dyclu needs Python 3.11 or newer; run make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv \
	  && $(BIN)/uv pip $(WANTED) --compile-bytecode --python $(BIN)/python \
	  || $(BIN)/python -m pip $(WANTED)
	@touch $@

clean:
	rm -rf .venv .venv-dist .venv-lowest demo-out bench-out site-out .bench-cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
