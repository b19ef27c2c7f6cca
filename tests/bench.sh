#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of scripts/bench-report on canned runs: medians, spread, verdicts; runs that are missing, double or of another kind.
# And of scripts/bench with stand-ins for the programs that build and boot.
set -euo pipefail
top=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
report=$top/scripts/bench-report
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0
unset KERNEL_BASE KERNEL_PATCHED KERNEL_COST

# check NAME STATUS PATTERN ARGS...: bench-report must end so and print a line that matches
check() {
	local name=$1 want=$2 pattern=$3 got=0
	shift 3
	n=$((n + 1))
	"$report" "$@" >"$tmp/out" 2>&1 || got=$?
	if [ $got -eq "$want" ] && grep -qE -- "$pattern" "$tmp/out"; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		echo "# status $got, expected $want; no line like: $pattern"
		sed 's/^/# /' "$tmp/out"
		failed=1
	fi
}

# exact VARIANT RUN MEMCGS INSTRUCTIONS, pair VARIANT RUN RATE: one canned run
exact() {
	printf '{"kind":"exact","variant":"%s","run":%d,"result":{"memcgs":%d,"writers":1,"instructions":{"per_request":%d}}}\n' "$@"
}
pair() {
	printf '{"kind":"pairs","variant":"%s","run":%d,"result":{"memcgs":1500,"writers":8,"requests":40,' "$1" "$2"
	printf '"requests_per_second":%s,"latency_ms":{"min":1,"median":200,"max":900}}}\n' "$3"
}

{
	exact base 1 1500 500000000; exact base 2 1500 500000200
	exact patched 1 1500 90000000; exact patched 2 1500 90027000
	exact base 1 6000 4000000000; exact patched 1 6000 355000000
	# ratios 2.0 2.5 4.0 2.2 3.0; the ratio of the medians would be 2.4
	pair base 1 1.0; pair base 2 2.0; pair base 3 0.5; pair base 4 1.0; pair base 5 1.0
	pair patched 1 2.0; pair patched 2 5.0; pair patched 3 2.0; pair patched 4 2.2; pair patched 5 3.0
} >"$tmp/good"
all=(--exact 1500:2 --exact 6000:1 --pairs 1500:8:5)

check "a good measurement is judged good" 0 '^patched beats base$' "${all[@]}" "$tmp/good"
check "the same with the project's bars" 0 '^all bars are reached$' "${all[@]}" --bars "$tmp/good"
check "exact ratio" 0 '1,500 memcgs, 1 writer.* 500\.0 +90\.0 +0\.180 +<= 0\.2 +ok' "${all[@]}" --bars "$tmp/good"
check "growth from 1,500 to 6,000" 0 'factor +8\.00 +3\.94 +<= 4\.1 +ok' "${all[@]}" --bars "$tmp/good"
check "the median of the pairs' ratios decides" 0 'median of 5 +1\.000 +2\.200 +2\.50 +>= 2 +ok' "${all[@]}" --bars "$tmp/good"
check "every pair's ratio is shown" 0 'each pair: 2\.00, 2\.50, 4\.00, 2\.20, 3\.00' "${all[@]}" "$tmp/good"
check "the spread is shown" 0 'base: requests/s 0\.500 to 2\.000' "${all[@]}" "$tmp/good"
check "the repeatability is shown" 0 '2 boots of one kernel differ by at most 0\.030 %' "${all[@]}" "$tmp/good"

grep -v '"patched","run":3' "$tmp/good" | { cat; pair patched 3 2.0; } >"$tmp/again"
check "the order of the runs does not matter" 0 'each pair: 2\.00, 2\.50, 4\.00, 2\.20, 3\.00' "${all[@]}" "$tmp/again"
{ grep -v '"pairs"' "$tmp/good"; for i in 1 2 3 4; do pair base $i 1; pair patched $i $i; done; } >"$tmp/even"
check "median of an even number" 0 'median of 4 +1\.000 +2\.500 +2\.50' --exact 1500:2 --pairs 1500:8:4 "$tmp/even"

sed '/pairs.*"patched"/s/_second":[0-9.]*/_second":0.4/' "$tmp/good" >"$tmp/slow"
check "fewer requests/s than base fail" 1 'median of 5.*FAILED$' "${all[@]}" "$tmp/slow"
sed 's/900[02][07]000/510000000/' "$tmp/good" >"$tmp/more"
check "more instructions than base fail" 1 '1,500 memcgs, 1 writer.*FAILED$' "${all[@]}" "$tmp/more"
sed 's/900[02][07]000/110000000/' "$tmp/good" >"$tmp/bar"
check "better than base is enough without bars" 0 '^patched beats base$' "${all[@]}" "$tmp/bar"
check "and not enough with them" 1 '1,500 memcgs, 1 writer.*0\.220 +<= 0\.2 +FAILED$' "${all[@]}" --bars "$tmp/bar"
sed 's/355000000/381600000/' "$tmp/good" >"$tmp/grow"
check "growth above its bar fails" 1 'factor.*4\.24 +<= 4\.1 +FAILED$' "${all[@]}" --bars "$tmp/grow"
sed 's/500000200/510000000/' "$tmp/good" >"$tmp/differ"
check "exact runs that are not repeatable cannot be judged" 2 'error: 1500 memcgs: runs of one kernel differ by 2\.00 %' "${all[@]}" "$tmp/differ"

grep -v '"pairs","variant":"base","run":4' "$tmp/good" >"$tmp/less"
check "a missing run of a pair" 2 'error: missing run: pairs 1500 memcgs, base, number 4' "${all[@]}" "$tmp/less"
grep -v '6000' "$tmp/good" >"$tmp/less"
check "a missing exact run" 2 'error: missing run: exact 6000 memcgs, base, number 1' "${all[@]}" "$tmp/less"
: >"$tmp/empty"
check "no run at all" 2 'error: missing run' "${all[@]}" "$tmp/empty"
check "no file" 2 'error: cannot read .*No such file' "${all[@]}" "$tmp/none"
check "nothing asked for" 2 'error: no run is asked for' "$tmp/good"
{ cat "$tmp/good"; pair base 1 9; } >"$tmp/twice"
check "a run that is there twice" 2 'error: .*line 17: a second result' "${all[@]}" "$tmp/twice"
{ cat "$tmp/good"; echo '{"kind":"pairs"'; } >"$tmp/broken"
check "a broken line" 2 'error: .*line 17 is not a run' "${all[@]}" "$tmp/broken"
sed 's/"instructions"/"cycles"/' "$tmp/good" >"$tmp/noins"
check "an exact run without instructions" 2 'has no instructions' "${all[@]}" "$tmp/noins"
sed '/pairs/s/"writers":8/"writers":4/' "$tmp/good" >"$tmp/few"
check "a run with other writers than asked for" 2 '4 writers instead of 8' "${all[@]}" "$tmp/few"
sed '/"base","run":2/s/_second":2.0/_second":0/' "$tmp/good" >"$tmp/none"
check "a run without a request" 2 'no request in one of the runs' "${all[@]}" "$tmp/none"

# The KUnit suite's figures
cat >"$tmp/console" <<'C'
[    1.0]     # append_cost: append nodes=10 new=640 old=1600 cycles
[    1.0]     # append_cost: append nodes=1000 new=640 old=32000 cycles
[    1.0]     # append_cost: append nodes=50000 new=672 old=1600000 cycles
[    1.0]     # rotation_cost_100_memcgs: rotate memcgs=100 new=1600 max=3200 old=2000 max=4000 cycles
[    1.0]     # rotation_cost_10000_memcgs: rotate memcgs=10000 new=1600 max=3200 old=20000 max=40000 cycles
[    1.0]     # rotation_cost_50000_memcgs: rotate memcgs=50000 new=1600 max=3200 old=100000 max=200000 cycles
C
with_cost() {
	{
		sed 's/"instructions":{"per/"ticks_per_instruction":16,&/' "$tmp/good"
		printf '{"kind":"cost","variant":"patched","run":1,"result":%s}\n' "$("$report" --parse-cost "$1")"
	} >"$2"
}
with_cost "$tmp/console" "$tmp/cost"
check "cost of an append in instructions" 0 'append to a bin of 50,000 memcgs: instructions +100,000 +42 +0\.0004$' "${all[@]}" --cost "$tmp/cost"
check "longest rotation in instructions" 0 'longest rotation.* 10,000 memcgs: instructions +2,500 +200 +0\.0800$' "${all[@]}" --cost "$tmp/cost"
check "a flat cost reaches the bar" 0 '50,000 against 10: factor +1,000\.0 +1\.050 +<= 1\.1 +ok' "${all[@]}" --cost --bars "$tmp/cost"
sed 's/nodes=50000 new=672/nodes=50000 new=800/' "$tmp/console" >"$tmp/steep-console"
with_cost "$tmp/steep-console" "$tmp/steep"
check "a cost that grows does not" 1 '50,000 against 10: factor.*FAILED$' "${all[@]}" --cost --bars "$tmp/steep"
check "a missing cost run" 2 'error: missing run: cost' "${all[@]}" --cost "$tmp/good"
check "a console without the suite" 2 'error: the KUnit suite memcg_lru_cost printed no' --parse-cost "$tmp/empty"

# mkdir, which is reported and never judged
{
	cat "$tmp/good"
	for v in base patched; do
		printf '{"kind":"mkdir","variant":"%s","run":1,"result":{"step":1000,"milliseconds":[1,2],"instructions":[169000000,176000000]}}\n' $v
	done
} >"$tmp/mkdir"
check "mkdir curve" 0 ' 2,000 +176\.0 +176\.0' "${all[@]}" --mkdir 2000 "$tmp/mkdir"
check "a mkdir curve that is too short" 2 'error: missing run: mkdir 3000' "${all[@]}" --mkdir 3000 "$tmp/mkdir"

# Memcgs without pages, dying memcgs, and the second way
one() { printf '{"kind":"%s","variant":"%s","run":1,"result":{"memcgs":%d,"instructions":{"per_request":%d}}}\n' "$@"; }
{
	cat "$tmp/good"
	one empty base 1500 200000000; one empty patched 1500 60000000
	one dying-0 base 300 40000000; one dying-3000 base 300 2400000000
	one dying-0 patched 300 10000000; one dying-3000 patched 300 10100000
	one iteration patched 1500 120000000
} >"$tmp/more-kinds"
kinds=("${all[@]}" --empty 1500 --dying 300:3000 --iteration 1500 --bars)
check "memcgs without a page" 0 'without any page.* 200\.0 +60\.0 +0\.300 +<= 1 +ok' "${kinds[@]}" "$tmp/more-kinds"
check "dying memcgs" 0 '3,000 dying ones.* 60\.00 +1\.010 +<= 1\.02 +ok' "${kinds[@]}" "$tmp/more-kinds"
check "iteration is shown beside the base" 0 'by iteration.* 500\.0 +120\.0 +0\.240$' "${kinds[@]}" "$tmp/more-kinds"
sed 's/10100000/10300000/' "$tmp/more-kinds" >"$tmp/dear"
check "dying memcgs that cost something" 1 '3,000 dying ones.*FAILED$' "${kinds[@]}" "$tmp/dear"
sed 's/:60000000/:200100000/' "$tmp/more-kinds" >"$tmp/dear"
check "empty memcgs that got dearer" 1 'without any page.*FAILED$' "${kinds[@]}" "$tmp/dear"
grep -v '"dying-0","variant":"patched"' "$tmp/more-kinds" >"$tmp/less"
check "a missing run without dying memcgs" 2 'error: missing run: dying-0 300 memcgs, patched' "${kinds[@]}" "$tmp/less"

# JSON for machines
"$report" "${all[@]}" --json "$tmp/json" "$tmp/good" >/dev/null
n=$((n + 1))
if python3 - "$tmp/json" <<'P'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["good"] is True and len(d["runs"]) == 16
assert abs(d["pairs"]["ratio"] - 2.5) < 1e-9 and abs(d["growth"]["base"] - 8) < 1e-5
P
then echo "ok $n - results as JSON"; else echo "not ok $n - results as JSON"; failed=1; fi

# The whole of scripts/bench in a copy where no kernel is built or booted: the stand-in for vm answers with a fixed result,
# better for patched. A name in the file break, dirty or silent makes the run of that name go wrong so
copy=$tmp/copy
mkdir -p "$copy/scripts" "$copy/tools/testing/selftests/mm"
cp "$top"/scripts/{bench,bench-report,demo,lib.sh,gitconfig} "$copy/scripts/"
cp -r "$top/bases" "$copy/"
cp "$top/tools/testing/selftests/mm/memcg_lru_bench.c" "$copy/tools/testing/selftests/mm/"
stand_in() { cat >"$copy/scripts/$1"; chmod +x "$copy/scripts/$1"; }
stand_in kernel <<<'#!/bin/bash
echo /$2-$3'
stand_in accel <<<'#!/bin/bash
echo tcg'
stand_in scan-console <<'S'
#!/bin/bash
! grep -q BUG "$1"
S
stand_in kunit <<'S'
#!/bin/bash
mkdir -p "$BUILD/$1/runs/kunit-$2-$3"
cp "$STUB/console" "$BUILD/$1/runs/kunit-$2-$3/console"
echo "ok memcg_lru_cost.append_cost"
S
stand_in vm <<'S'
#!/bin/bash
while [ "$1" != -- ]; do case $1 in -k) kernel=$2 ;; -o) out=$2 ;; esac; shift 2; done
mkdir -p "$out"
name=${out##*/}
echo "$name" >>"$STUB/order"
echo booted >"$out/console"
if [ -e "$STUB/dirty" ] && [ "$name" = "$(cat "$STUB/dirty")" ]; then echo BUG >>"$out/console"; fi
if [ -e "$STUB/break" ] && [ "$name" = "$(cat "$STUB/break")" ]; then echo "error: broken" >"$out/stderr"; exit 1; fi
if [ -e "$STUB/silent" ] && [ "$name" = "$(cat "$STUB/silent")" ]; then : >"$out/stdout"; exit 0; fi
memcgs=$(sed -n 's/.*-n \([0-9]*\).*/\1/p' <<<"$2")
# millions of instructions and requests/s
case ${kernel%-*}/$name in
/base/exact-1500*) millions=1000 ;;
/base/exact-6000*) millions=8000 ;;
/patched/exact-1500*) millions=100 ;;
/patched/exact-6000*) millions=400 ;;
/*/empty-*) millions=100 ;;
/base/dying-3*) millions=900 ;;
/*/dying-*) millions=20 ;;
/patched/iteration) millions=200 ;;
/base/*) rate=1 ;;
/patched/*) rate=3 ;;
esac
case $name in
exact* | empty* | dying* | iteration) echo "{\"memcgs\":$memcgs,\"writers\":1,\"ticks_per_instruction\":16,\"instructions\":{\"per_request\":${millions}000000}}" ;;
pair*) echo "{\"memcgs\":$memcgs,\"writers\":8,\"requests\":9,\"requests_per_second\":$rate,\"latency_ms\":{\"median\":1,\"max\":2}}" ;;
mkdir*) echo '{"step":1000,"milliseconds":[1,1,1,1,1,1,1,1,1,1],"instructions":[1,1,1,1,1,1,1,1,1,1]}' ;;
esac >"$out/stdout"
S

# whole NAME STATUS PATTERN PROGRAM: like check, for the copy's scripts
whole() {
	local got=0
	n=$((n + 1))
	rm -f "$tmp/order"
	STUB=$tmp BUILD=$tmp/build PAIRS=2 WINDOW=1 "$copy/scripts/$4" >"$tmp/out" 2>&1 || got=$?
	if [ $got -eq "$2" ] && grep -qE -- "$3" "$tmp/out"; then echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		echo "# status $got, expected $2; no line like: $3"
		sed 's/^/# /' "$tmp/out"
		failed=1
	fi
}
whole "demo runs from end to end" 0 '^patched beats base$' demo
n=$((n + 1))
if [ "$(tail -n4 "$tmp/order" | paste -sd' ')" = "pair-1-base pair-1-patched pair-2-patched pair-2-base" ]
then echo "ok $n - the pairs are interleaved and their order changes"
else echo "not ok $n - the pairs are interleaved and their order changes"; sed 's/^/# /' "$tmp/order"; failed=1
fi
whole "bench runs from end to end" 0 '^all bars are reached$' bench
echo pair-2-base >"$tmp/break"
whole "a run that fails ends the measurement" 1 'error: pair-2-base failed with status 1: error: broken' demo
rm "$tmp/break"; echo exact-1500-patched-2 >"$tmp/dirty"
whole "a dirty console ends the measurement" 1 'error: exact-1500-patched-2: the console is not clean' demo
rm "$tmp/dirty"; echo pair-1-patched >"$tmp/silent"
whole "a run without a result ends the measurement" 1 'error: pair-1-patched: expected one line of result' demo
rm "$tmp/silent"

echo "1..$n"
exit $failed
