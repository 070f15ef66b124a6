# Every target sets itself up: Python packages go into .venv/ beside this file, system packages (as root on Debian
# alone) through apt-get. `make help` lists the targets; ARGS="…" hands options on.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.DEFAULT_GOAL := help
.PHONY: help nightly up demo test test-faults check setup system browser static
MAKEFLAGS += --no-print-directory
unexport PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export DEBIAN_FRONTEND := noninteractive

BIN := .venv/bin
ARGS ?=
PYTHON ?=
# What runs until it is stopped ends with its make, also when that is killed outright.
TIED := $(shell command -v setpriv >/dev/null && echo setpriv --pdeathsig TERM)

help: ## list the targets
	sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18
	echo '  Options go through ARGS, e.g. make nightly ARGS="--last 3"; another Python through PYTHON=/path/to/python3.12'

nightly: setup ## build, measure, store and judge tonight's benchmarks on this machine's device
	exec $(TIED) $(BIN)/perfci nightly $(ARGS)

up: setup ## run the service: Airflow and the dashboard, until Ctrl-C
	exec $(TIED) $(BIN)/perfci up $(ARGS)

demo: setup ## fill the database with recorded and synthetic results, then show the dashboard
	$(BIN)/perfci demo --load $(ARGS)
	exec $(TIED) $(BIN)/perfci dashboard

test: browser static ## everything that CI checks
	echo '== tests'
	exec $(BIN)/python -m pytest -q -m 'not faults' $(ARGS)

test-faults: browser setup ## the faults: processes killed, networks cut, disks full; an hour
	exec $(BIN)/python -m pytest -q -m faults $(ARGS)

check: static ## the quick part of it: lint, types, layers, migrations, quick tests
	echo '== quick tests'
	exec $(BIN)/python -m pytest -q -m 'not slow and not airflow and not browser and not faults' $(ARGS)

static: setup
	echo '== lint'
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	echo '== types'
	$(BIN)/mypy
	echo '== layers'
	$(BIN)/lint-imports --no-logo
	echo '== migrations'
	scratch=$$(mktemp -d)
	trap 'rm -rf "$$scratch"' EXIT
	export PERFCI_DATABASE_URL="sqlite:///$$scratch/perfci.db"
	$(BIN)/alembic upgrade head 2>"$$scratch/log" || { cat "$$scratch/log"; exit 1; }
	$(BIN)/alembic check 2>"$$scratch/log" || { cat "$$scratch/log"; exit 1; }

# The lock is this file, held by every child of the set-up as well: a second make waits until the first is done, also
# when the first was killed and its pip lives on. A set-up that did not finish leaves .incomplete and is begun anew; so is
# one in a folder that was moved or copied, since scripts name their interpreter by its path.
setup: system
	exec 9<Makefile
	flock -n 9 || { echo 'perfci: another set-up is at work here; waiting for it'; flock 9; }
	wanted=$$({ cat pyproject.toml constraints.txt; pwd -P; } | sha256sum | cut -d' ' -f1)
	if [ ! -e .venv/.incomplete ] && [ "$$(cat .venv/.ready 2>/dev/null)" = "$$wanted" ] && $(BIN)/python -c ''; then
		exit 0
	fi
	moved=$$([ ! -e .venv/.folder ] || [ "$$(cat .venv/.folder)" = "$$(pwd -P)" ] || echo yes)
	if [ -e .venv/.incomplete ] || [ -n "$$moved" ] || ! $(BIN)/python -c '' 2>/dev/null; then rm -rf .venv; fi
	if [ ! -e .venv ]; then
		$(find_python)
		echo "perfci: making .venv with $$python ($$version)"
		mkdir .venv
		touch .venv/.incomplete
		"$$python" -m venv .venv
		pwd -P >.venv/.folder
	fi
	touch .venv/.incomplete
	rm -f .venv/.ready
	echo 'perfci: installing the packages into .venv (2.5 GB; some minutes the first time; log: .venv/install.log)'
	if ! $(BIN)/python -m pip install --no-input --progress-bar off -c constraints.txt -e '.[airflow,dashboard,edge,runner,serve,dev]' 2>&1 \
		| tee .venv/install.log | $(progress); then
		tail -n 15 .venv/install.log
		echo 'perfci: the packages could not be installed; mend what the lines above say and run make again'
		exit 1
	fi
	rm .venv/.incomplete
	echo "$$wanted" >.venv/.ready

system:
	missing=()
	command -v git >/dev/null || missing+=(git)
	command -v g++ >/dev/null || missing+=(g++)
	if [ ! -x $(BIN)/python ]; then
		$(find_python)
		"$$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
		"$$python" -c "$$has_headers" || missing+=(python3-dev)
	fi
	$(install_missing)
	command -v git >/dev/null || { echo 'perfci: git is missing; install it and run make again'; exit 2; }

browser:
	missing=()
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| missing+=(chromium fonts-liberation)
	command -v systemd-analyze >/dev/null || missing+=(systemd)
	$(install_missing)

# Sets $python and $version. A pyenv shim may be on the PATH and yet not run, so each candidate is asked.
define find_python
python='' version='' seen=''
for candidate in "$(PYTHON)" python3 python3.12 python3.11; do
	[ -n "$$candidate" ] || continue
	version=$$("$$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
	seen="$$seen $$candidate is $$version;"
	case $$version in 3.11.*|3.12.*) python=$$candidate; break;; esac
done
if [ -z "$$python" ]; then
	echo "perfci: needs Python 3.11 or 3.12 (found:$${seen:- no python3 at all;} none fits); install one or name it: make PYTHON=/path/to/python3.12"
	exit 2
fi
endef

export has_headers := import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))

# As root on Debian: apt-get. Elsewhere: say what is missing, and go on without it.
define install_missing
if [ $${#missing[@]} -gt 0 ]; then
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		echo "perfci: installing $${missing[*]} with apt-get"
		log=$$(mktemp)
		if ! { apt-get update && apt-get install -y --no-install-recommends "$${missing[@]}"; } >"$$log" 2>&1 </dev/null; then
			tail -n 5 "$$log"
			echo "perfci: apt-get could not install $${missing[*]}; install them and run make again (log: $$log)"
			exit 2
		fi
		rm "$$log"
	else
		echo "perfci: missing; install with: sudo apt-get install $${missing[*]}"
	fi
fi
endef

# One line that counts, on a terminal; nothing where there is none.
define progress
{ if [ -t 1 ]; then awk '/^ *(Downloading|Using cached)/ {n++; printf "\r  %d packages fetched", n; fflush()} \
	/^Installing collected/ {printf "\r  %d packages fetched, unpacking", n; fflush()} END {print ""}'; else cat >/dev/null; fi; }
endef
