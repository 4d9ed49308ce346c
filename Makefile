# Two commands are enough: `make demo` shows the whole product, `make test` proves it. Each does the
# set-up it needs, once; `make help` lists the rest.

PYTHON_BIN := .venv/bin/python
PACKAGES   := .venv/.packages-done
STAMP      := .venv/.setup-done
SHELL      := /bin/bash
# Without bytecode each process of a test compiles this tree, and pytest rewrites all tests, again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup java demo test budget slow lint conformance sim interop faults bench docs lock clean

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
	@$(PYTHON_BIN) -m tests.seconds

# An eighth of the tests, by whole files: make slow PART=0/8. So with faults.
SHARE = $(if $(PART),--part $(PART))

slow: java  ## Documents line by line, matrices, seeds for planted mistakes, more of the same histories
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
	@.ci/node
	@$(PYTHON_BIN) -m pytest -q -m 'interop and not slow' $(ARGS)

# So many random kills and stops while Spark works, added to benchmarks/results/kills.jsonl: make faults KILLS=500
faults: java  ## Real processes: killed, stopped, cut off, out of disk, out of power; KILLS=500: while Spark works
	@$(PYTHON_BIN) -m $(if $(KILLS),benchmarks.kills --kills $(KILLS),pytest -q -m faults $(SHARE)) $(ARGS)

bench: $(STAMP)  ## Measure, and write benchmarks/results/ to be committed beside the change
	@$(PYTHON_BIN) -m benchmarks $(ARGS)

# A site of its own needs, in an environment of its own: nothing of it is installed where the product is.
SITE := build/site-tools
$(SITE): conf/site.lock
	@python3 -m venv $@ && $@/bin/pip install --quiet --require-hashes -r $<

docs: $(SITE)  ## The pages of docs/ as a site in build/site, with search; links are checked
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --config-file conf/site.yml
	@cp docs/*.md build/site/ && cp docs/README.md build/site/llms.txt
	@echo "make docs: build/site/index.html"

lock:         ## Resolve the dependencies again into requirements.lock (needs uv)
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header --quiet -o requirements.lock
	echo mkdocs-material | uv pip compile - --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header --quiet -o conf/site.lock

clean:        ## Remove what runs and builds leave behind, .venv too
	rm -rf .venv build dist .benchmarks .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
