#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts/compose on a tiny kernel.
. "$(dirname "$(readlink -f "$0")")/harness"

new_repo "$tmp/repo"
cd "$tmp/repo"
new_kernel "$tmp/k" 7 3
export KSRC=$tmp/k
patched=build/7.3/patched

fails "a base without a queue" "base 7\.3 has no queue yet" scripts/compose 7.3

# A queue made by hand, the way git format-patch writes it: with a diffstat, and
# text under the three dashes.
mkdir -p patches/7.3 mm/tests
echo 'int test;' >mm/tests/a_kunit.c
printf '#!/bin/sh\n' >mm/tests/run.sh
chmod +x mm/tests/run.sh
cat >patches/7.3/series <<'S'
# Why this group exists.

0001-one.patch
# The tests
0002-two.patch  mm/tests/a_kunit.c mm/tests/run.sh
S
cat >patches/7.3/0001-one.patch <<'P'
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: =?UTF-8?q?J=C3=B6rg?= <joerg@example.org>
Date: Tue, 1 Sep 2026 10:00:00 +0200
Subject: [PATCH 1/2] mm/mglru: change
 two lines

The body.

Fixes: 0123456789ab ("mm: something")
---
Other on 6.12.

 mm/vmscan.c | 4 ++--
 1 file changed, 2 insertions(+), 2 deletions(-)

diff --git a/mm/vmscan.c b/mm/vmscan.c
--- a/mm/vmscan.c
+++ b/mm/vmscan.c
@@ -8,5 +8,5 @@
 line 8
 line 9
-line 10
+line ten
 line 11
 line 12
@@ -38,5 +38,5 @@
 line 38
 line 39
-line 40
+line forty
 line 41
 line 42
-- 
2.39.5
P
cat >patches/7.3/0002-two.patch <<'P'
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Tester <tester@example.org>
Date: Tue, 1 Sep 2026 11:00:00 +0200
Subject: [PATCH 2/2] mm/mglru: add tests

Only whole files.
---
P
works "compose" scripts/compose --mails 7.3
[ "$(cat "$tmp/out")" = $'dist/7.3/0001-mm-mglru-change-two-lines.patch\ndist/7.3/0002-mm-mglru-add-tests.patch' ]
ok "lists the mails" $?
[ "$(git -C $patched log --reverse --format='%an|%ae|%aI|%cn|%cI|%s' pristine..)" = "\
Jörg|joerg@example.org|2026-09-01T10:00:00+02:00|Jörg|2026-09-01T10:00:00+02:00|mm/mglru: change two lines
Tester|tester@example.org|2026-09-01T11:00:00+02:00|Tester|2026-09-01T11:00:00+02:00|mm/mglru: add tests" ]
ok "author, date and subject are the mail's" $?
[ "$(git -C $patched notes show HEAD^)" = "Other on 6.12." ]
ok "the text under --- is a note, without the diffstat" $?
[ "$(sed -n '10p;40p' $patched/mm/vmscan.c | paste -s)" = $'line ten\tline forty' ] &&
	cmp -s mm/tests/a_kunit.c $patched/mm/tests/a_kunit.c && [ -x $patched/mm/tests/run.sh ] && [ ! -x $patched/mm/tests/a_kunit.c ]
ok "the tree has the patch and the whole files with their modes" $?

good=$(snapshot $patched) mails=$(snapshot dist)
works "compose again" scripts/compose --mails 7.3
[ "$good$mails" = "$(snapshot $patched)$(snapshot dist)" ]
ok "changes nothing" $?

am() {	# TREE: what a user does with dist/
	rm -rf "$1" && git clone -q build/7.3/base "$1" && git -C "$1" checkout -q pristine &&
	git -C "$1" am -q "$PWD"/dist/7.3/*.patch
}
works "git am takes the mails on a pristine tree" am "$tmp/am"
[ "$(git -C "$tmp/am" rev-parse 'HEAD^{tree}')" = "$(git -C $patched rev-parse 'HEAD^{tree}')" ]
ok "and gives the same tree" $?
sed -n '/^---$/,/^diff/p' dist/7.3/0001-*.patch | grep -q 'Other on 6.12.'
ok "the mail has the note under ---" $?

# Failures leave all as it was
unchanged() { [ "$good$mails" = "$(snapshot $patched)$(snapshot dist)" ]; ok "$1" $?; }
cp patches/7.3/0001-one.patch "$tmp/saved"
sed -i 's/^ line 41$/ line 41 tampered/' patches/7.3/0001-one.patch
fails "tampered context: fails, names patch, file and hunk" '0001-one\.patch does not apply: mm/vmscan\.c, hunk 2 of 2: @@ -38,5 \+38,5 @@' scripts/compose --mails 7.3
unchanged "a tampered patch changes neither tree nor mails"
cp "$tmp/saved" patches/7.3/0001-one.patch
sed -i '/^ line 41/,$d' patches/7.3/0001-one.patch
fails "a corrupt patch" '0001-one\.patch does not apply: corrupt patch' scripts/compose 7.3
cp "$tmp/saved" patches/7.3/0001-one.patch
mv mm/tests/a_kunit.c "$tmp/a"
fails "a whole file that is not there" '0002-two\.patch: the whole file mm/tests/a_kunit\.c does not exist' scripts/compose 7.3
mv "$tmp/a" mm/tests/a_kunit.c
mv patches/7.3/0002-two.patch "$tmp/two"
fails "a patch that is not there" '0002-two\.patch is in the series, but not in patches/7\.3' scripts/compose 7.3
mv "$tmp/two" patches/7.3/0002-two.patch
sed 's/^0002.*/0002-two.patch mm\/vmscan.c/' patches/7.3/series >"$tmp/series"
cp patches/7.3/series "$tmp/series.good"
cp "$tmp/series" patches/7.3/series
fails "a whole file that the kernel has already" 'mm/vmscan\.c exists already' scripts/compose 7.3
cp "$tmp/series.good" patches/7.3/series
sed 's/^From: .*//' "$tmp/saved" >patches/7.3/0001-one.patch
fails "a mail without author" '0001-one\.patch has no From:' scripts/compose 7.3
cp "$tmp/saved" patches/7.3/0001-one.patch
unchanged "none of these has changed anything"

# Offset is fine, fuzz is not
sed -e 's/^@@ -8,5 +8,5 @@/@@ -11,5 +11,5 @@/' "$tmp/saved" >patches/7.3/0001-one.patch
works "an offset is accepted" scripts/compose 7.3
unchanged "and gives the same tree"
sed -e 's/^ line 8$/ line eight/' "$tmp/saved" >patches/7.3/0001-one.patch
fails "fuzz is refused" '0001-one\.patch does not apply: mm/vmscan\.c, hunk 1 of 2' scripts/compose 7.3
cp "$tmp/saved" patches/7.3/0001-one.patch

# Only files that differ are written
before=$(stat -c %Y.%Z.%i $patched/mm/vmscan.c $patched/Makefile)
echo 'int more;' >>mm/tests/a_kunit.c
works "a whole file that has changed" scripts/compose 7.3
[ "$before" = "$(stat -c %Y.%Z.%i $patched/mm/vmscan.c $patched/Makefile)" ] && cmp -s mm/tests/a_kunit.c $patched/mm/tests/a_kunit.c
ok "only it is written" $?
sed -i 's/^Other on.*/Another remark./' patches/7.3/0001-one.patch
works "a note that has changed" scripts/compose 7.3
[ "$(git -C $patched notes show HEAD^)" = "Another remark." ]
ok "is the new one" $?
sed -i '/^Another remark\./d' patches/7.3/0001-one.patch
works "a note that is gone" scripts/compose 7.3
! git -C $patched notes show HEAD^ >/dev/null 2>&1
ok "is gone" $?
cp "$tmp/saved" patches/7.3/0001-one.patch
works "and back" scripts/compose --mails 7.3

# The user's work
refuses() {	# NAME: compose must refuse and keep the tree
	local before
	before=$(snapshot $patched)
	sed -i '1i# changed' patches/7.3/series
	fails "$1" "holds work: .*make refresh BASE=7\.3 saves it, DISCARD=1 drops it" scripts/compose 7.3
	[ "$before" = "$(snapshot $patched)" ]
	ok "$1: kept" $?
}
echo 'mine' >>$patched/mm/vmscan.c
refuses "an edited file"
git -C $patched commit -qam 'mm/mglru: mine'
refuses "a commit"
git -C $patched reset -q --hard HEAD^
echo 'mine' >$patched/mm/new.c
refuses "a new file"
rm $patched/mm/new.c
git -C $patched notes add -f -m mine HEAD
refuses "a note"
echo 'mine' >>$patched/mm/vmscan.c
echo 'mine' >$patched/mm/new.c
works "DISCARD=1 drops it" env DISCARD=1 scripts/compose 7.3
[ -z "$(git -C $patched status --porcelain)" ] && ! git -C $patched notes show HEAD >/dev/null 2>&1
ok "and the tree is clean" $?

# clean takes the whole repository of the base away
echo 'mine' >>$patched/mm/vmscan.c
fails "clean refuses over an edited file" "patched holds work: it has uncommitted changes" scripts/clean
git -C $patched stash -q
fails "clean refuses over stashed changes" 'patched also has stash@\{0\}' scripts/clean
git -C $patched stash drop -q
git -C $patched branch mine
fails "clean refuses over a branch of the user's" 'patched also has mine; DISCARD=1 drops it' scripts/clean
git -C $patched branch -q -D mine
works "clean takes the rest" scripts/clean
[ ! -e build/7.3 ] && [ ! -e dist ]
ok "and leaves nothing" $?
works "composing again" scripts/compose 7.3

# Sign-off and disclosure, in the mails only
before=$(git -C $patched rev-parse HEAD)
works "SIGNOFF and ASSISTED_BY" env SIGNOFF="Ann O'Neil <ann@example.org>" ASSISTED_BY="Tool:model-1" scripts/compose --mails 7.3
[ "$(sed -n '/^Fixes/,/^---/p' dist/7.3/0001-*.patch)" = "\
Fixes: 0123456789ab (\"mm: something\")
Assisted-by: Tool:model-1
Signed-off-by: Ann O'Neil <ann@example.org>
---" ] && [ "$before" = "$(git -C $patched rev-parse HEAD)" ]
ok "are trailers of each mail, not of the commits" $?
works "git am takes signed mails" am "$tmp/am"
[ "$(git -C "$tmp/am" log -1 --format='%(trailers:key=Signed-off-by,valueonly)' | head -n 1)" = "Ann O'Neil <ann@example.org>" ] &&
	[ "$(git -C "$tmp/am" rev-parse 'HEAD^{tree}')" = "$(git -C $patched rev-parse 'HEAD^{tree}')" ]
ok "and gives the same tree, signed" $?
signed=$(snapshot dist)
works "composing without --mails" scripts/compose 7.3
[ "$signed" = "$(snapshot dist)" ]
ok "leaves signed mails alone" $?
for bad in "Ann" "<ann@example.org>" "Ann <ann>" "Ann ann@example.org" "Ann <ann@example.org> x"; do
	fails "SIGNOFF=$bad is refused" 'not of the form "Name <mail>"' env SIGNOFF="$bad" scripts/compose --mails 7.3
done
works "without SIGNOFF again" scripts/compose --mails 7.3
! grep -q Signed-off-by dist/7.3/*
ok "no sign-off is left" $?

# The cover letter
printf 'mm/mglru: the whole\n\nFirst paragraph, 100 %% & more.\n\n@own part\n\nSecond.\n' >patches/cover-letter.txt
fails "a cover letter without the base's part" 'cover letter: no "@own part" in .*patches/7\.3/cover-letter\.txt' scripts/compose --mails 7.3
printf '@own part\n\nIts own,\n\nin two.\n\n@other\nx\n' >patches/7.3/cover-letter.txt
fails "a part that the common text has no place for" 'cover letter: no "@other" in the letter' scripts/compose --mails 7.3
sed -i '/@other/,$d' patches/7.3/cover-letter.txt
mkdir -p dist/7.3/deb && echo package >dist/7.3/deb/a.deb
works "a cover letter" env SIGNOFF="Ann O'Neil <ann@example.org>" ASSISTED_BY="Tool:model-1" scripts/compose --mails 7.3
cover=dist/7.3/0000-cover-letter.txt
grep -qx 'Subject: \[PATCH 0/2\] mm/mglru: the whole' $cover && [ "$(grep -A 6 "^First" $cover | paste -sd"|")" = "First paragraph, 100 % & more.||Its own,||in two.||Second." ] && grep -q "^Tester (1):" $cover &&
	grep -q '3 files changed' $cover && ! grep -q '\*\*\*' $cover
ok "has subject, text with the base's part in its place, shortlog and diffstat" $?
! grep -qE 'Signed-off-by|Assisted-by' $cover && grep -q '^Assisted-by' dist/7.3/0001-*.patch
ok "has no trailers, as the patches have" $?
! grep -q deb "$tmp/out" && [ -s dist/7.3/deb/a.deb ]
ok "packages beside the mails are kept, and are no mails" $?
rm -r dist/7.3/deb
works "without trailers again" scripts/compose --mails 7.3
works "git am does not take it" am "$tmp/am"
letters=$(snapshot dist)
works "again" scripts/compose --mails 7.3
[ "$letters" = "$(snapshot dist)" ]
ok "it is stable" $?


# A queue that is none, and trees that are none
cp -R patches "$tmp/patches.saved"
printf '# nothing\n' >patches/7.3/series
fails "a series of comments" "names no patch" scripts/compose 7.3
rm -r patches; cp -R "$tmp/patches.saved" patches
first=$(ls patches/7.3/0*.patch | head -n 1)
sed -i '/^diff --git /d' "$first"
fails "a diff without git's headers" "without git's headers" scripts/compose 7.3
rm -r patches; mv "$tmp/patches.saved" patches
rm build/7.3/composed
works "a run that was killed before it could say what it composed" scripts/compose 7.3
rm build/7.3/patched/.git
works "a tree that is none any more, with DISCARD=1" env DISCARD=1 scripts/compose 7.3
[ -z "$(git -C build/7.3/patched status --porcelain)" ]
ok "is made again" $?

done_testing
