# Two commands to start with:  make demo  ·  make test
# Each sets up what it needs (.venv, dependencies, Java) by itself; the second run starts in seconds.

PY := .venv/bin/python
# For two cores: one worker more, because each waits now and then, for a broker to come back or a timeout to pass.
# Each has a broker and a Spark of its own, 3 GB in all.
WORKERS ?= 3
COVERAGE_MIN := 85
# Some images forbid Python to keep compiled code. The tests start hundreds of processes, each of which would compile
# Forebay anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-fast test-native test-flock test-long chaos lint format bench soak times pictures lock docs clean

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## .venv with the locked dependencies, Java 17+
	@sh scripts/setup.sh

demo: setup ## real trades through a real Kafka and Spark into a table, in two minutes
	@$(PY) -m examples.trades

# An S3 server is built once, beside the first tests. The crate's tests take what the others leave of the cores while those wait.
test: setup ## all tests, on a real broker and real Spark, with coverage
	@rm -f .coverage .coverage.*
	@$(PY) -m scripts.s3_server >/dev/null 2>&1 &
	@said=$$(mktemp); nice -n 15 $(MAKE) --no-print-directory test-native >"$$said" 2>&1 & native=$$!; \
	$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cov --durations=25 --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_MIN) $(ARGS); \
	ended=$$?; wait $$native || ended=1; echo "The crate's own tests:"; cat "$$said"; rm -f "$$said"; exit $$ended

test-fast: setup ## what needs neither broker nor Spark
	@$(PY) -m pytest -q tests/unit tests/property $(ARGS)

# Built in the user's cache, where the wheel is, too: its dependencies are compiled once, and not in every clone.
test-native: setup ## the tests that the native reader's crate has of its own, where cargo is there
	@if command -v cargo >/dev/null 2>&1 && sh scripts/crates.sh lock && (cd native && cargo fetch --quiet --locked 2>/dev/null); then \
		cd native && CARGO_TARGET_DIR="$${XDG_CACHE_HOME:-$$HOME/.cache}/forebay/cargo" CARGO_PROFILE_DEV_DEBUG=0 cargo test --quiet --locked; \
	else echo "no cargo, or not the crate's dependencies: its own tests are left out"; fi

test-flock: setup ## Flock's own store suites and a Flock program on the blackboard, in a Python 3.12 of its own
	@$(PY) -m scripts.flock $(ARGS)

test-long: setup ## all tests, also those that `make test` has a short form of
	@FOREBAY_LONG=1 FOREBAY_MANY_LETTERS=100000 FOREBAY_CHAOS_KILLS=6 $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

chaos: setup ## the long form of the crash tests and of the properties
	@FOREBAY_LONG=1 FOREBAY_PACK=1 FOREBAY_CHAOS_KILLS=100 FOREBAY_CHAOS_LETTERS=20 FOREBAY_CHAOS_EVOLUTIONS=10 FOREBAY_CHAOS_BOARD=10 FOREBAY_LEAK_BATCHES=10000 FOREBAY_AWAY_SECONDS=600 FOREBAY_MANY_LETTERS=100000 \
		FOREBAY_CHAOS_POOL_KILLS=200 FOREBAY_CHAOS_POOL_RECORDS=100000 FOREBAY_CHAOS_POOL_STORM_S=1200 FOREBAY_CHAOS_POOL_MEMBERS=12 \
		$(PY) -m pytest tests/chaos tests/integration/test_native_reader.py tests/integration/test_flow.py tests/integration/test_cluster.py tests/browser/test_many.py --timeout=3600 $(ARGS)
	@FOREBAY_CHAOS_S3=1 FOREBAY_CHAOS_KILLS=10 $(PY) -m pytest tests/chaos -k "not pool and not blackboard" --timeout=3600 $(ARGS)
	@FOREBAY_EXAMPLES=2000 $(PY) -m pytest tests/property --timeout=3600 $(ARGS)

lint: setup ## style, types, no paths or hosts where they do not belong
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m scripts.docs --check

format: setup ## let ruff do it
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: setup ## every claim beside its peer, as a ratio with its spread
	@$(PY) -m benchmarks $(ARGS)

soak: setup ## two hours of ten views with bad records, while workers are killed: nothing only grows
	@$(PY) -m benchmarks --publish --claims soak $(ARGS)

times: setup ## how long commands take to start, with bounds, as ratios to importing typer
	@$(PY) scripts/times.py $(ARGS)

pictures: setup ## the dashboard's screenshot and recording for the README; needs Chromium
	@$(PY) -m scripts.pictures

docs: setup ## the pages that are made from the code
	@$(PY) -m scripts.docs

lock: setup ## resolve the dependencies anew, the native reader's too
	@! command -v cargo >/dev/null 2>&1 || sh scripts/crates.sh update
	@$(PY) -m pip install --quiet uv
	@$(PY) -m uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --upgrade --quiet -o requirements.lock

clean: ## everything that was made here
	@rm -rf .venv .forebay .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* htmlcov build dist benchmarks/.work
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
