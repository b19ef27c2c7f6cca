#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts/range-diff on two tiny kernels.
. "$(dirname "$(readlink -f "$0")")/harness"

new_repo "$tmp/repo"
cd "$tmp/repo"
new_kernel "$tmp/k73" 7 3
new_kernel "$tmp/k72" 7 2
# Context that is not the same
sed -i 's/^line 11$/line 11 of 7.2/' "$tmp/k72/mm/vmscan.c"

# patch BASE FILE SUBJECT LINE CONTEXT NEW [NOTE]: replaces line LINE of mm/vmscan.c
patch() {
	mkdir -p "patches/$1"
	cat >"patches/$1/$2" <<P
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Tester <tester@example.org>
Date: Tue, 1 Sep 2026 10:00:00 +0200
Subject: [PATCH] $3

The body of this message.
---
${7:-}

diff --git a/mm/vmscan.c b/mm/vmscan.c
--- a/mm/vmscan.c
+++ b/mm/vmscan.c
@@ -$(($4 - 1)),3 +$(($4 - 1)),3 @@
 line $(($4 - 1))
-line $4
+$6
 $5
P
	echo "$2" >>"patches/$1/series"
}
patch 7.3 0001-only.patch 'mm: only in 7.3' 40 'line 41' 'line forty' 'Others need it not.'
patch 7.3 0002-context.patch 'mm: other context' 10 'line 11' 'line ten'
patch 7.3 0003-other.patch 'mm: other line' 20 'line 21' 'line twenty'
patch 7.2 0001-context.patch 'mm: other context' 10 'line 11 of 7.2' 'line ten'
patch 7.2 0002-other.patch 'mm: other line' 20 'line 21' 'line XX'

export KSRC=$tmp/k73
works "the queue of 7.3 composes" scripts/compose 7.3
export KSRC=$tmp/k72
fails "7.3 is not compared with itself" 'BASE is one of 7\.2' scripts/range-diff 7.3
fails "a base without a queue" 'base 6\.12 has no queue' scripts/range-diff 6.12

says() { grep -qE -- "$2" "$tmp/out"; ok "$1" $?; }
! run scripts/range-diff 7.2
ok "another line without a word why fails" $?
says "it is named" '^not ok 0002-other\.patch # differs from 0003 of 7\.3, and nothing below its --- says why$'
says "other context alone is nothing to explain" '^ok 0001-context\.patch: as 0002 of 7\.3$'
says "a patch that is not here says so there" '^ok 0001-only\.patch of 7\.3: not here, says why$'
says "the difference is shown" '^ *\+\+line XX$|^    \+\+line XX'

rm patches/7.2/* && patch 7.2 0001-context.patch 'mm: other context' 10 'line 11 of 7.2' 'line ten'
patch 7.2 0002-other.patch 'mm: other line' 20 'line 21' 'line XX' 'Roman numbers here.'
trees=$(snapshot build/7.3/patched; snapshot build/7.3/base)
works "with a word below --- it passes" scripts/range-diff 7.2
says "which is said" '^ok 0002-other\.patch: differs from 0003 of 7\.3, says why$'
[ "$trees" = "$(snapshot build/7.3/patched; snapshot build/7.3/base)" ]
ok "the trees are left alone" $?

patch 7.2 0003-here.patch 'mm: only in 7.2' 50 'line 51' 'line fifty'
! run scripts/range-diff 7.2
ok "a patch that 7.3 has not, without a word why, fails" $?
says "it is named, too" '^not ok 0003-here\.patch # is not in 7\.3, and nothing below its --- says why$'

done_testing
