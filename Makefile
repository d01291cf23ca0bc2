# One command each; the virtual environment is made when it is needed.
VENV ?= .venv
PYTHON ?= python3
PYTEST_ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LAYERS := traces simulator baselines envs experiments agents tuning benchmarks

.DELETE_ON_ERROR:
.PHONY: demo test lint types notebooks clean

demo: $(INSTALLED)
	$(BIN)/servegym compare --workload azure-conv --systems round-robin,random,least-requests,power-of-two --instances 8 --load 0.95 --seeds 10 --out out/demo

test: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# Full runs, in a few minutes; their outputs are committed.
notebooks: $(INSTALLED)
	$(BIN)/python notebooks/execute.py

lint: $(INSTALLED) types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -q tests/test_import_direction.py

# Type checkers need the import names on disk: traces/ as servegym/traces/, and so on.
types:
	rm -rf build/types
	mkdir -p build/types
	cp -r servegym build/types/
	for layer in $(LAYERS); do if [ -d $$layer ]; then cp -r $$layer build/types/servegym/; fi; done

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test,rl,tune]'
	touch $@

clean:
	rm -rf build dist out .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
