#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of scripts/scan-console on sample consoles: what must be found, what must pass, and that a scan that cannot run fails
set -euo pipefail
top=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
samples=$top/tests/samples
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0

# check NAME STATUS PATTERN FILE...: the scanner must end so and print a line that matches
check() {
	local name=$1 want=$2 pattern=$3 got=0
	shift 3
	n=$((n + 1))
	"$top/scripts/scan-console" "$@" >"$tmp/out" 2>&1 || got=$?
	if [ $got -eq "$want" ] && { [ -z "$pattern" ] || grep -qE -- "$pattern" "$tmp/out"; }; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		echo "# status $got, expected $want; no line like: $pattern"
		sed 's/^/# /' "$tmp/out"
		failed=1
	fi
}

check "clean console passes" 0 "" "$samples/clean.console"
check "lockdep: lock order is found, with its line number" 1 'lockdep.console:[0-9]+:.*possible circular locking' "$samples/lockdep.console"
check "lockdep: interrupt state is found" 1 'inconsistent lock state' "$samples/lockdep-irq.console"
check "RCU stall is found" 1 'rcu_preempt self-detected stall' "$samples/rcu-stall.console"
check "BUG and oops are found" 1 'bug.console:[0-9]+:.*BUG: unable to handle' "$samples/bug.console"
check "list corruption is found" 1 'list_del corruption' "$samples/list.console"
check "hung task is found" 1 'blocked for more than 120' "$samples/hung.console"
check "bad page is found" 1 'page dumped because' "$samples/page.console"
check "one bad file among good ones is enough" 1 'bug.console' "$samples/clean.console" "$samples/bug.console" "$samples/clean.console"
check "empty console fails" 1 'empty.console is empty' "$samples/empty.console"
check "missing console fails" 1 'no-such.console does not exist' "$samples/no-such.console"
check "console without a kernel fails" 1 'no kernel has started' "$samples/no-kernel.console"
check "console that ends in early boot fails" 1 'not finished booting' "$samples/no-end.console"

# Binary rubbish and carriage returns, as a crash on a serial line leaves them, hide nothing
{ printf '\0\377\r\n'; sed 's/$/\r/' "$samples/bug.console"; } >"$tmp/binary.console"
check "binary rubbish hides nothing" 1 'BUG: unable to handle' "$tmp/binary.console"

# Every pattern works by itself: a line with one of these is enough
while IFS= read -r line; do
	{ cat "$samples/clean.console"; echo "[   10.000000] $line"; } >"$tmp/one.console"
	check "found: ${line:0:60}" 1 'one.console:[0-9]+:' "$tmp/one.console"
done <<'LINES'
WARNING: mm/vmscan.c:4321 at lru_gen_rotate_memcg+0x10/0x20, CPU#0: kswapd0/46
WARNING: suspicious RCU usage
WARNING: possible recursive locking detected
watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [reclaim_writer:90]
rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-.... } 21 jiffies s: 57 root: 0x2/.
BUG: KASAN: slab-use-after-free in mem_cgroup_iter+0x1/0x2
BUG: KCSAN: data-race in lru_gen_rotate_memcg / shrink_many
UBSAN: array-index-out-of-bounds in mm/vmscan.c:4400:12
list_add corruption. prev->next should be next (ffff), but was 0000. (prev=ffff).
BUG kmalloc-1k (Not tainted): Poison overwritten
BUG: Bad page state in process cat  pfn:1a2b4
BUG: Bad rss-counter state mm:ffff888004 type:MM_ANONPAGES val:3
Oops: general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] SMP NOPTI
Kernel panic - not syncing: sysrq triggered crash
BUG: sleeping function called from invalid context at mm/vmscan.c:5000
refcount_t: underflow; use-after-free.
Out of memory: Killed process 77 (memcg_lru_test) total-vm:1kB
LINES

# Allowed lines
{ cat "$samples/clean.console"; echo "[   10.000000] WARNING: the sample is harmless"; } >"$tmp/harmless.console"
printf '# a sample, for this test\nWARNING: the sample is harmless$\n' >"$tmp/allow"
ALLOW=$tmp/allow check "an allowed line passes" 0 "" "$tmp/harmless.console"
ALLOW=$tmp/allow check "an allowed line excuses no other" 1 'BUG: unable to handle' "$tmp/harmless.console" "$samples/bug.console"
printf 'WARNING: the sample is harmless$\n' >"$tmp/allow"
ALLOW=$tmp/allow check "an allowed line without a reason is refused" 1 'allow:1: allowed without a reason' "$tmp/harmless.console"
printf '# a reason for one line only\nWARNING: other\nWARNING: the sample is harmless$\n' >"$tmp/allow"
ALLOW=$tmp/allow check "a reason counts for one line" 1 'allow:3: allowed without a reason' "$samples/clean.console"
: >"$tmp/deny"
DENY=$tmp/deny check "without deny patterns there is no scan" 1 'holds no pattern' "$samples/clean.console"
DENY=$tmp/missing check "without the pattern file there is no scan" 1 'no pattern file' "$samples/clean.console"
printf 'WARNING: (\n' >"$tmp/deny"
DENY=$tmp/deny check "a broken pattern is refused" 1 'not a valid' "$samples/clean.console"

exit $failed
