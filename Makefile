# Two commands are enough: `make demo` shows the whole product, `make test` proves it. Each does the
# set-up it needs, once; `make help` lists the rest.

PYTHON_BIN := .venv/bin/python
PACKAGES   := .venv/.packages-done
STAMP      := .venv/.setup-done
SHELL      := /bin/bash
# Without bytecode each process of a test compiles this tree, and pytest rewrites all tests, again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup java demo test budget slow lint conformance sim interop faults soak bench docs release lock clean

help:         ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make .venv from the lock, find Java, compile kernels, fetch Spark's jars

$(PACKAGES): requirements.lock pyproject.toml .ci/setup
	@.ci/setup packages
	@touch $@

$(STAMP): requirements.lock pyproject.toml .ci/setup conf/ivysettings.xml
	@.ci/setup
	@touch $(PACKAGES) $@

# Java may be lost after set-up; each test of Spark would fail then, for itself.
java: $(STAMP)
	@.ci/setup java

demo: $(STAMP)  ## A year of flights through three members, Spark and Delta, in a few minutes
	@$(PYTHON_BIN) -m jobs.demo $(ARGS)

# The tests of one thing, in seconds: make test ARGS=tests/consensus. Style and types are left out then.
# One has Spark, the others wait for sockets and time-outs as much as they work.
WORKERS    := 3
FAST       := -m 'not interop and not faults and not slow'
TIMEFORMAT := make test: %R s; processor time %U s user, %S s system
export TIMEFORMAT
test: $(if $(ARGS),$(PACKAGES),java)  ## Types, style and layers, then every fast test and a first slice of the simulator
ifdef ARGS
	@time $(PYTHON_BIN) -m pytest -q -n $(WORKERS) $(FAST) $(ARGS)
else
	@rm -f build/test-seconds.json
	@time { $(STYLE) && $(PYTHON_BIN) -m pytest -q -n $(WORKERS) $(FAST) --seconds build/test-seconds.json; }
endif

budget: $(STAMP)  ## Seconds by folder of the last make test; fails where one has grown by more than a fifth
	@$(PYTHON_BIN) -m tests.seconds $(GROWTH)

# An eighth of the tests, by whole files: make slow PART=0/8. So with faults and interop.
SHARE = $(if $(PART),--part $(PART))

slow: java  ## Documents line by line, matrices, seeds for planted mistakes, more of the same histories
	@.ci/need chromium chromium fonts-dejavu-core
	@$(PYTHON_BIN) -m pytest -q -n 2 -m slow $(SHARE) $(ARGS)

STYLE = $(PYTHON_BIN) -m ruff check . && $(PYTHON_BIN) -m mypy

lint: $(PACKAGES)  ## Style, types and layers: what must be green before a commit
	@$(STYLE)
	@$(PYTHON_BIN) -m pytest -q tests/test_tidy.py tests/test_circles.py

conformance: $(STAMP)  ## Every conformance point with the tests that prove it
	@$(PYTHON_BIN) -m pytest -qqq --collect-only --conformance tests

# One seed again: make sim SEED=91. SEEDS and FROM are ignored then.
SEEDS ?= 100
FROM  ?= 1
sim: $(STAMP)  ## Seeded histories of a faulty cluster: make sim SEEDS=1000 FROM=1, or SEED=91
	@$(PYTHON_BIN) -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --from $(FROM)) $(if $(STORY),--story) $(ARGS)

interop: java  ## Real Aeron's tools and nodes judge our directories; the release before works beside this one
	@.ci/need npm nodejs npm
	@.ci/promtool
	@$(PYTHON_BIN) -m pytest -q -m 'interop and not slow' $(SHARE) $(ARGS)

# So many random kills and stops while Spark works, added to benchmarks/results/kills.jsonl: make faults KILLS=500
# With a real Aeron Cluster, added to kills_of_aeron.jsonl: make faults KILLS=200 ARGS=--aeron
faults: java  ## Real processes: killed, stopped, cut off, out of disk, out of power; KILLS=500: while Spark works
	@$(PYTHON_BIN) -m $(if $(KILLS),benchmarks.kills --kills $(KILLS),pytest -q -m faults $(SHARE)) $(ARGS)

MINUTES := 30
# With a real Aeron Cluster: rounds of kills while Spark reads and writes it: make soak MINUTES=30 ARGS=--aeron
soak: $(STAMP)  ## Churn for MINUTES; memory, descriptors, threads and files of every process must not grow
ifeq ($(ARGS),--aeron)
	@$(PYTHON_BIN) -m benchmarks.kills --minutes $(MINUTES) $(ARGS)
else
	@SOAK_MINUTES=$(MINUTES) $(PYTHON_BIN) -m pytest -q -s -o faulthandler_timeout=0 tests/faults/test_soak.py $(ARGS)
endif

bench: $(STAMP)  ## Measure, and write benchmarks/results/ to be committed beside the change
	@$(PYTHON_BIN) -m benchmarks $(ARGS)

# The tools of the site and of a release are in environments of their own, not where the product is.
SITE    := build/site-tools
RELEASE := build/release-tools
$(SITE): conf/site.lock
$(RELEASE): .ci/release.lock
$(SITE) $(RELEASE):
	@python3 -m venv $@ && $@/bin/pip install --quiet --require-hashes -r $<

docs: $(SITE) $(PACKAGES)  ## The pages of docs/ as a site in build/site, with search; links are checked
	@COLUMNS=100 PYTHONPATH=. $(PYTHON_BIN) .ci/pages.py build/docs
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --config-file conf/site.yml
	@cd build/docs && cp --parents *.md decisions/*.md ../site/
	@echo "make docs: build/site/index.html"

# TAG, of a release, has to be the version. Only `dist/` is written; .ci/release.yml publishes it.
release: $(PACKAGES) $(RELEASE)  ## Build the wheel and the sdist in dist/, check them, and list what they need
	@rm -rf dist
	@$(PYTHON_BIN) -m hatchling build 2>/dev/null
	@test -z "$(TAG)" || test -e dist/pyspark_cluster-$(TAG:v%=%).tar.gz || { echo "$(TAG) is not the version"; exit 1; }
	@$(RELEASE)/bin/twine check --strict dist/*
	@$(RELEASE)/bin/check-wheel-contents --toplevel cluster,spark_connector,pyspark_cluster dist/*.whl
	@$(RELEASE)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible $(PYTHON_BIN) \
	    -o dist/pyspark_cluster.cdx.json 2>/dev/null
	@ls -s dist

lock:         ## Resolve the dependencies again into requirements.lock (needs uv)
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header --quiet -o requirements.lock
	printf '%s\n' mkdocs-material mkdocstrings-python | uv pip compile - --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header --quiet -o conf/site.lock
	printf '%s\n' check-wheel-contents cyclonedx-bom twine | uv pip compile - --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header --quiet -o .ci/release.lock

clean:        ## Remove what runs and builds leave behind, .venv too
	rm -rf .venv build dist .benchmarks .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
