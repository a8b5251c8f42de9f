# Everything runs from .venv, which the first target makes; nothing is installed by hand and nothing needs root.
# A broker needs some 90 MB of it; what only the tests need (PySpark above all) comes with them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BROKER := $(VENV)/.broker
STAMP  := $(VENV)/.ready
SUPPLY := $(VENV)/.supply
MYPYC  := $(VENV)/.mypyc
PIP    := $(BIN)/pip --quiet --disable-pip-version-check
# With an older Python pip fails after some silence, and the environment that it leaves serves nobody.
NEEDED := import sys; sys.version_info >= (3, 11) or sys.exit("Aerobee needs Python 3.11 or later, and \
	$(PYTHON) is %d.%d: name another one, as in make run PYTHON=python3.12" % sys.version_info[:2])
# How long a start takes is a promise, and kept by modules that are compiled once, not at each start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test lint types figures docs site collected archives spark spark-with bench torture compiled test-compiled image-test chart lock audit sbom release clean

run: $(BROKER)
	$(BIN)/aerobee broker run --data ./data

# The parts of the suite, and which run beside each other, are in tests/suite.py.
# What four workers would each compile for themselves is compiled first, beside the types.
test: $(STAMP)
	$(MAKE) --no-print-directory -j2 types figures collected archives
	$(BIN)/python -m tests.suite

spark: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m spark

# The same with another PySpark than the newest one: the oldest that pyproject.toml admits, or PYSPARK=4.1.4.
PYSPARK ?= 4.0.0
WITH    := .cache/pyspark/$(PYSPARK)
spark-with: $(STAMP) $(WITH)/.ready
	$(WITH)/bin/python -m pytest -n 2 --dist loadfile -m spark tests/aerobee/spark

$(WITH)/.ready:
	$(BIN)/python -m venv --without-pip $(WITH)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(WITH)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz_others.pth
	$(PIP) --python $(WITH)/bin/python install --no-deps --ignore-installed pyspark==$(PYSPARK) py4j
	touch $@

lint: $(STAMP)
	$(MAKE) --no-print-directory -j2 types figures

types: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

figures: $(STAMP)
	$(BIN)/python -m tests.metrics --check

# Pages that the repository does not keep, from the source into build/docs; the kept ones are compared.
docs: $(STAMP)
	$(BIN)/python -m tests.pages

# The documentation as a site, in build/site: any HTTP server shows it, python -m http.server -d build/site too.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

collected: $(STAMP)
	@$(BIN)/python -m pytest --collect-only -qq > $(VENV)/.collected || { tail -n 50 $(VENV)/.collected; exit 1; }

# What JVMs would each read and check for themselves (tests/kit/java_archive.py). Without it they do.
archives: $(STAMP)
	@$(BIN)/python -m tests.kit.java_archive
	-@$(BIN)/python -m tests.aerobee.spark.archive

bench: $(STAMP)
	$(BIN)/python -m bench

# make torture ONLY=R2 CYCLES=100 SEED=7 MINUTES=10: each may be left out.
torture: $(STAMP)
	$(BIN)/python -m tests.torture $(if $(ONLY),--only $(ONLY)) $(if $(CYCLES),--cycles $(CYCLES)) \
		$(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

# The wheel whose hot modules are compiled, in dist/ and in .cache/compiled/venv: two minutes, and a C
# compiler. The second runs the tests on it that measure no time; those of needs_pure.txt are skipped.
compiled: $(MYPYC)
	$(BIN)/python -m deploy.compiled.build

TESTS ?= tests/broker tests/remoting tests/store tests/faults tests/interop
test-compiled: $(STAMP) compiled
	PYTHONSAFEPATH=1 .cache/compiled/venv/bin/python -m pytest --import-mode=append -n 2 --dist loadfile \
		-m 'not alone and not spark and not image' $(TESTS)

# Builds the container image and runs it, by itself, by compose.yaml, and its programs as systemd
# units on a machine of their own. Needs root and, for each of these, buildah and debootstrap, runc,
# podman-compose, systemd-container. Five minutes the first time, for the base is made, then three.
image-test: $(STAMP) $(SUPPLY)
	$(BIN)/python -m pytest -m image tests/container tests/test_supply_chain.py

# The manifests for those who have no Helm, rendered of the chart.
HELM ?= $(if $(shell command -v helm),helm,.cache/go/bin/helm)
chart:
	$(HELM) template aerobee deploy/helm/aerobee --kube-version 1.30.0 -f deploy/kubernetes/values.yaml > deploy/kubernetes/aerobee.yaml

# What the image is built of, with hashes. UPGRADE=1 takes the newest versions there are.
LOCKS   := deploy/image/requirements.lock deploy/image/build.lock
COMPILE := $(BIN)/uv pip compile --quiet --no-config --generate-hashes --python-version 3.13 \
	--python-platform x86_64-unknown-linux-gnu --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)
lock: $(SUPPLY)
	$(COMPILE) --extra grpc pyproject.toml -o deploy/image/requirements.lock
	$(COMPILE) deploy/image/build.in -o deploy/image/build.lock

# Known vulnerabilities of what the image is built of. One that cannot be looked up is a failure.
audit: $(SUPPLY)
	$(BIN)/pip-audit --strict --disable-pip $(LOCKS:%=-r %)

# The bill of materials that the image has in /opt/aerobee/share, of the same lock file.
sbom: $(BROKER)
	rm -rf .cache/sbom && $(PYTHON) -m venv --without-pip .cache/sbom && mkdir -p dist
	$(PIP) --python .cache/sbom/bin/python install --only-binary :all: --require-hashes -r deploy/image/requirements.lock
	$(PIP) --python .cache/sbom/bin/python install --no-deps .
	.cache/sbom/bin/python deploy/image/sbom.py dist/aerobee.sbom.cdx.json

# All that a release consists of, in dist/release, built from the commit that is checked out; then each
# wheel is installed by itself and used. Ten minutes; what cannot be built here is named and left out.
# PARTS=sdist,wheel,chart builds these alone.
PARTS ?= sdist,wheel,compiled,chart,image,sbom
release: $(MYPYC)
	$(BIN)/python -m deploy.release.build --only $(PARTS)
	$(BIN)/python -m deploy.release.trial dist/release/*.whl

$(SUPPLY): $(BROKER)
	$(PIP) install 'uv>=0.5' 'pip-audit>=2.7'
	touch $(SUPPLY)

$(BROKER): pyproject.toml
	@$(PYTHON) -c '$(NEEDED)'
	@echo "Installing the broker and its libraries into $(VENV) (about 90 MB, once) ..."
	@test -x $(BIN)/pip && test "$$($(BIN)/python -V 2>&1)" = "$$($(PYTHON) -V 2>&1)" || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install -e '.[grpc]'
	touch $(BROKER)

$(MYPYC): $(BROKER)
	$(PIP) install -e '.[compiled,grpc]'
	touch $(MYPYC)

$(STAMP): $(BROKER)
	@echo "Installing what the tests need into $(VENV) (about 900 MB with PySpark, once) ..."
	$(PIP) install -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
