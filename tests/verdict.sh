#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of scripts/verdict on sample results: missing, unlisted, skipped, crashed and damaged ones
# Environment: TREE=dir      a kernel source tree, for its KTAP parser; default: the pristine 7.3
#              OLD_TREE=dir  one whose parser does not keep why a test was skipped; default: the pristine 6.12
set -euo pipefail
top=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
samples=$top/tests/samples
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0
if [ -z "${TREE:-}" ]; then
	"$top/scripts/source" 7.3 >/dev/null
	TREE=${BUILD:-$top/build}/7.3/base
fi
if [ -z "${OLD_TREE:-}" ]; then
	"$top/scripts/source" 6.12 >/dev/null
	OLD_TREE=${BUILD:-$top/build}/6.12/base
fi

# check NAME STATUS PATTERN KIND FILE LIST-LINE...: the verdict must be so and contain a line that matches
check() {
	local name=$1 want=$2 pattern=$3 kind=$4 file=$5 got=0
	shift 5
	n=$((n + 1))
	printf '%s\n' "$@" >"$tmp/7.3.$kind"
	timeout 60 "$top/scripts/verdict" ${only:+--only "$only"} --tree "$TREE" --expect "$tmp/7.3.$kind" "$file" >"$tmp/out" 2>&1 || got=$?
	if [ $got -eq "$want" ] && grep -qE -- "$pattern" "$tmp/out"; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		echo "# status $got, expected $want; no line like: $pattern"
		sed 's/^/# /' "$tmp/out"
		failed=1
	fi
}
only=
both=(alpha.first alpha.second beta.only)

good=$samples/kunit-good.console
check "kunit: all there and ok" 0 '^ok alpha.second$' kunit "$good" '# a comment' "${both[@]}"
check "kunit: a listed test that is missing fails" 1 '^not ok beta.gone # missing' kunit "$good" "${both[@]}" beta.gone
check "kunit: a test that is not listed fails" 1 '^not ok alpha.second # not in ' kunit "$good" alpha.first beta.only
check "kunit: a failed case fails, with the reason" 1 '^not ok alpha.second # .*EXPECTATION FAILED' kunit "$samples/kunit-failed.console" "${both[@]}"
check "kunit: a skip that is not announced fails" 1 '^not ok alpha.second # SKIP needs two CPUs' kunit "$samples/kunit-skip.console" "${both[@]}"
check "kunit: an announced skip passes" 0 '^ok alpha.second # SKIP needs two CPUs' kunit "$samples/kunit-skip.console" alpha.first 'alpha.second  # may skip: one CPU only' beta.only
new=$TREE TREE=$OLD_TREE
check "kunit: a parser that does not keep the reason of a skip" 0 '^ok alpha.second # SKIP needs two CPUs' kunit "$samples/kunit-skip.console" alpha.first 'alpha.second  # may skip: one CPU only' beta.only
check "kselftest: a parser that does not keep the reason of a skip" 1 '^not ok mm.plain # SKIP .*allows no skip' kselftest "$samples/kselftest-skip.out" mm.plain
TREE=$new
check "kunit: to announce a skip takes a reason" 1 'error: .*for what reason' kunit "$samples/kunit-skip.console" 'alpha.second # may skip:'
check "kunit: a crash in the middle fails" 1 '^not ok alpha.second # missing|^not ok kunit-output # damaged' kunit "$samples/kunit-crash.console" "${both[@]}"
check "kunit: the suite after the crash is missing" 1 '^not ok beta.only # missing' kunit "$samples/kunit-crash.console" "${both[@]}"
head -n 8 "$good" >"$tmp/cut.console"
check "kunit: results that are cut off fail, though all that is listed is ok" 1 '^not ok kunit-output # damaged' kunit "$tmp/cut.console" alpha.first
check "kunit: a failing suite whose cases are all ok fails" 1 '^not ok beta # ' kunit "$samples/kunit-suite.console" "${both[@]}"
check "kunit: no results at all fail" 1 '^not ok alpha.first # missing' kunit "$samples/no-end.console" "${both[@]}"
only='al*'
check "kunit: --only judges what the filter let run" 1 '^not ok beta.only # not in' kunit "$good" "${both[@]}"
only=
check "an empty list is refused" 1 'lists no test' kunit "$good" '# nothing'
check "a list line that is no SUITE.CASE is refused" 1 'not SUITE.CASE' kunit "$good" alpha
check "a line listed twice is refused" 1 'listed twice' kunit "$good" alpha.first alpha.first
check "results that cannot be read fail" 1 'error: cannot read the results' kunit "$tmp/none" alpha.first

prog=(memcg_lru_test.global.one 'memcg_lru_test.two words')
check "kselftest: all there and ok" 0 '^ok memcg_lru_test.two words$' kselftest "$samples/kselftest-good.out" "${prog[@]}"
both=("${prog[@]}" other_test.global.three other_test.four)
check "kselftest: two categories in one run" 0 '^ok other_test.four$' kselftest "$samples/kselftest-two.out" "${both[@]}"
check "kselftest: a category that is missing fails" 1 '^not ok other_test.four # missing' kselftest "$samples/kselftest-good.out" "${both[@]}"
check "kselftest: a missing test fails" 1 '^not ok memcg_lru_test.three # missing' kselftest "$samples/kselftest-good.out" "${prog[@]}" memcg_lru_test.three
check "kselftest: a failed test fails" 1 '^not ok memcg_lru_test.two words' kselftest "$samples/kselftest-failed.out" "${prog[@]}"
check "kselftest: a program that dies after its last test fails" 1 '^not ok memcg_lru_test # the program failed' kselftest "$samples/kselftest-died.out" "${prog[@]}"
check "kselftest: a program that dies before its last test fails" 1 'damaged: memcg_lru_test: ' kselftest "$samples/kselftest-cut.out" "${prog[0]}"
check "kselftest: a test cut off by the runner's limit fails" 1 '^not ok .*(TIMEOUT|missing|damaged)' kselftest "$samples/kselftest-timeout.out" "${prog[@]}"
check "kselftest: a program without TAP counts as one test" 0 '^ok mm.plain$' kselftest "$samples/kselftest-plain.out" mm.plain
check "kselftest: a skip that is not announced fails" 1 '^not ok mm.plain # SKIP' kselftest "$samples/kselftest-skip.out" mm.plain
: >"$tmp/empty"
check "kselftest: no output fails" 1 '^not ok memcg_lru_test.global.one # missing' kselftest "$tmp/empty" "${prog[@]}"

exit $failed
