#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts/refresh on tiny kernels: the way back, and back again.
. "$(dirname "$(readlink -f "$0")")/harness"

new_repo "$tmp/repo"
cd "$tmp/repo"
new_kernel "$tmp/k73" 7 3
new_kernel "$tmp/k72" 7 2
echo 'older' >>"$tmp/k72/mm/vmscan.c"
r73() { KSRC=$tmp/k73 scripts/"$@" 7.3; }
r72() { KSRC=$tmp/k72 scripts/"$@" 7.2; }
queue() { find patches mm include tools -type f 2>/dev/null | sort | xargs -r sha256sum; }
p=build/7.3/patched
r73 source 2>/dev/null

fails "a tree without commits" "has no commits on top of 'pristine'" r73 refresh

sed -i 's/^line 10$/line ten/' $p/mm/vmscan.c
commit $p "mm/mglru: one" $'The body – with é.\n\nFixes: 0123456789ab ("x")'
git -C $p notes add -m $'First line of a note.\n\nThird.'
mkdir -p $p/mm/tests $p/tools
echo 'int a;' >$p/mm/tests/a_kunit.c
echo 'obj-y += a_kunit.o' >$p/mm/Makefile
echo '#!/bin/sh' >$p/tools/run.sh
chmod +x $p/tools/run.sh
echo 'new' >$p/scripts/compose
sed -i 's/^line 20$/line twenty/' $p/mm/vmscan.c
commit $p "mm/mglru: add tests and a very long subject that git would cut somewhere here"
echo 'obj-y += b_kunit.o' >>$p/mm/Makefile
commit $p "mm/mglru: more"

harness=$(sha256sum scripts/compose)
works "refresh" r73 refresh
[ "$(cat patches/7.3/series)" = "\
# A patch, then the whole new files that its commit adds.

0001-mm-mglru-one.patch
0002-mm-mglru-add-tests-and-a-very-long-subject-that-git-.patch  mm/tests/a_kunit.c  tools/run.sh
0003-mm-mglru-more.patch" ]
ok "series: whole files are those that one commit adds and none touches again" $?
[ -x tools/run.sh ] && [ ! -x mm/tests/a_kunit.c ] && [ ! -e mm/Makefile ]
ok "whole files have their modes" $?
[ "$harness" = "$(sha256sum scripts/compose)" ] && grep -q '^+new$' patches/7.3/0002-*.patch
ok "a new file among the repository's own stays in its patch" $?
[ "$(sed -n '1,/^diff/p' patches/7.3/0001-mm-mglru-one.patch)" = "\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Tester <tester@example.org>
$(git -C $p log -1 --format='Date: %aD' HEAD~2)
Subject: [PATCH] mm/mglru: one
MIME-Version: 1.0
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: 8bit

The body – with é.

Fixes: 0123456789ab (\"x\")
---
First line of a note.

Third.

diff --git a/mm/vmscan.c b/mm/vmscan.c" ]
ok "a patch is a mail with the note under its dashes" $?

before=$(queue) tree=$(snapshot $p)
works "refresh again" r73 refresh
[ "$before$tree" = "$(queue)$(snapshot $p)" ]
ok "changes nothing" $?
works "compose after refresh" r73 compose
[ "$before$tree" = "$(queue)$(snapshot $p)" ]
ok "changes nothing either" $?

# From nothing: what was written out gives the same tree and the same files
same=$(git -C $p rev-parse HEAD)
rm -rf build
works "compose in a new build directory" r73 compose
[ "$same" = "$(git -C $p rev-parse HEAD)" ] && [ -z "$(git -C $p status --porcelain)" ]
ok "gives the same commits" $?
works "refresh after compose" r73 refresh
[ "$before" = "$(queue)" ]
ok "gives the same files" $?

# Comments stay with their patch; edits come back
sed -i -e 's/^0002-/# The tests\n&/' -e '1i# SPDX-License-Identifier: GPL-2.0' -e '$a# The end' patches/7.3/series
works "compose with comments" r73 compose
git -C $p config user.name Tester; git -C $p config user.email tester@example.org
GIT_SEQUENCE_EDITOR='sed -i "1{h;d};2{G}"' GIT_EDITOR=true git -C $p rebase -q -i pristine >/dev/null 2>&1 ||
	git -C $p status
works "refresh of a reordered queue" r73 refresh
[ "$(cat patches/7.3/series)" = "\
# SPDX-License-Identifier: GPL-2.0
# A patch, then the whole new files that its commit adds.

# The tests
0001-mm-mglru-add-tests-and-a-very-long-subject-that-git-.patch  mm/tests/a_kunit.c  tools/run.sh
0002-mm-mglru-one.patch
0003-mm-mglru-more.patch

# The end" ]
ok "comments went with their patches" $?
[ "$(ls patches/7.3 | wc -l)" = 4 ] && grep -q '^First line of a note' patches/7.3/0002-mm-mglru-one.patch
ok "old numbers are gone, the note survived the rebase" $?
before=$(queue)
works "again" r73 refresh
[ "$before" = "$(queue)" ]
ok "changes nothing" $?
echo 'changed' >>$p/mm/Makefile
git -C $p commit -q --amend -am "mm/mglru: more of it"
git -C $p notes add -m 'A note.'
echo 'changed' >>$p/mm/Makefile
git -C $p commit -q --amend -a --no-edit
works "refresh of an amended commit" r73 refresh
grep -q '^A note\.$' patches/7.3/0003-mm-mglru-more-of-it.patch && [ ! -e patches/7.3/0003-mm-mglru-more.patch ]
ok "its note survived the amend" $?
tree=$(git -C $p rev-parse 'HEAD^{tree}')
works "compose" r73 compose
[ "$tree" = "$(git -C $p rev-parse 'HEAD^{tree}')" ]
ok "gives the edited tree" $?

# A whole file that stops being one, and one that goes
sed -i 's/int a/long a/' $p/mm/tests/a_kunit.c
commit $p "mm/mglru: touch a whole file"
works "a whole file that is touched again" r73 refresh
[ ! -e mm/tests/a_kunit.c ] && [ ! -e mm ] && grep -q '^+int a;' patches/7.3/0001-*.patch && grep -q '^+long a;' patches/7.3/0004-*.patch
ok "goes into the patches, and out of the repository" $?
git -C $p reset -q --hard HEAD^
works "and back" r73 refresh
[ -e mm/tests/a_kunit.c ]
ok "is a whole file again" $?

# Another base shares the whole files, and adapts them
p2=build/7.2/patched
r72 source 2>/dev/null
mkdir -p $p2/mm/tests $p2/tools
cp tools/run.sh $p2/tools
printf 'int a;\nint only_here;\n' >$p2/mm/tests/a_kunit.c
commit $p2 "mm/mglru: add tests"
before=$(sha256sum mm/tests/a_kunit.c tools/run.sh)
works "refresh of another base" r72 refresh
[ "$before" = "$(sha256sum mm/tests/a_kunit.c tools/run.sh)" ]
ok "leaves the whole files as the primary base has them" $?
grep -q '^+int only_here;' patches/7.2/0001-*.patch && ! grep -q 'new file' patches/7.2/0001-*.patch && ! grep -q run.sh patches/7.2/0001-*.patch
ok "its patch has the adapting hunk, and nothing for the file that is the same" $?
tree=$(git -C $p2 rev-parse 'HEAD^{tree}')
rm -rf build/7.2
works "compose of it" r72 compose
[ "$tree" = "$(git -C $p2 rev-parse 'HEAD^{tree}')" ]
ok "gives the same tree" $?
before=$(queue)
works "refresh of it" r72 refresh
[ "$before" = "$(queue)" ]
ok "changes nothing" $?
git -C $p2 rm -q tools/run.sh
git -C $p2 commit -q --amend -m "mm/mglru: add tests"
works "a base that drops a shared whole file" r72 refresh
[ -e tools/run.sh ] && ! grep -q run.sh patches/7.2/series
ok "leaves it to the other" $?

# A tree elsewhere
rm -rf "$tmp/mine"
git clone -q "$p2" "$tmp/mine"
echo 'int also;' >>"$tmp/mine/mm/tests/a_kunit.c"
git -C "$tmp/mine" commit -q --amend -a --no-edit
works "TREE=: a tree elsewhere" env TREE="$tmp/mine" KSRC="$tmp/k72" scripts/refresh 7.2
works "compose takes it over" r72 compose
[ "$(git -C "$tmp/mine" rev-parse 'HEAD^{tree}')" = "$(git -C $p2 rev-parse 'HEAD^{tree}')" ]
ok "and gives its tree" $?
fails "TREE= of another base" "'pristine' in .* is not the source of base 7\.3" env TREE="$tmp/mine" KSRC="$tmp/k73" scripts/refresh 7.3

# What is refused, and changes nothing
before=$(queue)
head=$(git -C $p rev-parse HEAD)
back() { git -C $p reset -q --hard "$head"; git -C $p clean -fdq; }
echo x >>$p/mm/vmscan.c
fails "a dirty tree" "uncommitted changes" r73 refresh
back
echo x >$p/mm/x.c
fails "an untracked file" "untracked files" r73 refresh
back
git -C $p commit -q --allow-empty -m "mm/mglru: nothing"
fails "an empty commit" "changes nothing" r73 refresh
back
echo x >>$p/mm/vmscan.c; git -C $p commit -q -a --allow-empty-message -m ''
fails "an empty subject" "empty subject" r73 refresh
back
echo x >>$p/mm/vmscan.c; commit $p "mm/mglru: x" $'text\n---\nmore'
fails "a body that would end at three dashes" "would end it in a mail" r73 refresh
back
git -C $p checkout -q -b side HEAD^; echo x >$p/mm/x.c; commit $p "mm/mglru: side"
git -C $p checkout -q queue; git -C $p merge -q -m "merge" side
fails "a merge" "merge commits" r73 refresh
back
git -C $p checkout -q --orphan other; git -C $p commit -q -m "other"
fails "another history" "no ancestor" r73 refresh
git -C $p checkout -q -f queue; back
GIT_SEQUENCE_EDITOR='sed -i 1s/^pick/edit/' git -C $p rebase -q -i pristine >/dev/null 2>&1
fails "in the middle of a rebase" "in the middle of a rebase" r73 refresh
git -C $p rebase --abort
[ "$before" = "$(queue)" ]
ok "nothing refused has changed a file" $?

# What was edited in the repository is not written over
r73 compose 2>/dev/null
first=$(ls patches/7.3/0001-*)
sed -i '0,/^---$/s/^---$/More of the message.\n---/' "$first"
before=$(queue)
fails "a patch that was edited since" "${first##*/} was edited after" r73 refresh
[ "$before" = "$(queue)" ]
ok "keeps the edit" $?
works "compose takes the edit" r73 compose
works "and then there is nothing to lose" r73 refresh
grep -qx 'More of the message.' "$first"
ok "the edit has survived" $?

done_testing
