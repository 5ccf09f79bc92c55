# make demo and make test do all the set-up: a virtual environment with the package and what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(shell find gpuqs cpu_fallback cuda -type f -not -path '*/__pycache__/*') pyproject.toml CMakeLists.txt

.PHONY: help demo test gate lint sanitize clean

help:
	@echo "make demo      set up, then score made-up documents with every engine"
	@echo "make test      set up, then run all tests"
	@echo "make gate      compile every GPU kernel for every architecture, without a GPU, and check the machine code"
	@echo "make lint      check style, and the types of the public modules"
	@echo "make sanitize  run the kernels' tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer"
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

gate: $(VENV)/installed-gate
	GPUQS_GATE=required $(BIN)/pytest -n auto --maxprocesses 4 tests/cuda/test_build.py

lint: $(BIN)/python
	@test -x $(BIN)/ruff -a -x $(BIN)/mypy || $(BIN)/python -m pip install --quiet 'ruff==0.17.*' 'mypy==2.4.*' numpy
	$(BIN)/ruff check .
	$(BIN)/mypy

MEMORY := -fsanitize=address,undefined -fno-sanitize-recover=undefined
PRELOAD = $(shell $(CXX) -print-file-name=libasan.so):$(shell $(CXX) -print-file-name=libubsan.so)
SANITIZED = CXXFLAGS="$(1) -fno-omit-frame-pointer -g" $(BIN)/python -m pip install --quiet --no-deps --upgrade \
  --target $(VENV)/$(2) -Cbuild-dir=build/$(2) -Cinstall.strip=false .

# ThreadSanitizer wants its memory where it expects it: setarch -R.
sanitize: $(VENV)/installed-test
	$(call SANITIZED,$(MEMORY),sanitized)
	LD_PRELOAD=$(PRELOAD) ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(VENV)/sanitized \
	  $(BIN)/pytest -s -p no:cacheprovider tests/unit/test_model.py tests/conformance/test_generated_forests.py
	$(call SANITIZED,-fsanitize=thread,sanitized-threads)
	LD_PRELOAD=$(shell $(CXX) -print-file-name=libtsan.so) TSAN_OPTIONS=exitcode=66 OPENBLAS_NUM_THREADS=1 \
	  PYTHONPATH=$(VENV)/sanitized-threads setarch -R \
	  $(BIN)/pytest -s -p no:cacheprovider tests/unit/test_model.py -k python_threads

clean:
	rm -rf $(VENV) build
