# The two commands of the README, and shortcuts. Everything is built by CMake (see CMakePresets.json).
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
PYTHON := build/venv/bin/python
RELEASE := build/release

.PHONY: help run test setup build models bench asan ubsan tsan format tidy clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-8s %s\n", $$1, $$2}'

run: build ## set up, build, run a real model and compare it with LibTorch
	$(PYTHON) tests/models/write_models.py build/models --only resnet18
	tools/demo.sh $(RELEASE)/bin/sconce build/models

test: build models ## set up, build, run every test
	ctest --test-dir $(RELEASE) --output-on-failure --parallel 2

setup: ## install what is missing (system packages, LibTorch into build/venv)
	tools/setup.sh

build: setup ## the release build
	cmake --preset release -Wno-dev
	cmake --build $(RELEASE) --parallel $(JOBS)

models: setup ## script the models that the tests use into build/models
	$(PYTHON) tests/models/write_models.py build/models

bench: build models ## every benchmark, in earnest
	@for program in $(RELEASE)/bench/*; do test -x $$program -a -f $$program && SCONCE_MODELS_DIR=build/models $$program || exit 1; done

asan ubsan tsan: setup models ## the tests under a sanitizer
	cmake --preset $@ -Wno-dev
	cmake --build build/$@ --parallel $(JOBS)
	ctest --test-dir build/$@ --output-on-failure -L 'unit|differential|stress'

format: ## clang-format on every C++ file
	git ls-files '*.cpp' '*.h' | xargs clang-format-19 -i

tidy: ## clang-tidy on the files that differ from main
	git diff --name-only origin/main... -- 'src/*.cpp' 'tools/*.cpp' | xargs -r clang-tidy-19 -p $(RELEASE)

clean: ## remove the builds, keep LibTorch and the models
	rm -rf build/release build/dev build/asan build/ubsan build/tsan build/gpu-carry
