# Everything a contributor runs. Each target sets up what it needs in .venv and does nothing twice.
# A fresh machine needs python3 (3.10 or later, with venv), a Rust toolchain (1.85 or later) and g++.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
TORCH ?= 2.15.0
# Optimisation of the extension: `dev` (opt-level 1, fast to rebuild) or `release` (what a wheel holds).
PROFILE ?= dev
# Extra arguments for pytest: make test PYTEST="-k views"
PYTEST ?=
# Extra arguments for the sweep: make conformance CONFORMANCE="--operators 'linalg.*' --modes strict"
CONFORMANCE ?=
# Extra arguments for random programs: make fuzz FUZZ="--programs 10000"
FUZZ ?=
# Extra arguments for the judges: make judge JUDGE="--files 'nn/*' --mode fused --sample 40"
JUDGE ?=
# Extra arguments for the demo: make demo DEMO="--epochs 2"
DEMO ?=

ROOT := $(abspath .)
VENV := $(ROOT)/.venv
PY := $(VENV)/bin/python
PROFILE_FOLDER := $(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
# What the crates' build scripts need to know, the same for every cargo call so that none rebuilds for another.
CARGO = eval "$$($(PY) build_backend/torchtpu_build.py)" && cargo
# Where the peers of `make bench` live; PEERS=none leaves them out.
PEERS ?= all

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

# ---- environment -----------------------------------------------------------------------------------------------

.PHONY: tools
tools:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.85 or later, see https://rustup.rs" >&2; exit 1; }
	@command -v c++ >/dev/null || { echo "c++ is missing: install g++" >&2; exit 1; }

$(PY): | tools
	$(PYTHON) -m venv $(VENV)

# The extension is built with these packages. The editable installs below then need no isolated environment with a second torch.
# Not quiet: torch's wheel brings gigabytes of libraries, and whoever waits should see why.
$(VENV)/.ready-build: pyproject.toml build_backend/torchtpu_build.py | $(PY)
	$(PY) -m pip install "torch==$(TORCH)" xla_cpu_pjrt "maturin>=1.7,<2" "libclang>=16"
	@touch $@

# The package in place, with what its examples need.
$(VENV)/.ready-examples: pyproject.toml | $(VENV)/.ready-build
	TORCHTPU_NATIVE=skip $(PY) -m pip install --quiet --no-build-isolation --editable ".[examples]"
	@touch $@

# The same, with what contributors need.
$(VENV)/.ready: pyproject.toml $(VENV)/.ready-build
	TORCHTPU_NATIVE=skip $(PY) -m pip install --quiet --no-build-isolation --editable ".[dev,examples]"
	@touch $@ $(VENV)/.ready-examples

.PHONY: venv
venv: $(VENV)/.ready ## Set up .venv

.PHONY: build
build: extension $(VENV)/.ready ## Set up .venv and build the extension

# The C++ shim includes Python's own headers, so the extension is for one version of Python, and its name says which.
.PHONY: extension
extension: $(VENV)/.ready-build ## Build the extension into python/torchtpu (PROFILE=dev or release)
	@$(CARGO) build --package torchtpu --lib --profile $(PROFILE)
	@extension=python/torchtpu/_C$$($(PY) -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))'); \
	cmp --silent target/$(PROFILE_FOLDER)/libtorchtpu.so $$extension \
		|| { cp target/$(PROFILE_FOLDER)/libtorchtpu.so $$extension.new && mv -f $$extension.new $$extension; }

# ---- checks ----------------------------------------------------------------------------------------------------

# Workers take the next test from the one that has most left, so no long test is alone at the end.
PYTEST_RUN = $(PY) -m pytest -n 2 --dist worksteal
# The seed of `make test-nightly`.
TODAY := $(shell date +%Y%m%d)

# Two at a time of what uses one core for most of its time. Each one's output comes when it has ended.
IN_PAIRS = $(MAKE) --no-print-directory --jobs 2 --output-sync=target

.PHONY: test
test: $(VENV)/.ready-build ## Lint, Rust tests and Python tests: the same cases on any day (without the slow sweeps)
	@+$(IN_PAIRS) extension $(VENV)/.ready $(LIBTPU)/.ready
	@+$(IN_PAIRS) lint-rust lint-python
	@$(MAKE) --no-print-directory test-rust
	@+$(IN_PAIRS) smoke smoke-tpu-compiler
	@$(MAKE) --no-print-directory test-python

.PHONY: smoke
smoke: build ## The shortest check that the device works, with programs compiled as users have them
	$(PY) -m pytest --optimized --each-mode -q tests/smoke

# libtpu in a folder of its own: the other tests must pass without it.
LIBTPU := $(ROOT)/build/libtpu

$(LIBTPU)/.ready: | $(VENV)/.ready-build
	$(PY) -m pip install --quiet --no-deps --target $(LIBTPU) libtpu
	@touch $@

.PHONY: smoke-tpu-compiler
smoke-tpu-compiler: build $(LIBTPU)/.ready ## The shortest check of what asks a TPU's compiler (installs libtpu into build/libtpu)
	PYTHONPATH=$(LIBTPU) $(PY) -m pytest -q tests/preflight/test_options.py -k "function or ends"

.PHONY: test-nightly
test-nightly: build ## Python tests by the date's seed, with more draws, each mode, and optimized programs
	@echo "TORCHTPU_TEST_SEED=$${TORCHTPU_TEST_SEED:-$(TODAY)} make test-nightly repeats this"
	TORCHTPU_TEST_SEED=$${TORCHTPU_TEST_SEED:-$(TODAY)} TORCHTPU_CONFORMANCE_CASES=600 TORCHTPU_PROPERTY_PROGRAMS=240 \
		TORCHTPU_OPERATOR_INPUTS=8 TORCHTPU_HOSTILE_TRIALS=40 \
		TORCHTPU_DISTRIBUTED_TRIALS=50 TORCHTPU_DISTRIBUTED_STEPS=500 TORCHTPU_TRAINING_STEPS=20 \
		$(PYTEST_RUN) --optimized --each-mode -m "not slow" $(PYTEST)
	$(PY) -m tests.conformance.matrix

.PHONY: fuzz
fuzz: build ## Many random programs whose sizes change, in all modes; resumes an interrupted run (FUZZ="--programs 10000")
	@$(PY) -m tests.fuzz $(FUZZ)

.PHONY: test-all
test-all: lint test-rust build ## Everything, the slow sweeps included
	$(PYTEST_RUN) $(PYTEST)

.PHONY: test-rust
test-rust: $(VENV)/.ready ## Rust tests
	@if cargo nextest --version >/dev/null 2>&1; then $(CARGO) nextest run --workspace --no-tests pass; \
		else $(CARGO) test --workspace --quiet; fi

.PHONY: test-python
test-python: build ## Python tests (PYTEST="-k views" for some)
	$(PYTEST_RUN) -m "not slow and not nightly" --ignore tests/smoke $(PYTEST)

$(VENV)/.ready-libraries: pyproject.toml | $(VENV)/.ready
	TORCHTPU_NATIVE=skip $(PY) -m pip install --no-build-isolation --editable ".[libraries]"
	@touch $@

.PHONY: test-libraries
test-libraries: build $(VENV)/.ready-libraries ## Models and trainers of transformers, diffusers, timm, torchao, Lightning, torchtitan, PyG, GPyTorch, Pyro, kornia and others
	HF_HUB_OFFLINE=1 $(PY) -m pytest -n 2 tests/integration/test_libraries.py tests/integration/test_domain_libraries.py \
		tests/integration/test_lightning.py tests/integration/test_accelerate.py tests/operators/test_detection.py \
		tests/integration/test_storage_copies.py

# vLLM and what it needs, in a folder of their own: it asks for another torch and an older transformers than .venv has.
SERVING := $(ROOT)/build/serving

$(SERVING)/.ready: examples/serving/requirements.txt examples/serving/requirements-no-deps.txt | $(VENV)/.ready
	rm -rf $(SERVING)
	@mkdir -p build
	$(PY) -m pip freeze --exclude-editable | grep -E '^(numpy|torch)==' > build/serving-kept.txt
	$(PY) -m pip install --target $(SERVING) --constraint build/serving-kept.txt -r examples/serving/requirements.txt
	$(PY) -m pip install --target $(SERVING) --no-deps -r examples/serving/requirements-no-deps.txt
	@touch $@

.PHONY: test-serving
test-serving: build $(SERVING)/.ready ## vLLM on the device: tokens, programs, settings (installs vLLM into build/serving)
	PYTHONPATH=$(SERVING) $(PY) -m pytest tests/integration/test_serving.py \
		tests/integration/test_vllm.py tests/integration/test_vllm_quantization.py \
		tests/integration/test_vllm_adapters.py tests/integration/test_vllm_parallel.py \
		tests/integration/test_vllm_http.py $(PYTEST)

# What the tests of vLLM import beside vLLM.
$(SERVING)-tests/.ready: $(SERVING)/.ready
	$(PY) -m pip install --quiet --target $(SERVING)-tests --no-deps tblib pytest-asyncio
	@touch $@

.PHONY: judge-serving
judge-serving: build $(SERVING)-tests/.ready ## vLLM's own tests, downloaded once, with small random models (JUDGE="--help")
	PYTHONPATH=$(SERVING):$(SERVING)-tests $(PY) -m tests.judge.serving $(JUDGE)

.PHONY: demo-serve
demo-serve: build $(SERVING)/.ready ## Serve a small random Llama by vLLM, and ask it as OpenAI's client does
	PYTHONPATH=$(SERVING) $(PY) examples/serving/demo.py $(DEMO)

.PHONY: conformance
conformance: build ## All that PyTorch tests of its operators, against the CPU (CONFORMANCE="--help")
	$(PY) -m tests.conformance $(CONFORMANCE)

.PHONY: conformance-tpu
conformance-tpu: build ## Of the same, what a TPU's compiler does not take (needs libtpu; CONFORMANCE="--help")
	$(PY) -m tests.conformance --compile-for v5e $(CONFORMANCE)

$(VENV)/.ready-libtpu: | $(VENV)/.ready
	$(PY) -m pip install --quiet libtpu
	@touch $@

# The scripts of users that preflight's tests run.
$(VENV)/.ready-tpu-tests: $(VENV)/.ready-libtpu
	$(PY) -m pip install --quiet "transformers>=5" accelerate
	@touch $@

.PHONY: test-tpu-compiler
test-tpu-compiler: build $(VENV)/.ready-tpu-tests ## Tests that ask a TPU's compiler, which needs no TPU (installs libtpu)
	$(PYTEST_RUN) tests/preflight tests/integration/test_tpu_programs.py \
		tests/distributed/test_ahead.py tests/kernels tests/engine/test_cache.py $(PYTEST)

# One of PyTorch's test files draws with it.
$(VENV)/.ready-judge: | $(VENV)/.ready
	$(PY) -m pip install --quiet hypothesis pyyaml
	@touch $@

.PHONY: judge
judge: build $(VENV)/.ready-judge ## PyTorch's own test files, downloaded once, on the device and on the CPU (JUDGE="--help")
	$(PY) -m tests.judge $(JUDGE)

.PHONY: judge-distributed
judge-distributed: build ## The same for its tests of torch.distributed, on several processes
	$(PY) -m tests.judge --suite distributed --jobs 1 --seconds 300 $(JUDGE)

.PHONY: judge-compile
judge-compile: build $(VENV)/.ready-judge ## The same for inductor's tests of torch.compile that any device runs
	$(PY) -m tests.judge.inductor $(JUDGE)

# Clients of torchtpu.compat: helion and PyTorch's own tests of their Pallas kernels, as published. With
# HELION=FOLDER and PYTORCH=FOLDER checkouts that are there already are used.
CLIENTS := $(ROOT)/build/clients
HELION ?= $(CLIENTS)/helion
PYTORCH ?= $(CLIENTS)/pytorch

$(CLIENTS)/.ready: | $(VENV)/.ready
	$(PY) -m pip install --quiet --target $(CLIENTS)/packages --no-deps helion==1.5.1 filecheck rich scikit-learn psutil \
		absl-py joblib threadpoolctl scipy narwhals markdown-it-py mdurl pygments
	@touch $@

$(CLIENTS)/helion:
	git clone --quiet --depth 1 --branch v1.5.1 https://github.com/pytorch/helion $@

$(CLIENTS)/pytorch:
	git clone --quiet --depth 1 --branch v$(TORCH) --filter=blob:none --sparse https://github.com/pytorch/pytorch $@
	git -C $@ sparse-checkout set test/inductor

.PHONY: judge-kernels
judge-kernels: build $(CLIENTS)/.ready $(HELION) $(PYTORCH) ## The tests of helion's and inductor's Pallas kernels (HELION=FOLDER PYTORCH=FOLDER)
	PYTHONPATH=$(CLIENTS)/packages $(PY) -m tests.judge.kernels --helion $(HELION) --pytorch $(PYTORCH) $(JUDGE)

.PHONY: judge-architectures
judge-architectures: build $(VENV)/.ready-libraries ## A step of each architecture of transformers, tiny and random, beside the CPU
	$(PY) -m tests.judge.architectures $(JUDGE)

.PHONY: lint
lint: lint-rust lint-python ## Formatting, clippy, ruff, mypy, paths in prose

.PHONY: lint-rust
lint-rust: $(VENV)/.ready
	cargo fmt --all --check
	@$(CARGO) clippy --workspace --all-targets -- --deny warnings

.PHONY: lint-python
lint-python: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(PY) tests/prose_paths.py
	$(PY) -m tests.lint.csrc_names
	$(PY) -m tests.lint.import_circles

.PHONY: format
format: $(VENV)/.ready ## Format Rust and Python
	cargo fmt --all
	$(VENV)/bin/ruff check --fix --quiet . || true
	$(VENV)/bin/ruff format .

# ---- showing ---------------------------------------------------------------------------------------------------

.PHONY: demo
demo: extension $(VENV)/.ready-examples ## Train a small CNN on handwritten digits in the three modes
	$(PY) examples/digits.py --device tpu --mode all $(DEMO)

# The chip of `make preflight`: make preflight CHIP=v6e
CHIP ?= v5e

.PHONY: preflight
preflight: build $(VENV)/.ready-libtpu ## What a TPU's compiler says of the character GPT (CHIP=v6e), as text and as a page
	@mkdir -p build/demo
	$(PY) -m torchtpu preflight --chip $(CHIP) --html build/demo/preflight.html examples/char_gpt.py --device tpu
	@echo "build/demo/preflight.html"

.PHONY: demo-distributed
demo-distributed: extension $(VENV)/.ready-examples ## Train a character GPT with FSDP2 on two processes, beside one process
	OMP_NUM_THREADS=1 $(PY) -m torch.distributed.run --standalone --nproc-per-node 2 examples/distributed/sharded_gpt.py --compare $(DEMO)

.PHONY: bench
bench: $(VENV)/.ready-examples ## Time operators and training steps beside the peers (PEERS=none for ours alone)
	$(MAKE) build PROFILE=release
	$(PY) benches/operator_cost.py --peers $(PEERS)
	$(PY) benches/training_step.py --peers $(PEERS)
	$(PY) benches/changing_lengths.py
	$(PY) benches/windowed_attention.py
	$(PY) benches/vocabulary_loss.py
	$(PY) benches/steady_state.py --peers $(PEERS)
	@$(PY) -c 'import libtpu' 2>/dev/null && $(PY) benches/tpu_estimate.py --peers $(PEERS) \
		|| echo "no libtpu: pip install libtpu for benches/tpu_estimate.py"

.PHONY: docs
docs: build ## docs/operators.md, which must not be stale; documentation of the crates and of torch.tpu in build/docs
	$(PY) -m tests.conformance.matrix
	@$(CARGO) doc --workspace --no-deps --document-private-items --target-dir build/docs/rust --quiet
	@mkdir -p build/docs/python && cd build/docs/python && for module in torchtpu torchtpu.tpu torchtpu.graphs torchtpu.operators; do \
		$(PY) -m pydoc $$module > $$module.txt; done
	@echo "build/docs/rust/doc/ and build/docs/python/"

# ---- packaging -------------------------------------------------------------------------------------------------

WHEEL := build/wheel-$(TORCH)-$(notdir $(PYTHON))

# Torch is only compiled and linked against here, so it comes without the packages that running it would need.
$(WHEEL)/.ready: pyproject.toml | tools
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip install --quiet --no-deps "torch==$(TORCH)"
	$(WHEEL)/bin/python -m pip install --quiet xla_cpu_pjrt "maturin>=1.7,<2" "libclang>=16"
	@touch $@

.PHONY: wheel
wheel: $(WHEEL)/.ready ## Build a wheel for one torch and one Python (TORCH=2.11.0 PYTHON=python3.12) into dist/torch-<version>
	CARGO_TARGET_DIR=$(ROOT)/$(WHEEL)/target $(WHEEL)/bin/python -m pip wheel --quiet --no-deps \
		--no-build-isolation --wheel-dir dist/torch-$(TORCH) .
	@ls -lh dist/torch-$(TORCH)/*.whl

# An environment with that torch, and with what the shortest check imports.
$(WHEEL)-run/.ready: pyproject.toml | tools
	$(PYTHON) -m venv $(WHEEL)-run
	$(WHEEL)-run/bin/python -m pip install "torch==$(TORCH)" xla_cpu_pjrt numpy "pytest>=8" "pytest-timeout>=2.3"
	@touch $@

.PHONY: smoke-wheel
smoke-wheel: wheel $(WHEEL)-run/.ready ## The shortest check with another torch or Python (TORCH=2.11.0 PYTHON=python3.12)
	$(WHEEL)-run/bin/python -m pip install --quiet --no-deps --force-reinstall --no-index --find-links dist/torch-$(TORCH) torchtpu
	$(WHEEL)-run/bin/python -m pytest tests/smoke --optimized

.PHONY: clean
clean: ## Remove what was built; the virtual environments stay
	rm -rf target build/docs build/demo build/conformance build/wheel-*/target dist python/torchtpu/*.so .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
