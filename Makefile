# The commands of the README, `make run`, `make quick` and `make test`, and shortcuts. CMake does the building (CMakePresets.json);
# tools/setup.sh puts on the machine what is missing.
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
PYTHON := build/venv/bin/python
RELEASE := build/release
SANITIZERS := asan ubsan tsan
TEST_PACKAGES := libgtest-dev libgmock-dev libbenchmark-dev
# How far a build is: steps finished, steps in all, seconds since it began.
export NINJA_STATUS := [%f of %t, %e s] 
# Which part of the long sweeps `make test` does: the first of six, counted from 0.
PART := 0/6
BUILD = tools/pulse.sh build cmake --build --preset release --parallel $(JOBS)
CTEST = tools/pulse.sh tests ctest --test-dir $(RELEASE) --output-on-failure

.PHONY: help run test soak smoke quick setup build archive models bench peers large corpus $(SANITIZERS) fuzz format tidy clean

help: ## show this list
	@sed -nE 's/^([a-z ]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-16s %s\n", $$1, $$2 }'

run: ## set up, build the command line, run a real model and compare it with LibTorch
	tools/setup.sh
	@echo "build: the libraries and the command line; tests are left out"
	@[ -f $(RELEASE)/build.ninja ] || cmake --preset release -DSCONCE_TESTS=OFF
	$(BUILD) --target sconce_tool
	$(PYTHON) tests/models/write_models.py build/models --only resnet18 mlp lstm_loop
	tools/demo.sh $(RELEASE)/bin/sconce build/models $(PYTHON)

test: models ## set up, build, run every test; of long sweeps the part PART (0/6)
	cmake --preset release -DSCONCE_TESTS=ON -DSCONCE_BENCHMARKS=OFF
	$(BUILD)
	SCONCE_PART=$(PART) $(CTEST) --parallel 2

soak: build models ## every test with all parts of the sweeps, and each benchmark once
	$(CTEST) --parallel 2

smoke: build models ## each benchmark once, to see that it runs
	$(CTEST) -L bench-smoke

quick: models ## build and run the fast tests, which take less than half a minute
	cmake --preset release -DSCONCE_TESTS=ON
	$(BUILD) --target unit_tests
	$(CTEST) --parallel $(JOBS) -L unit

setup: ## install what is missing: system packages, those of the tests too, LibTorch in build/venv
	tools/setup.sh $(TEST_PACKAGES)

build: setup ## the release build, with tests and benchmarks
	cmake --preset release -DSCONCE_TESTS=ON -DSCONCE_BENCHMARKS=ON
	$(BUILD)

archive: setup ## the release build as an archive that can be unpacked anywhere (docs/deploying.md)
	cmake --preset release
	$(BUILD)
	cpack --config $(RELEASE)/CPackConfig.cmake -B $(RELEASE)

models: setup ## script the models of the tests into build/models
	tools/pulse.sh models $(PYTHON) tests/models/write_models.py build/models

bench: build models ## every benchmark, in earnest
	@for program in $(RELEASE)/bench/*; do \
	  [ ! -f $$program ] || [ ! -x $$program ] || SCONCE_MODELS_DIR=build/models $$program || exit 1; \
	done

# LibTorch comes from build/venv; the other packages stay apart from it.
define venv_beside_libtorch
	$(PYTHON) -m venv --clear $(1)
	$(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	  "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/libtorch.pth"
endef
PEERS := build/peers-venv
$(PEERS)/ready: Makefile | setup
	$(call venv_beside_libtorch,$(PEERS))
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2 \
	  transformers==5.24.0
	touch $@

peers: build models $(PEERS)/ready ## sconce beside torch.compile and ONNX Runtime, in one table
	$(PEERS)/bin/python bench/peers.py $(RELEASE) build/models

large: build $(PEERS)/ready ## large models, frozen, beside torch.compile and ONNX Runtime
	for threads in 1 $$(nproc); do $(PEERS)/bin/python bench/large.py $(RELEASE) --threads $$threads || exit 1; done

CORPUS := build/corpus-venv
$(CORPUS)/ready: Makefile | setup
	$(call venv_beside_libtorch,$(CORPUS))
	$(CORPUS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps timm==1.0.31 torchaudio==2.11.0
	$(CORPUS)/bin/python -m pip install --quiet --disable-pip-version-check transformers==5.24.0
	touch $@

corpus: build $(CORPUS)/ready ## ratios to torch::jit over many models of timm, torchaudio, transformers and others
	$(CORPUS)/bin/python bench/corpus.py $(RELEASE) --out build/corpus --resume --threads 1 $$(nproc)

asan ubsan tsan: setup models ## the tests under a sanitizer
	cmake --preset $@
	cmake --build --preset $@ --parallel $(JOBS)
	ctest --test-dir build/$@ --output-on-failure --parallel 2 -L 'unit|differential|stress|fuzz'

fuzz: ## a minute of libFuzzer on each target of tests/fuzz/libfuzzer
	tools/setup.sh $(TEST_PACKAGES) clang-19 libclang-rt-19-dev
	cmake --preset fuzz
	cmake --build --preset fuzz --parallel $(JOBS)
	ctest --test-dir build/fuzz --output-on-failure

format: ## clang-format on every C++ file
	tools/setup.sh clang-format-19
	git ls-files --cached --others --exclude-standard '*.cpp' '*.h' | xargs clang-format-19 -i

# BASE: what the files are compared with.
BASE ?= $(shell git rev-parse --verify --quiet origin/main || echo HEAD)
tidy: build ## clang-tidy on the C++ files that differ from BASE (default origin/main)
	tools/setup.sh clang-tidy-19
	git diff --name-only --diff-filter=d $(BASE) -- 'src/*.cpp' 'tools/*.cpp' 'tests/*.cpp' 'bench/*.cpp' | \
	  xargs -r clang-tidy-19 -p $(RELEASE) --quiet

clean: ## remove the builds, keep LibTorch and the models
	rm -rf build/release build/dev $(SANITIZERS:%=build/%) build/fuzz build/gpu-carry build/gpu-carry-objects
