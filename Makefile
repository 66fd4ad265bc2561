# Paddlewheel: every command a developer needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export UV_PYTHON_DOWNLOADS ?= never
# Some images set it; without bytecode on disk every Python process takes twice as long to start.
export PYTHONDONTWRITEBYTECODE :=

UV := $(or $(shell command -v uv),build/uv/bin/uv)
RUN := $(UV) run --frozen --no-sync
PADDLEWHEEL := $(RUN) paddlewheel
# Built before the tests: a test has minutes, and the compiler leaves the others no processor.
PROGRAMS := kubernetes containerd coredns pause kwok kueue gateway-api
# Random histories: 30 of each in `make test`.
PROPERTIES := tests/unit/job_controller/properties tests/unit/kube/test_store_model.py
TESTS := tests/unit tests/contract tests/attacks tests/integration tests/e2e
# More workers than cores: many tests wait. With five, deadlines pass on two cores. ARGS="-n0 -k x" runs without them.
PARALLEL := -n $(or $(WORKERS),3)

.PHONY: help check check-style check-types check-tests demo docs recording down test test-long test-long-for-change bench chaos attacks mutants rights verify gen fmt images venv doctor snapshot service dist

help: ## List the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 23

build/uv/bin/uv:
	python3 -m pip install --quiet --target build/uv uv

venv: $(filter build/uv/bin/uv,$(UV))
	@$(UV) sync --frozen --quiet

doctor: venv
	@$(PADDLEWHEEL) doctor --fix

demo: venv ## Images from an object store to a trained model on a real Kubernetes (ARGS="--help" for options)
	@$(PADDLEWHEEL) demo $(ARGS)

docs: venv ## Build the documentation site into build/site
	@$(RUN) python -m paddlewheel.docs build

recording: venv ## Record the demo for the README (with asciinema and svg-term, which it downloads)
	$(UV) tool run --from asciinema asciinema rec --overwrite --quiet --cols 118 --rows 40 --command "$(PADDLEWHEEL) demo" build/demo.cast
	@$(RUN) python -m paddlewheel.docs recording build/demo.cast build/short.cast
	npx --yes svg-term-cli --in build/short.cast --out docs/assets/demo.svg --window

down: venv ## Remove the demo's cluster without a trace
	@$(PADDLEWHEEL) cluster down --name demo

check: venv ## The inner loop: format, lint, types, quick unit tests, contract tests on the memory adapters
	@$(MAKE) --no-print-directory --jobs --output-sync=target check-style check-types check-tests

check-style:
	@$(RUN) ruff format --check --quiet .
	@$(RUN) ruff check --quiet .
	@$(RUN) python -m tests.english
	@$(RUN) lint-imports

check-types:
	@$(RUN) mypy libs services tests examples

check-tests:
	@$(RUN) pytest tests/unit tests/contract -k "unit or memory or asyncapi or parity" -m "not long and not slow" --quiet -n 2 --hypothesis-profile quick $(ARGS)

test: doctor ## The short suite, at most 15 minutes: all unit tests, each service on real servers, the demo (ARGS="-n0 -k x" picks)
	rm -rf build/rights
	@$(PADDLEWHEEL) cluster build $(PROGRAMS) >/dev/null
	$(RUN) pytest $(TESTS) -m "not long" $(PARALLEL) --durations 20 $(ARGS)
	$(if $(ARGS),,@$(RUN) python -m tests.rights --missing-only)

test-long: doctor ## All other tests (ONLY="paths" or ONLY=word picks)
	@$(PADDLEWHEEL) cluster build >/dev/null
	$(RUN) pytest $(if $(findstring /,$(ONLY)),$(ONLY),$(TESTS) $(if $(ONLY),-k "$(ONLY)")) -m long $(PARALLEL) --durations 20 $(ARGS)
	$(if $(ONLY),,PADDLEWHEEL_LONG_PROPERTIES=1000 $(RUN) pytest -q $(PROPERTIES))

test-long-for-change: venv ## Which long tests a change needs (BASE=origin/main): the commands that run them
	@$(RUN) python -m tests.long_for_change $(BASE)

rights: venv ## What the last test run asked of the API server against the chart's roles: missing and unused rights
	@$(RUN) python -m tests.rights

bench: doctor ## Measure: name, value, goal, ok or short (ONLY=group picks one)
	$(RUN) python -m tests.bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

chaos: doctor ## Break things on purpose, kill -9 and worse: each promise as a row (ONLY=group picks one)
	$(RUN) python -m tests.chaos $(if $(ONLY),--only $(ONLY)) $(ARGS)

attacks: doctor ## What people and pods try on each other, on the chart's own server: refused or SUCCEEDED (ONLY=text picks)
	@$(PADDLEWHEEL) cluster build $(PROGRAMS) >/dev/null
	@$(RUN) python -m tests.attacks $(if $(ONLY),"$(ONLY)")

mutants: venv ## Mutation testing of the pure code: score and survivors (ONLY=package picks one, see tests/mutants.toml)
	@$(UV) sync --frozen --quiet --group mutants
	@$(RUN) python -m tests.mutants $(if $(ONLY),--only $(ONLY)) $(ARGS)

verify: venv ## Format, lint, plain English, types, imports, generated files, documentation, chart
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) python -m tests.english
	$(RUN) mypy libs services tests examples
	$(RUN) lint-imports
	cd protos && ../.venv/bin/buf lint && ../.venv/bin/buf format --diff --exit-code
	cd protos && ../.venv/bin/buf breaking --against released/contracts.json
	$(RUN) python -m paddlewheel.contracts.gen --check
	$(RUN) python -m paddlewheel.contracts.crds.gen --check
	$(RUN) python -m paddlewheel.bus.admin.accounts_gen --check
	$(RUN) python -m paddlewheel.docs gen --check
	$(RUN) python -m paddlewheel.docs build
	$(RUN) helm lint --strict deploy/charts/*/

dist: venv ## Everything a release would publish, in build/dist (ARGS=--without-images)
	$(RUN) python -m paddlewheel.scaffold.release $(ARGS)

gen: venv ## Generate models from protos/, CRDs from the models, and reference pages
	$(RUN) python -m paddlewheel.contracts.gen
	$(RUN) python -m paddlewheel.contracts.crds.gen
	$(RUN) python -m paddlewheel.bus.admin.accounts_gen
	$(RUN) python -m paddlewheel.docs gen

snapshot: venv ## At a release: keep the contracts, `make verify` refuses what breaks them from then on
	mkdir -p build && cd protos && ../.venv/bin/buf breaking --against released/contracts.json && set -o pipefail && \
		../.venv/bin/buf build --exclude-source-info -o -#format=json | \
		python3 -m json.tool --indent 1 - ../build/contracts.json && mv ../build/contracts.json released/contracts.json

fmt: venv ## Format everything
	$(RUN) ruff format .
	$(RUN) ruff check --fix .
	cd protos && ../.venv/bin/buf format --write

images: doctor ## Build every container image into the local cache
	@$(PADDLEWHEEL) images build

service: venv ## A new controller: NAME=notebook [KIND= GROUP= VERSION= CONTEXT=] (docs/add-a-service.md)
	$(RUN) python -m paddlewheel.scaffold $(NAME) $(if $(KIND),--kind $(KIND)) $(if $(GROUP),--group $(GROUP)) \
	  $(if $(VERSION),--version $(VERSION)) $(if $(CONTEXT),--context $(CONTEXT))
	$(UV) lock --quiet && $(UV) sync --frozen --quiet
