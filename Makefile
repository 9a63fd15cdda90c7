# Every target sets up what it needs: the first run builds .venv from requirements.lock, later ones start at once.
# Each is also a plain command; see CONTRIBUTING.md.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long lint simulate bench-mirror bench-proxy bench-broadcast compatibility show-crossing show-topics show-groups show-switch show-client show-proxy show-broadcast show-advisor show-nouns show-protection show-platform show-demo docs site wheel lock clean
BIN := .venv/bin
# Tests wait more than they work: so many run side by side, also on two cores, each with servers of its own. WORKERS=0 for one after the other.
WORKERS := 3
# --record=FILE is one word: of two, pytest takes the second for a test once the file is there, and finds no conftest.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25 --record=.cache/runs/$@
# RUN="FILE ..." takes what tests show from such records of this very commit, and plays no test again.
SHOWN = $(foreach file,$(RUN),--from-run $(file))

# Another Spark or Python that the user's shell points at would be loaded in place of the locked one.
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYTHONPATH PYTHONHOME VIRTUAL_ENV
# Tests start some thousand Pythons. Where a shell or an image forbids bytecode, each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONUNBUFFERED := 1

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1 | /p' Makefile | awk -F'|' '{ printf "%-22s%s\n", $$1, $$2 }'

setup: ## build or refresh .venv; every other target does it first
	@sh scripts/setup.sh

demo: setup ## two real clusters kept identical while a pump is killed; KEEP=1 leaves them running
	@$(BIN)/twinshore demo

test: setup ## every test but the long ones
	@$(BIN)/python -m scripts.servers
	@$(PYTEST) -m "not long"

test-long: setup ## every test
	@$(BIN)/python -m scripts.servers
	@$(PYTEST)

lint: setup ## style, types, the order of packages
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/pages.py --check

simulate: setup ## the mirror in simulated clusters: SEEDS=n runs so many, SEED=n replays one
	@PYTHONPATH=src $(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000) --processes 2)

bench-mirror: setup ## side by side with MirrorMaker 2; writes docs/benchmarks.md
	@$(BIN)/python -m bench.measure.mirror
	@$(BIN)/python scripts/pages.py

bench-proxy: setup ## the proxy side by side with others and with none; writes docs/benchmarks.md; KAFKA_PROXY=FILE names a peer's program
	@$(BIN)/python -m bench.measure.proxy
	@$(BIN)/python scripts/pages.py

bench-broadcast: setup ## one source, many targets: what leaves the source, and the CPU for a record and a target
	@$(BIN)/python -m bench.measure.broadcast

compatibility: setup ## clients of many makes and versions by the proxy; writes docs/compatibility.md
	@$(BIN)/python -m bench.show.compatibility

show-crossing: setup ## each claim about the mirror on real brokers; LONG=1 at full size
	@$(BIN)/python -m bench.show.crossing $(SHOWN)

show-topics: setup ## each claim about topics and incidents on real brokers; LONG=1 at full size
	@$(BIN)/python -m bench.show.topics $(SHOWN)

show-groups: setup ## each claim about groups, delay and proof on real clusters; LONG=1 at full size
	@$(BIN)/python -m bench.show.groups $(SHOWN)

show-switch: setup ## each claim about switching topics on real clusters; LONG=1 for longer
	@$(BIN)/python -m bench.show.switch $(SHOWN)

show-client: setup ## each claim about the client library on real clusters; LONG=1 for longer; writes docs/evidence/client.md
	@$(BIN)/python -m bench.show.client $(SHOWN)

show-proxy: setup ## each claim about the proxy on real clusters; writes docs/evidence/proxy.md
	@$(BIN)/python -m bench.show.proxy $(SHOWN)

show-broadcast: setup ## each claim about broadcasts on real clusters; LONG=1 with more records; writes docs/evidence/broadcast.md
	@$(BIN)/python -m bench.show.broadcast $(SHOWN)

show-advisor: setup ## each claim about the advisor on real clusters; LONG=1 at full size; writes docs/evidence/advisor.md
	@$(BIN)/python -m bench.show.advisor $(SHOWN)

show-nouns: setup ## each claim about the form of code and pages, and the files that a record enters; writes docs/evidence/nouns.md
	@$(BIN)/python -m bench.show.nouns $(SHOWN)

show-protection: setup ## writes that both sides acknowledge, while parts fail, on real clusters; LONG=1 for longer; writes docs/evidence/protection.md
	@$(BIN)/python -m bench.show.protection $(SHOWN)

show-platform: setup ## topics switched by pages on real clusters while processes die, roles, costs of pages; writes docs/evidence/platform.md
	@$(BIN)/python -m bench.show.platform $(SHOWN)

show-demo: setup ## the demo, and README's picture of it; writes docs/evidence/demo.txt
	@$(BIN)/python -m bench.show.demo
	@$(BIN)/python scripts/pages.py

docs: setup ## write the generated pages again
	@$(BIN)/python scripts/pages.py

site: setup ## build the docs as a site, into build/site
	@$(BIN)/python scripts/build_site.py

wheel: setup ## sdist and wheel, and the wheel of the client library alone, into dist/
	@rm -rf dist build
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/python -m build --no-isolation --wheel --outdir dist client
	@rm -rf build client/build

lock: setup ## resolve requirements.lock anew, names and hashes only
	@sh scripts/lock.sh

clean: ## remove everything that make has made here
	@rm -rf .venv .cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist src/*.egg-info
	@find src tests bench scripts -type d -name __pycache__ -prune -exec rm -rf {} +
