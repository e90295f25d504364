.PHONY: setup install-hint demo test check bench faults http-tools

setup:
	@scripts/setup.sh
	@$(MAKE) -s install-hint

install-hint:
	@echo "decodebench is in .venv: '. .venv/bin/activate' puts it on the path of this shell; then 'decodebench --install-completion' completes its commands and options"

# The main job: every backend that exists, on the bundled model and the four bundled workloads. Exit
# code 4: some trials failed; the page is of the others.
demo: setup
	@.venv/bin/decodebench run experiments/demo.yaml --out runs/demo --again-share 0.05; code=$$?; \
	[ $$code = 0 ] || [ $$code = 4 ] || exit $$code; \
	.venv/bin/decodebench report runs/demo && exit $$code

# Two processes share the test files, and threads that wait leave the processors to the other one.
# Files go out as they stand, engines and browsers first: by their numbers of tests those would come
# last, where one process would wait for the other.
# `make test AT_ONCE=0` is one process, for a machine with one GPU or little memory.
# Compiled modules are kept, whatever the shell says: each process that a test starts would compile them anew.
AT_ONCE ?= 2
test:
	@scripts/setup.sh --browser
	@env -u PYTHONDONTWRITEBYTECODE OMP_WAIT_POLICY=passive KMP_BLOCKTIME=0 .venv/bin/python -m pytest -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder

check: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

# Timings are never asserted; they are printed, for LOG.md.
bench: setup
	@.venv/bin/python -m benchmarks

# Do the tests find faults that are planted on purpose? Exit code 1 below 95%.
faults: setup
	@.venv/bin/python benchmarks/soundness/planted_faults.py

# The load generators that benchmarks/http_truth.py holds ours against, below .tools/.
http-tools:
	@scripts/http_tools.sh
