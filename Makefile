# make demo and make test do all the set-up: a virtual environment with the package and what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(shell find gpuqs cpu_fallback cuda -type f -not -path '*/__pycache__/*') pyproject.toml CMakeLists.txt
CPP := $(shell find cpu_fallback cuda tests bench -path bench/.cache -prune -o \
  \( -name '*.[ch]pp' -o -name '*.inl' -o -name '*.cu' -o -name '*.cuh' \) -print)

.PHONY: help demo test planted gate lint sanitize sanitize-memory sanitize-threads neon clang debian without-quickscorer bench-quick fuzz clean

help:
	@echo "make demo      set up, then score made-up documents with every engine"
	@echo "make test      set up, then run all tests"
	@echo "make planted   plant faults in copies of the GPU code, and demand that the tests find each"
	@echo "make gate      compile every GPU kernel for every architecture, without a GPU, and check the machine code"
	@echo "make lint      check style, of C++ and CUDA too, and gpuqs's types"
	@echo "make sanitize  run the kernels' tests and damaged inputs under AddressSanitizer and UndefinedBehaviorSanitizer,"
	@echo "               and many threads' first use of a model under ThreadSanitizer"
	@echo "make neon      cross-compile the kernels for AArch64 and compare them with the reference under an emulator"
	@echo "make clang     build gpuqs with Clang, and test its kernels and parsers"
	@echo "make debian    run tests with the Python and the compiler of a newer Debian (as root)"
	@echo "make without-quickscorer  build gpuqs without the engines that a patent covers, and test the others"
	@echo "make bench-quick  the papers' tables beside gpuqs's engines, with small models and batches, within ten minutes"
	@echo "make fuzz      damage models and documents for SECONDS each, of FORMATS (all by default)"
	@echo "make clean     remove what these have made"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "gpuqs needs Python 3.10 or later; say which with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# A stamp for each set of extras, so that a second run installs nothing. Builds are incremental (see build-dir).
$(VENV)/installed-%: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet '.[$*]'
	@touch $@

demo: $(VENV)/installed-cli
	@$(BIN)/gpuqs demo

test: $(VENV)/installed-test
	$(BIN)/pytest -n auto --maxprocesses 4 $(TESTS)

planted: $(VENV)/installed-test
	cd tests/cuda && $(abspath $(BIN))/python -m planted $(FAULTS)

gate: $(VENV)/installed-gate
	GPUQS_GATE=required $(BIN)/pytest -n auto --maxprocesses 4 tests/cuda/test_build.py tests/cuda/test_unit_counts.py tests/cuda/test_cuda_device.py
	$(BIN)/python tests/cuda/unit_counts.py

$(VENV)/linters: Makefile | $(BIN)/python
	$(BIN)/python -m pip install --quiet 'ruff==0.17.*' 'mypy==2.4.*' 'clang-format==23.1.*' click numpy rich
	@touch $@

lint: $(VENV)/linters
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(CPP)

sanitize: sanitize-memory sanitize-threads

# $(call sanitized,NAME,FLAGS,OPTIONS): the package, built with a sanitizer beside the other; -O3 would take compilers four times as long.
sanitized = CXXFLAGS="$(2) -fno-omit-frame-pointer -g1" $(BIN)/python -m pip install --quiet --no-deps --upgrade \
  --target $(VENV)/$(1) -Cbuild-dir=build/$(1) -Cinstall.strip=false -Ccmake.define.CMAKE_CXX_FLAGS_RELEASE=-O1 $(3) .
runtime = $(shell $(CXX) -print-file-name=lib$(1).so)

# Kernels that this processor does not run would only be built, which takes a minute.
runs_vbmi := $(shell grep -m 1 -o -w avx512_vbmi2 /proc/cpuinfo 2> /dev/null)

sanitize-memory: $(VENV)/installed-test
	$(call sanitized,memory,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined,$(if \
	  $(runs_vbmi),,-Ccmake.define.GPUQS_VBMI=OFF))
	LD_PRELOAD=$(call runtime,asan):$(call runtime,ubsan) ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(VENV)/memory \
	  $(BIN)/pytest -s -p no:cacheprovider -n auto --maxprocesses 4 \
	  tests/unit/test_json_text.py tests/unit/test_model.py tests/conformance/test_generated_forests.py tests/fuzz
comma := ,

# ThreadSanitizer wants its memory where it expects it: no random addresses. Threads meet in the driver, not in kernels, so those
# for one instruction set less are built.
sanitize-threads: $(VENV)/installed-test
	$(call sanitized,threads,-fsanitize=thread,-Ccmake.define.GPUQS_VBMI=OFF)
	LD_PRELOAD=$(call runtime,tsan) TSAN_OPTIONS=exitcode=66:suppressions=tests/faults/thread_sanitizer.supp \
	  PYTHONPATH=$(VENV)/threads OPENBLAS_NUM_THREADS=1 setarch $$(uname -m) -R \
	  $(BIN)/pytest -s -p no:cacheprovider tests/faults/test_first_use.py tests/unit/test_model.py \
	  -k "first_use or python_threads"

neon: $(VENV)/installed-cli
	@for tool in cmake aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool > /dev/null || \
	  { echo "make neon needs $$tool: apt-get install cmake g++-aarch64-linux-gnu qemu-user" >&2; exit 1; }; done
	cmake -S tests/neon -B build/neon -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static
	cmake --build build/neon
	$(BIN)/python tests/neon/write_cases.py build/neon/cases
	qemu-aarch64 build/neon/conformance build/neon/cases neon portable

OTHERS ?= tests/unit/test_build_options.py tests/unit/test_engine_contract.py tests/unit/test_model.py \
  tests/unit/test_demo.py tests/conformance/test_generated_forests.py tests/conformance/test_real_data.py
# Without VBMI's kernels, too: so those for AVX-512 are tested where both would run. -O3 would take compilers twice as long.
without-quickscorer: $(VENV)/installed-test
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/$@ -Cbuild-dir=build/$@ \
	  -Ccmake.define.GPUQS_QUICKSCORER=OFF -Ccmake.define.GPUQS_VBMI=OFF -Ccmake.define.CMAKE_CXX_FLAGS_RELEASE=-O1 .
	PYTHONPATH=$(VENV)/$@ $(BIN)/pytest -p no:cacheprovider -n auto --maxprocesses 4 $(OTHERS)

CLANG ?= clang
CLANGXX ?= clang++
PARSERS := $(addprefix tests/unit/test_,json_text.py lightgbm_trees.py making.py sparse.py svmlight.py table_plans.py threads.py ubjson.py)
clang: $(VENV)/installed-test
	@command -v $(CLANGXX) > /dev/null || { echo "make clang needs $(CLANGXX): apt-get install clang" >&2; exit 1; }
	CC=$(CLANG) CXX=$(CLANGXX) CXXFLAGS=-Werror $(BIN)/python -m pip install --quiet --no-deps --upgrade \
	  --target $(VENV)/clang -Cbuild-dir=build/clang .
	PYTHONPATH=$(VENV)/clang $(BIN)/pytest -p no:cacheprovider -n auto --maxprocesses 4 $(OTHERS) $(PARSERS)

DEBIAN ?= trixie
# All conformance tests but those of engines' stages and ranges of trees, which neither libraries nor compilers affect.
NEWER ?= $(filter-out %_stages.py %_tree_ranges.py,$(wildcard tests/conformance/test_*.py)) $(wildcard tests/unit/test_*reader*.py) $(addprefix tests/unit/test_,forest_arrays.py model.py plain_calls.py verify.py)
debian:
	@command -v debootstrap > /dev/null || { echo "make debian needs debootstrap: apt-get install debootstrap" >&2; exit 1; }
	tests/debian.sh $(DEBIAN) $(NEWER)

bench-quick: $(VENV)/installed-bench
	$(BIN)/python bench/tables.py --quick

SECONDS ?= 60
FORMATS ?=
fuzz: $(VENV)/installed-test
	cd tests && $(abspath $(BIN))/python -m fuzz.campaign $(FORMATS) --seconds $(SECONDS)

clean:
	rm -rf $(VENV) build
