# SPDX-License-Identifier: GPL-2.0
# Each target calls one program in scripts/, which sets up what it needs.
# A comment with two hashes behind a target is its line in `make help`.

BASE ?= 7.3
VARIANT ?= patched
CONFIG ?= normal

# The programs' own settings may be given to make as well as in the environment.
export BUILD KSRC TREE DISCARD SIGNOFF ASSISTED_BY ACCEL KERNEL DRYRUN KCONFIG LOCALMODCONFIG LSMOD PKG
# Not for the kernel's makes, which inherit the environment.
unexport BASE VARIANT CONFIG

.PHONY: help demo test series refresh apply points range-diff check bisect kernel kunit kselftest bench bench-latency bench-lru-add bench-memcg-stat bench-fairness mutants deb clean setup
.DEFAULT_GOAL := help

help:		## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' Makefile | while read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done
	@echo "  BASE=$(BASE) ($$(cd bases && ls | sed 's/\.conf//' | paste -sd' ')), VARIANT=$(VARIANT) (base patched), CONFIG=$(CONFIG) ($$(cd configs && ls *.list | sed 's/\.list//' | paste -sd' '))"

setup:
	@scripts/host-setup

demo: setup	## base against patched under 8 writers on the root's memory.reclaim: the table
	@scripts/demo $(BASE)

test: setup	## all that CI runs, for all bases (with KSRC=, for BASE); ends in `N passed, N failed`
	@scripts/test $(if $(KSRC),$(BASE))

series: setup	## dist/BASE/*.patch for git am; SIGNOFF="Name <mail>", ASSISTED_BY=text
	@scripts/compose --mails $(BASE)

refresh: setup	## patches and whole files from the edited tree build/BASE/patched, or TREE=
	@scripts/refresh $(BASE)

apply:		## the right queue on your kernel git tree KERNEL=path, as a new branch; DRYRUN=1, BASE=
	@scripts/apply $(if $(filter file,$(origin BASE)),,$(BASE))

points: setup	## does the queue apply to every point release of BASE in the package archive?
	@scripts/points $(BASE)

range-diff: setup	## how the queue of BASE differs from that of 7.3; every difference says why below its ---
	@scripts/range-diff $(BASE)

check: setup	## checkpatch, kernel-doc, sparse, W=1 and documentation of what the queue touches
	@scripts/check $(BASE)

bisect: setup	## does each patch alone compile in eight configurations? CONFIG=one of them
	@scripts/bisect $(BASE) $(if $(filter file,$(origin CONFIG)),,$(CONFIG))

kernel: setup	## builds a kernel, prints its path; VARIANT=base|patched, CONFIG=
	@scripts/kernel $(BASE) $(VARIANT) $(CONFIG)

kunit: setup	## the KUnit suites in a virtual machine
	@scripts/kunit $(BASE) $(VARIANT) $(CONFIG)

kselftest: setup	## the kselftests in a virtual machine
	@scripts/kselftest $(BASE) $(VARIANT) $(CONFIG)

bench: setup	## the full measurement: tables as text and JSON
	@scripts/bench $(BASE)

bench-latency: setup	## what others wait for while root reclaim walks 10,000 memcgs
	@scripts/bench-latency $(BASE)

bench-lru-add: setup	## instructions and LRU locks per page, with and without dead folios
	@scripts/bench-lru-add $(BASE)

bench-memcg-stat: setup	## instructions per charged page, convergence after a change of the working set
	@scripts/bench-memcg-stat $(BASE)

bench-fairness: setup	## from which memcgs global reclaim takes, and at what cost: base, patched, iteration; a plot
	@scripts/bench-fairness $(BASE)

mutants: setup	## small wrong edits, each of which a test has to notice: caught/total
	@scripts/mutants $(BASE)

deb: setup	## packages to install, dist/BASE/deb/*.deb; of the running kernel's config, KCONFIG=file or CONFIG=; LOCALMODCONFIG=1, PKG=rpm
	@scripts/deb $(BASE) $(VARIANT) $(if $(filter file,$(origin CONFIG)),,$(CONFIG))

clean:		## removes build/ and dist/; keeps downloads; DISCARD=1 drops unsaved work
	@scripts/clean
