#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of scripts/vm and scripts/accel: a command's status and output come back, a hang and a panic are told apart and end in
# time, nothing is left running. Real guests, and a stand-in for QEMU for what cannot be provoked at will.
# Environment: KERNEL=path  default: the patched kernel in the normal config that was built last, or else 7.3's, built now
set -euo pipefail
top=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0
built=$(ls -t "${BUILD:-$top/build}"/*/patched-normal/arch/x86/boot/bzImage 2>/dev/null | head -n 1) || :
KERNEL=${KERNEL:-${built:-$("$top/scripts/kernel" 7.3 patched normal)}}

# result NAME CONDITION-STATUS: one line of the report; what was said last explains a failure
result() {
	n=$((n + 1))
	if [ "$2" -eq 0 ]; then echo "ok $n - $1"; return; fi
	echo "not ok $n - $1"
	failed=1
	sed 's/^/# /' "$tmp/log"
}
# check NAME STATUS PATTERN ARGS...: scripts/vm must end so and print a line that matches
check() {
	local name=$1 want=$2 pattern=$3 got=0 verdict=1
	shift 3
	"$top/scripts/vm" "$@" >"$tmp/log" 2>&1 || got=$?
	if [ $got -eq "$want" ] && grep -qE -- "$pattern" "$tmp/log"; then verdict=0
	else echo "status $got, expected $want; no line like: $pattern" >>"$tmp/log"; fi
	result "$name" $verdict
}
# within SECONDS CMD...: true once CMD is, polled
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.2
	done
}
qemu_of() { pgrep -f "file:$1/console" >/dev/null; }
no_qemu_of() { ! qemu_of "$1"; }

check "no kernel is refused" 1 "error: no kernel /no/such" -k /no/such -- true
check "a limit that is no number is refused" 1 "error: -t soon" -k "$KERNEL" -t soon -- true
check "no command is refused" 1 "error: usage" -k "$KERNEL"
ACCEL=warp check "an unknown accelerator is refused" 1 "error: ACCEL=warp" -k "$KERNEL" -- true

got=0
"$top/scripts/vm" -k "$KERNEL" -o "$tmp/run" -t 300 -a "some.option=1" -- '
	echo out; echo err >&2
	grep -o some.option=1 /proc/cmdline
	touch "$0.new" / /etc/new 2>/dev/null && echo root-is-writable
	grep " /sys/fs/cgroup cgroup2 .*memory_recursiveprot" /proc/mounts
	echo kept >/run/out/file
	exit 7' >"$tmp/log" 2>&1 || got=$?
cat "$tmp/run/stdout" >>"$tmp/log" 2>/dev/null || true
result "the command's status comes back" $((got != 7))
status=0; grep -qx out "$tmp/run/stdout" && grep -qx err "$tmp/run/stderr" || status=1
result "its output and errors come back" $status
status=0; grep -qx some.option=1 "$tmp/run/stdout" || status=1
result "the kernel got the extra command line" $status
status=0; ! grep -q root-is-writable "$tmp/run/stdout" || status=1
result "the root is read-only" $status
status=0; grep -q memory_recursiveprot "$tmp/run/stdout" || status=1
result "cgroup2 is mounted with memory_recursiveprot" $status
status=0; [ "$(cat "$tmp/run/file")" = kept ] && [ -s "$tmp/run/dmesg" ] && [ "$(cat "$tmp/run/rc")" = 7 ] || status=1
result "the output directory is shared and complete" $status
status=0; "$top/scripts/scan-console" "$tmp/run/console" >"$tmp/log" 2>&1 || status=1
result "the console of a good run is clean" $status

begin=$SECONDS
check "a guest that hangs ends at its limit and says so" 124 "did not end within its limit of 20 s .*console: $tmp/hang/console" \
	-k "$KERNEL" -o "$tmp/hang" -t 20 -- 'sleep 1000'
result "and soon after the limit" $((SECONDS - begin > 50))
status=0; within 10 no_qemu_of "$tmp/hang" || status=1
result "and leaves no QEMU behind" $status

check "a guest that panics is told apart, with the panic's line" 125 "the guest panicked: .*Kernel panic - not syncing: sysrq triggered crash" \
	-k "$KERNEL" -o "$tmp/panic" -t 300 -- 'echo c >/proc/sysrq-trigger'
status=0; "$top/scripts/scan-console" "$tmp/panic/console" >"$tmp/log" 2>&1 && status=1
result "the console scan finds the panic" $status

for signal in TERM KILL; do
	"$top/scripts/vm" -k "$KERNEL" -o "$tmp/kill" -t 300 -- 'sleep 1000' >"$tmp/log" 2>&1 &
	vm=$!
	status=0
	within 30 qemu_of "$tmp/kill" || status=1
	kill -$signal $vm
	wait $vm 2>/dev/null || true
	within 20 no_qemu_of "$tmp/kill" || status=1
	result "a runner ended by SIG$signal takes QEMU with it" $status
done

# A stand-in for QEMU: notes each start, writes a console of the wanted kind and, when all is well, a status
mkdir "$tmp/bin"
cat >"$tmp/bin/qemu-system-x86_64" <<'Q'
#!/bin/bash
for a; do case $a in file:*) out=$(dirname "${a#file:}") ;; *kvm*) kvm=1 ;; esac; done
echo start >>"$COUNT"
starts=$(wc -l <"$COUNT")
case $KIND in
late-timers)	# wrong on the first boot, or on every one with ALWAYS
	echo 'Linux version 0' >"$out/console"
	if [ "$starts" -eq 1 ] || [ -n "${ALWAYS:-}" ]; then echo '[ 0.1] APIC frequency too slow, disabling apic timer' >>"$out/console"; fi
	if [ "$starts" -eq 1 ]; then exec sleep 100; fi
	echo 3 >"$out/rc" ;;
stale-code)	# a breakpoint of nobody's on the first boot, or on every one with ALWAYS
	echo 'Linux version 0' >"$out/console"
	if [ "$starts" -eq 1 ] || [ -n "${ALWAYS:-}" ]; then
		printf '[ 9.0] %s\n' 'Oops: int3: 0000 [#1] SMP' 'Kernel panic - not syncing: Fatal exception in interrupt' >>"$out/console"
		exit 0
	fi
	echo 3 >"$out/rc" ;;
reset)	# without a word on the first boot
	echo '[ 1.4] sched_clock: Marking stable (1440081417, -39259835)->(1484620382, -83798800)' >"$out/console"
	[ "$starts" -eq 1 ] || echo 3 >"$out/rc" ;;
broken) echo 'could not open something' >&2; exit 1 ;;
silent) echo 'Linux version 0' >"$out/console" ;;
only-tcg) [ -z "${kvm:-}" ] || exec sleep 100; exit 85 ;;
dead) exit 1 ;;
esac
Q
chmod +x "$tmp/bin/qemu-system-x86_64"
export PATH=$tmp/bin:$PATH COUNT=$tmp/count ACCEL=tcg
fake() { : >"$COUNT"; check "$@" -k "$KERNEL" -o "$tmp/fake" -t 60 -- true; }
KIND=late-timers fake "timers that fail in early boot: said, and booted once again" 3 "booting once again"
result "with exactly one more boot" $(($(wc -l <"$COUNT") != 2))
ALWAYS=1 KIND=late-timers fake "timers that fail again: said, and carried on" 3 "failed in the second boot too"
KIND=stale-code fake "code patched under the emulator: said, and booted once again" 3 "booting once again"
ALWAYS=1 KIND=stale-code fake "the same again is a failure" 125 "the guest panicked"
result "after exactly one more boot" $(($(wc -l <"$COUNT") != 2))
KIND=reset fake "a reset in early boot: booted once again" 3 "booting once again"
KIND=broken fake "QEMU's own failure is told, with its message" 125 "QEMU failed with status 1: could not open something"
KIND=silent fake "a guest that ends without a status counts as failed" 125 "without leaving a status"

# The accelerator: what counts is that code has run
unset ACCEL
for case in "only-tcg 0 tcg" "dead 1 error: QEMU runs no guest"; do
	read -r kind want said <<<"$case"
	: >"$COUNT"
	got=0
	KIND=$kind BUILD=$tmp/build-$kind "$top/scripts/accel" >"$tmp/log" 2>&1 || got=$?
	status=0; [ $got -eq "$want" ] && grep -q "^$said" "$tmp/log" || status=1
	result "accel with a QEMU that is $kind: $said" $status
done

exit $failed
