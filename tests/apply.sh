#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts/apply and scripts/points, on tiny kernels with a made-up queue; then on
# the real queues, with the real files they touch where build/BASE/base is there.
real=$(realpath -m "${BUILD:-$(dirname "$(readlink -f "$0")")/../build}")
. "$(dirname "$(readlink -f "$0")")/harness"
unset KERNEL DRYRUN BASE

repo="$tmp/the repo"
new_repo "$repo"
cp "$here/Makefile" "$repo"
cd "$repo"

# A queue of four: a prerequisite, a change, whole new files, a change on top of the second
new_kernel "$tmp/k" 7 3
sed -i '5s/.*/int HEADOP;/' "$tmp/k/mm/vmscan.c"
rm "$tmp/k/.gitignore"
git init -q -b main "$tmp/k"
commit "$tmp/k" "Linux 7.3.4"
cp -R "$tmp/k" "$tmp/q"
sed -i 5d "$tmp/q/mm/vmscan.c"; commit "$tmp/q" "mm: head" "The first."
sed -i 's/^line 10$/line ten/; s/^line 40$/line forty/' "$tmp/q/mm/vmscan.c"; commit "$tmp/q" "mm: change" "The second."
mkdir -p mm/tests "$tmp/q/mm/tests"
echo 'int test;' >mm/tests/a_kunit.c
printf '#!/bin/sh\n' >mm/tests/run.sh
chmod +x mm/tests/run.sh
cp mm/tests/* "$tmp/q/mm/tests/"; echo '#define B 2' >>"$tmp/q/include/linux/a.h"; commit "$tmp/q" "mm: tests" "The third."
sed -i 's/^line ten$/line TEN/' "$tmp/q/mm/vmscan.c"; commit "$tmp/q" "mm: again" "The fourth."
mkdir -p patches/7.3 patches/6.12
git -C "$tmp/q" format-patch -q -o "$repo/patches/7.3" main~4 -- . ':!mm/tests'
cat >patches/7.3/series <<'E'
# Only for: HEADOP in mm/vmscan.c
0001-mm-head.patch
0002-mm-change.patch
0003-mm-tests.patch  mm/tests/a_kunit.c mm/tests/run.sh
0004-mm-again.patch
E
cp patches/7.3/* patches/6.12/
git -C "$tmp/q" tag -f done >/dev/null

apply_5() { KERNEL="$k" scripts/apply 5.0; }
apply() { env KERNEL="$k" "$@" timeout 60 scripts/apply; }
# All of a tree and of its repository, as far as anybody can see it; reading may refresh nothing.
state() {
	snapshot "$k"
	(cd "$k" && git for-each-ref; git symbolic-ref -q HEAD; git reflog; git --no-optional-locks status --porcelain
		# git renews the time of an object that it would have written
		cd "$(git rev-parse --git-common-dir)" && find . -type f \( -path './objects/*' -printf '%p %s\n' -o -printf '%p %s %T@\n' \) | sort) 2>/dev/null
}
fresh() {	# NAME: $k is a new clone
	k="$tmp/$1"
	rm -rf "$k"
	git clone -q "$tmp/k" "$k"
	git -C "$k" checkout -q -B main
	git -C "$k" status >/dev/null
}
# fails, and leaves all as it was
refused() {	# NAME REGEX COMMAND...
	local before name=$1
	before=$(state)
	fails "$@"
	[ "$before" = "$(state)" ] && [ -z "$(find "$TMPDIR" -mindepth 1)" ]
	ok "$name: nothing has changed and nothing is left" $?
}
said() { grep -qE -- "$2" "$tmp/out"; ok "$1" $?; }
same_tree() { [ "$(git -C "$k" rev-parse "HEAD^{tree}")" = "$(git -C "$tmp/q" rev-parse "done^{tree}")" ] && [ -z "$(git -C "$k" status --porcelain)" ]; }
mkdir "$tmp/scratch"
export TMPDIR=$tmp/scratch

# What is no kernel
k=$tmp/nowhere
fails "no KERNEL" 'KERNEL= is missing' scripts/apply
fails "a KERNEL that does not exist" 'nowhere does not exist' apply
k=$tmp/k/Makefile
fails "a KERNEL that is a file" 'is no directory' apply
k=$tmp/scratch
fails "a KERNEL that is no kernel" 'is no kernel source' apply

# A pristine tree
fresh "my linux"
before=$(state)
works "DRYRUN=1" apply DRYRUN=1
said "shows the plan" '^to apply +0004-mm-again\.patch$'
said "sums it up" '^dry run, nothing was changed: 4 to apply, 0 already there, 0 left out'
[ "$before" = "$(state)" ]
ok "and changes nothing" $?
works "a pristine tree" make -s apply KERNEL="$k"
same_tree
ok "has the whole queue now" $?
said "sums it up" '^4 applied, 0 already there, 0 left out; .* on the new branch memcg-lru-queue now, it was on main at'
[ "$(git -C "$k" log --reverse --format='%an|%cn|%s' main..)" = "\
Tester|Tester|mm: head
Tester|Tester|mm: change
Tester|Tester|mm: tests
Tester|Tester|mm: again" ] && [ "$(git -C "$k" symbolic-ref --short HEAD)" = memcg-lru-queue ] && [ -x "$k/mm/tests/run.sh" ]
ok "one commit per patch, on the new branch" $?
[ "$(git -C "$k" rev-parse main)" = "$(git -C "$tmp/k" rev-parse main)" ] && git -C "$k" fsck --no-dangling >"$tmp/out" 2>&1
ok "the old branch and the repository are sound" $?
before=$(state)
works "again" apply
said "says that all is there" '^nothing to do: 0 applied, 4 already there, 0 left out; no branch was made'
[ "$before" = "$(state)" ] && [ -z "$(find "$TMPDIR" -mindepth 1)" ]
ok "and changes nothing" $?
git -C "$k" checkout -q main
works "the branch name is taken" apply
said "the next is made" 'new branch memcg-lru-queue-2 now'

# Parts of the queue
fresh half
git -C "$k" fetch -q "$tmp/q" && git -C "$k" reset -q --hard FETCH_HEAD~2 && git -C "$k" checkout -q -b half && git -C "$k" branch -q -f main HEAD~2
works "half of the queue is there" apply
said "says so" '^2 applied, 2 already there'
said "names it" '^already there  0002-mm-change\.patch$'
same_tree
ok "and the rest is applied" $?
fresh upstream
sed -i '5s/.*/int other;/' "$k/mm/vmscan.c"; commit "$k" "memcg: remove the operation"
works "the prerequisite is there in another form" apply
said "it is left out, with the reason" '^left out +0001-mm-head\.patch # the source has no HEADOP in mm/vmscan\.c$'
said "and counted" '^3 applied, 0 already there, 1 left out'
fresh reverted
git -C "$k" commit -q --allow-empty -m "mm: change"
works "a patch that is in the log only" apply DRYRUN=1
said "it is applied, and it is said" '^to apply +0002-mm-change\.patch # the log has commit [0-9a-f]+ of this name, but the source does not have this$'
fresh offset
sed -i '1i\\n\n' "$k/mm/vmscan.c"; commit "$k" "mm: local lines"
works "an offset is fine" apply

# Refusals
fresh conflict
sed -i 's/^line 41$/line 41 local/' "$k/mm/vmscan.c"; commit "$k" "mm: local"
refused "a conflict" '0002-mm-change\.patch does not apply: mm/vmscan\.c, hunk 2 of 2: @@ .* was not changed$' apply
refused "a conflict, dry run" '0002-mm-change\.patch does not apply: mm/vmscan\.c, hunk 2 of 2' apply DRYRUN=1
fresh older
git -C "$k" fetch -q "$tmp/q" && git -C "$k" reset -q --hard FETCH_HEAD
sed -i 's/int test/int older/' "$k/mm/tests/a_kunit.c"; git -C "$k" commit -q -a --amend --no-edit
refused "an older version of a patch" 'mm/tests/a_kunit\.c exists already.*commit [0-9a-f]+ has its name, so another version' apply
fresh dirty
echo local >>"$k/include/linux/a.h"
refused "an edited file" 'dirty has uncommitted changes \(include/linux/a\.h\)' apply
git -C "$k" add -A
refused "a staged file" 'uncommitted changes \(include/linux/a\.h\)' apply DRYRUN=1
fresh intheway
mkdir "$k/mm/tests"; echo mine >"$k/mm/tests/a_kunit.c"; echo mine >"$k/notes"
refused "an untracked file in the way" 'mm/tests/a_kunit\.c is in the way' apply
rm -r "$k/mm/tests"
works "an untracked file that is not" apply
[ "$(cat "$k/notes")" = mine ]
ok "is kept" $?
fresh rebase
git -C "$k" -c core.editor=true bisect start >/dev/null
refused "a bisect" 'in the middle of .*BISECT_LOG' apply
fresh empty
rm -rf "$k/.git"; git init -q "$k"
refused "a repository without commits" 'has no commit yet' apply
fresh locked
touch "$k/.git/index.lock"
fails "another git at work" 'checking out the new branch in .*, which is as it was, failed' apply
rm "$k/.git/index.lock"
[ -z "$(git -C "$k" status --porcelain)" ] && [ -z "$(git -C "$k" branch --list 'memcg*')" ]
ok "leaves tree and branches alone" $?

# Versions
fresh next
sed -i 's/^PATCHLEVEL.*/PATCHLEVEL = 4/' "$k/Makefile"; commit "$k" "Linux 7.4.4"
refused "7.4" 'Linux 7\.4\.4 is no base of this queue, known are 7\.3 7\.2 6\.12; the nearest is 7\.3; the queue of 7\.3 applies as it is, BASE=7\.3 takes it' apply
refused "an unknown BASE" "unknown base '5\.0'; known:" apply_5
works "BASE=7.3 overrides it" make -s apply KERNEL="$k" BASE=7.3
same_tree || [ -e "$k/mm/tests/run.sh" ]
ok "and the queue is there" $?
fresh between
sed -i 's/^PATCHLEVEL.*/PATCHLEVEL = 18/; s/^VERSION.*/VERSION = 6/' "$k/Makefile"
seq 9 >"$k/mm/vmscan.c"; commit "$k" "Linux 6.18.4"
refused "6.18 that no queue fits" 'Linux 6\.18\.4 is no base .*nearest is 7\.3; BASE=7\.3 would take it all the same, but: 0002-mm-change\.patch does not apply: mm/vmscan\.c' apply
fresh nover
sed -i '/^VERSION/d' "$k/Makefile"; commit "$k" x
refused "a Makefile without a version" 'is no kernel source' apply

# No git
fresh plain
rm -rf "$k/.git"
before=$(snapshot "$k")
fails "no git, dry run" 'is no git repository: without DRYRUN=1' apply DRYRUN=1
[ ! -e dist ]
ok "writes nothing" $?
fails "no git" 'is no git repository; nothing was changed there, this would apply it: git -C .*/plain apply .*dist/memcg-lru-queue-7\.3-for-7\.3\.4\.diff$' apply
[ "$before" = "$(snapshot "$k")" ]
ok "nothing has changed" $?
works "the command that was printed" bash -c "$(sed -n 's/.*this would apply it: //p' "$tmp/err")"
diff -r --exclude=.git "$k" "$tmp/q" >"$tmp/out"
ok "applies the queue" $?
works "no git, all is there" apply
said "says so" '^nothing to do: 0 applied, 4 already there'
git -C "$tmp" init -q big && git -C "$tmp/k" archive --prefix=sub/ main | tar -x -C "$tmp/big"
k=$tmp/big/sub
fails "a directory of another repository" 'this would apply it: git -C .* apply --directory=sub/ ' apply
works "the command for it" bash -c "$(sed -n 's/.*this would apply it: //p' "$tmp/err")"
diff -r "$k" "$tmp/q" --exclude=.git >"$tmp/out"
ok "applies the queue there" $?

# Kinds of repositories and of settings
fresh origin
git -C "$k" worktree add -q --detach "$tmp/linked tree" main
k="$tmp/linked tree"
works "a linked work tree with a detached HEAD" apply
said "it is named" 'it was on detached HEAD at [0-9a-f]{12}$'
same_tree && [ "$(git -C "$tmp/origin" symbolic-ref HEAD)" = refs/heads/main ]
ok "has the queue, and the main one is where it was" $?
git -C "$tmp/k" commit -q --allow-empty -m "another"
k=$tmp/shallow
git clone -q --depth 1 "file://$tmp/k" "$k"
works "a shallow clone" apply
same_tree && [ "$(git -C "$k" rev-list --count HEAD)" = 5 ] && git -C "$k" fsck --no-dangling >"$tmp/out" 2>&1
ok "has the queue" $?
git -C "$tmp/k" reset -q --hard HEAD^

mkdir "$tmp/hooks"
for hook in pre-commit commit-msg post-checkout reference-transaction applypatch-msg; do
	printf '#!/bin/sh\necho hook >&2; exit 1\n' >"$tmp/hooks/$hook"
	chmod +x "$tmp/hooks/$hook"
done
cat >"$tmp/odd.config" <<E
[user]
	name = Odd One
	email = odd@example.org
	signingKey = none
[commit]
	gpgSign = true
[gpg]
	program = /bin/false
[core]
	autocrlf = true
	hooksPath = $tmp/hooks
[format]
	subjectPrefix = ODD
	signOff = true
[diff]
	noprefix = true
	renames = copies
[apply]
	whitespace = error-all
	ignoreWhitespace = change
[branch]
	autoSetupMerge = always
[mailinfo]
	scissors = true
[status]
	showUntrackedFiles = all
E
fresh odd
rm -rf "$k"; git -c core.autocrlf=true clone -q "$tmp/k" "$k"
works "odd settings" env -u GIT_COMMITTER_NAME -u GIT_COMMITTER_EMAIL GIT_CONFIG_GLOBAL="$tmp/odd.config" KERNEL="$k" timeout 60 scripts/apply
[ -z "$(GIT_CONFIG_GLOBAL=$tmp/odd.config git -C "$k" status --porcelain)" ] && grep -q $'^line TEN\r$' "$k/mm/vmscan.c" &&
	[ "$(git -C "$k" rev-parse "HEAD^{tree}")" = "$(git -C "$tmp/q" rev-parse "done^{tree}")" ]
ok "the queue is there, with the line ends that the user wants" $?
[ "$(git -C "$k" log -1 --format='%an %cn %ce %s')" = "Tester Odd One odd@example.org mm: again" ]
ok "the user is the committer, and the message is the patch's" $?

# Interrupted: a git that sends the signal when it gets to the wanted command
mkdir "$tmp/bin"
cat >"$tmp/bin/git" <<W
#!/bin/bash
for a; do [ "\$a" != "\$AT" ] || { kill -\$SIGNAL "\$(cat "$tmp/pid")"; break; }; done
exec $(type -P git) "\$@"
W
chmod +x "$tmp/bin/git"
interrupted() { PATH="$tmp/bin:$PATH" KERNEL=$k AT=$1 SIGNAL=$2 bash -c 'echo $$ >"$0"; exec scripts/apply' "$tmp/pid" >"$tmp/out" 2>"$tmp/err"; }
fresh int
for at in "status INT" "mailinfo INT" "commit-tree TERM" "update-index HUP"; do
	before=$(state)
	# shellcheck disable=SC2086	# two words
	interrupted $at
	[ $? = 130 ] && [ "$before" = "$(state)" ] && [ -z "$(find "$TMPDIR" -mindepth 1)" ]
	ok "interrupted by SIG${at#* } at ${at% *}: all is as it was" $?
done
interrupted checkout INT
[ $? = 0 ] && same_tree
ok "interrupted at the checkout: it is completed" $?

# Point releases, from a made-up archive
if type -P apt-get dpkg-deb >/dev/null && [ -r /usr/share/keyrings/debian-archive-keyring.gpg ]; then
	rm "$tmp/bin/git"
	package=linux-source-7.3
	for v in 1 9; do
		rm -rf "$tmp/deb" "$tmp/$package"
		mkdir -p "$tmp/deb/DEBIAN" "$tmp/deb/usr/src"
		git -C "$tmp/k" archive --prefix=$package/ main | tar -x -C "$tmp"
		[ $v = 1 ] || sed -i 's/^line 41$/line 41 other/' "$tmp/$package/mm/vmscan.c"
		tar -cJf "$tmp/deb/usr/src/$package.tar.xz" -C "$tmp" $package
		printf 'Package: %s\nVersion: 7.3.%s-1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' $package $v >"$tmp/deb/DEBIAN/control"
		dpkg-deb -b "$tmp/deb" "$tmp/7.3.$v-1.deb" >/dev/null
	done
	cat >"$tmp/bin/apt-get" <<-W
		#!/bin/sh
		for a; do case \$a in
		indextargets) echo http://archive.example/debian/ ;;
		$package=*) echo "\$a" >>$tmp/downloads; cp "$tmp/\${a#*=}.deb" ./linux.deb ;;
		esac; done
	W
	cat >"$tmp/bin/apt-cache" <<-W
		#!/bin/sh
		for v in \$OFFER; do echo "$package | \$v | http://archive.example/debian trixie/main amd64 Packages"; done
	W
	chmod +x "$tmp"/bin/*
	export PATH="$tmp/bin:$PATH"
	works "points" env OFFER="7.3.1-1 7.3.1-1" scripts/points 7.3
	[ "$(cat "$tmp/out")" = "ok 7.3.1-1" ]
	ok "each point release once" $?
	! OFFER="7.3.9-1 7.3.1-1 7.3.5-1" scripts/points 7.3 >"$tmp/out" 2>"$tmp/err"
	ok "one that the queue does not fit" $?
	[ "$(sed 's/ @@.*//; s/(apt.*//' "$tmp/out")" = "\
ok 7.3.1-1
not ok 7.3.5-1 # cannot download $package 7.3.5-1 from the package archive 
not ok 7.3.9-1 # 0002-mm-change.patch does not apply: mm/vmscan.c, hunk 2 of 2:" ]
	ok "is named with patch, file and hunk" $?
	[ "$(grep -c 7.3.1-1 "$tmp/downloads")" = 1 ]
	ok "what is in the cache is not fetched again" $?
	printf x >>"$(echo "$XDG_CACHE_HOME"/memcg-lru-queue/*7.3.1-1.tar.xz)"
	works "a spoilt file in the cache is fetched again" env OFFER=7.3.1-1 scripts/points 7.3
else
	count=$((count + 1))
	echo "ok $count - points # SKIP no apt-get with Debian's keyring here"
fi

# The real queues
cd "$here"
for base in 7.3 7.2 6.12; do
	if ! git -C "$real/$base/base" rev-parse -q --verify pristine >/dev/null 2>&1; then
		count=$((count + 1))
		echo "ok $count - the real queue of $base # SKIP $real/$base/base is not there"
		continue
	fi
	(. scripts/lib.sh; queue_files $base) >"$tmp/files"
	rm -rf "$tmp/real" "$tmp/by-hand"
	mkdir "$tmp/real"
	# shellcheck disable=SC2046	# no kernel file has a space
	git -C "$real/$base/base" archive pristine -- Makefile $(git -C "$real/$base/base" ls-tree -r --name-only pristine -- $(cat "$tmp/files")) |
		tar -x -C "$tmp/real"
	git init -q -b main "$tmp/real"
	commit "$tmp/real" "Linux $base"
	# What must come out, in another way
	cp -R "$tmp/real" "$tmp/by-hand"
	(. scripts/lib.sh; series_lines patches/$base/series) | while read -r patch wholes; do
		for file in $wholes; do install -D -m "$(stat -c %a "$file")" "$file" "$tmp/by-hand/$file"; done
		! grep -q '^diff --git' "patches/$base/$patch" || git -C "$tmp/by-hand" apply "$PWD/patches/$base/$patch" || exit
		commit "$tmp/by-hand" "$patch"
	done
	want=$(git -C "$tmp/by-hand" rev-parse 'HEAD^{tree}') total=$(git -C "$tmp/by-hand" rev-list --count main~"$(grep -c '^0' patches/$base/series)"..)

	k=$tmp/real
	works "$base: pristine" apply
	[ "$(git -C "$k" rev-parse 'HEAD^{tree}')" = "$want" ]
	ok "$base: is what it should be" $?
	works "$base: again" apply
	said "$base: all is there" "^nothing to do: 0 applied, $total already there"
	git -C "$k" checkout -q --detach "HEAD~$((total / 2))"
	works "$base: half of it is there" apply
	said "$base: and it is counted" "^$((total / 2)) applied, $((total - total / 2)) already there"
	[ "$(git -C "$k" rev-parse 'HEAD^{tree}')" = "$want" ]
	ok "$base: is the same then" $?
	git -C "$k" checkout -q main
	sed -i 's/lru_gen_online_memcg(struct mem_cgroup \*memcg)/lru_gen_online_memcg(struct mem_cgroup *local)/' "$k/mm/vmscan.c"
	commit "$k" "a local change"
	refused "$base: a conflict" "00.* does not apply: mm/vmscan\.c, hunk [0-9]+ of [0-9]+: @@" apply
	git -C "$k" checkout -q -B main HEAD^
	case $base in
	7.3)	sed -i 's/^PATCHLEVEL.*/PATCHLEVEL = 4/' "$k/Makefile"
		commit "$k" "Linux 7.4"
		refused "7.3 as 7.4" 'nearest is 7\.3; the queue of 7\.3 applies as it is, BASE=7\.3' apply
		git -C "$k" checkout -q -B main HEAD^
		git -C "$k" cherry-pick "memcg-lru-queue~$((total - 1))" >/dev/null
		works "7.3 without the HEAD operation" apply
		said "takes the queue without the prerequisite" "^$((total - 1)) applied, 1 already there" ;;
	6.12)	sed -i 's/^PATCHLEVEL.*/PATCHLEVEL = 18/' "$k/Makefile"
		commit "$k" "Linux 6.18"
		refused "6.12 as 6.18" 'Linux 6\.18\.[0-9]+ is no base .*the nearest is 6\.12; the queue of 6\.12 applies as it is, BASE=6\.12' apply ;;
	esac
done

done_testing
