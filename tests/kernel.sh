#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of scripts/kernel: arguments, and that each fragment line has to stick. Configures only, builds nothing.
# Environment: TREE=dir  a kernel source tree; default: the pristine 7.3
set -euo pipefail
top=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0
if [ -z "${TREE:-}" ]; then
	"$top/scripts/source" 7.3 >/dev/null
	TREE=${BUILD:-$top/build}/7.3/base
fi
export TREE O=$tmp/out CONFIGS=$tmp/configs
cp -r "$top/configs" "$CONFIGS"

# check NAME STATUS PATTERN ARGS...: scripts/kernel must end so and print a line that matches
check() {
	local name=$1 want=$2 pattern=$3 got=0
	shift 3
	n=$((n + 1))
	timeout 300 "$top/scripts/kernel" "$@" >"$tmp/log" 2>&1 || got=$?
	if [ $got -eq "$want" ] && grep -qE -- "$pattern" "$tmp/log"; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		echo "# status $got, expected $want; no line like: $pattern"
		sed 's/^/# /' "$tmp/log"
		failed=1
	fi
}

check "unknown base is refused" 1 "error: unknown base '9.9'" -c 9.9 base normal
check "unknown variant is refused" 1 "error: unknown variant 'pathced' \(known: base patched\)" -c 7.3 pathced normal
check "unknown config is refused, the known are listed" 1 "error: unknown config 'nrmal' \(known: .*normal" -c 7.3 base nrmal
check "missing arguments are refused" 1 "error: usage" 7.3 base
TREE=$tmp check "a TREE that is no kernel source is refused" 1 "error: TREE=.* is not a kernel source" -c 7.3 base normal

# A small list, so that each configuration takes a moment only
cat >"$CONFIGS/small.config" <<'F'
CONFIG_64BIT=y
CONFIG_EXPERT=y
F
printf '# for tests\nsmall.config\nextra.config\n' >"$CONFIGS/small.list"
extra() { printf '%s\n' "$@" >"$CONFIGS/extra.config"; }

extra CONFIG_SYSVIPC=y '# CONFIG_SWAP is not set'
check "lines that stick pass" 0 "^$O/.config$" -c 7.3 base small
check "unchanged fragments configure nothing again" 0 "^$O/.config$" -c 7.3 base small
n=$((n + 1))
if grep -q configuring "$tmp/log"; then echo "not ok $n - the second run configured again"; failed=1
else echo "ok $n - the second run left the configuration alone"; fi

# said PATTERN NAME: the last run must have printed such a line too
said() {
	n=$((n + 1))
	if grep -qE -- "$1" "$tmp/log"; then echo "ok $n - $2"
	else echo "not ok $n - $2"; sed 's/^/# /' "$tmp/log"; failed=1; fi
}
extra CONFIG_NO_SUCH_SYMBOL=y CONFIG_MEMCG=y '# CONFIG_DEBUG_KERNEL is not set' CONFIG_LOG_BUF_SHIFT=99 'CONFIG_AIO = y'
check "an unknown symbol fails, with fragment and line" 1 "error: extra.config: did not stick on 7.3 base: CONFIG_NO_SUCH_SYMBOL=y" -c 7.3 base small
said "extra.config: did not stick on 7.3 base: CONFIG_MEMCG=y" "so does a symbol without its dependency"
said "extra.config: did not stick on 7.3 base: # CONFIG_DEBUG_KERNEL is not set \(is: CONFIG_DEBUG_KERNEL=y\)" "an unset symbol that a select brings back"
said "extra.config: did not stick on 7.3 base: CONFIG_LOG_BUF_SHIFT=99" "another value than the one asked for"
said "error: extra.config: not a config line: CONFIG_AIO = y" "a line that is no config line"
check "all fails again: a failed configuration is not kept" 1 "extra.config: did not stick" -c 7.3 base small

extra CONFIG_NO_SUCH_SYMBOL=y CONFIG_AIO=y
echo '7.3 base NO_SUCH_SYMBOL only for this test' >>"$CONFIGS/exceptions"
check "an exception lets a line pass" 0 "^$O/.config$" -c 7.3 base small
extra CONFIG_AIO=y
echo '7.3 * AIO only for this test' >>"$CONFIGS/exceptions"
check "an exception that is not needed fails" 1 "error: configs/exceptions: CONFIG_AIO sticks on 7.3 base" -c 7.3 base small
echo missing.config >>"$CONFIGS/small.list"
check "a fragment that does not exist fails" 1 "error: .*small.list: no fragment .*missing.config" -c 7.3 base small

# Symbols that a list leaves out
printf 'small.config\nleft.config\n-AIO  # for a test\n' >"$CONFIGS/left.list"
printf 'CONFIG_AIO=y\nCONFIG_SYSVIPC=y\n' >"$CONFIGS/left.config"
: >"$CONFIGS/exceptions"
check "a symbol that the list leaves out" 0 "^$O/.config$" -c 7.3 base left
n=$((n + 1))
if grep -qx CONFIG_SYSVIPC=y "$O/.config" && ! grep -q CONFIG_AIO= "$O/.config"; then echo "ok $n - is off, and others are on"
else echo "not ok $n - is off, and others are on"; failed=1; fi
echo CONFIG_DEBUG_KERNEL=y >>"$CONFIGS/left.config"
echo -DEBUG_KERNEL >>"$CONFIGS/left.list"
check "one that a select brings back fails" 1 "error: left.list: did not stick on 7.3 base: -DEBUG_KERNEL" -c 7.3 base left
echo -NO_SUCH >>"$CONFIGS/left.list"
check "one that no fragment has fails" 1 "error: .*left.list: -NO_SUCH: no fragment has it" -c 7.3 base left
check "a list for another architecture is not built" 1 "error: config arm64 is for ARCH=arm64" 7.3 base arm64

# The real ones
export CONFIGS=$top/configs
for list in "$top"/configs/*.list; do
	config=${list##*/}; config=${config%.list}
	check "config $config sticks on 7.3" 0 "^$O/.config$" -c 7.3 base "$config"
done
n=$((n + 1))
"$top/scripts/kernel" -c 7.3 base bench >"$tmp/log" 2>&1
if grep -E '^CONFIG_(DEBUG_(VM|LIST|SPINLOCK|ATOMIC_SLEEP)|SLUB_(TINY|DEBUG)|KUNIT|LOCKDEP|CC_OPTIMIZE_FOR_SIZE)=' "$O/.config" >"$tmp/log"; then
	echo "not ok $n - the bench config has debug options"; sed 's/^/# /' "$tmp/log"; failed=1
else echo "ok $n - the bench config has no debug option"; fi

exit $failed
