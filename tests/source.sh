#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts/source: no network is used.
. "$(dirname "$(readlink -f "$0")")/harness"

new_repo "$tmp/repo"
cd "$tmp/repo"
new_kernel "$tmp/k73" 7 3
left() { find build -mindepth 2 ! -name lock 2>/dev/null | head; }
nothing_left() { [ -z "$(left)" ]; ok "$1" $?; }

fails "unknown base" "unknown base '5\.0'; known: 7\.3 7\.2 6\.12" scripts/source 5.0
fails "a base that is a path" "unknown base" scripts/source ../7.3
fails "KSRC that does not exist" "KSRC=/nowhere does not exist" env KSRC=/nowhere scripts/source 7.3
fails "a tree of another version" "is a 7\.3 kernel, not 7\.2" env KSRC="$tmp/k73" scripts/source 7.2
nothing_left "nothing left behind by a wrong version"

touch "$tmp/k73/.config"
fails "a tree that was built in" "mrproper" env KSRC="$tmp/k73" scripts/source 7.3
rm "$tmp/k73/.config"

# Tarballs
tar -cJf "$tmp/k.tar.xz" -C "$tmp" k73
head -c 300 "$tmp/k.tar.xz" >"$tmp/cut.tar.xz"
fails "a truncated tarball" "unpacking .*cut.tar.xz failed" env KSRC="$tmp/cut.tar.xz" scripts/source 7.3
nothing_left "nothing left behind by a truncated tarball"
works "a tarball" env KSRC="$tmp/k.tar.xz" scripts/source 7.3
[ "$(git -C build/7.3/base log -1 --format=%s pristine)" = "Linux 7.3.4, pristine" ] &&
	[ -x build/7.3/base/scripts/tool ] && [ -f build/7.3/patched/mm/vmscan.c ]
ok "the tree is a git tree with its tag and its modes" $?
before=$(snapshot build/7.3/base)
works "the same again" env KSRC="$tmp/k.tar.xz" scripts/source 7.3
[ "$before" = "$(snapshot build/7.3/base)" ]
ok "changes nothing" $?
touch build/7.3/patched/mm/new.c
[ -n "$(git -C build/7.3/patched status --porcelain)" ]
ok "new files are not hidden by the .gitignore of the source" $?

# Another source than the one unpacked
fails "another source while there is unsaved work" "would be lost.*make refresh.*DISCARD=1" env KSRC="$tmp/k73" scripts/source 7.3
rm build/7.3/patched/mm/new.c
before=$(snapshot "$tmp/k73")
works "another source, a tree" env KSRC="$tmp/k73" scripts/source 7.3
grep -q 'copy of .*k73, not the verified package' "$tmp/err"
ok "says that it is not the verified package" $?
[ "$before" = "$(snapshot "$tmp/k73")" ]
ok "the user's tree is not touched" $?
first=$(git -C build/7.3/base rev-parse pristine)
works "the same tree again" env KSRC="$tmp/k73" scripts/source 7.3
[ ! -s "$tmp/err" ] || ! grep -q anew "$tmp/err"
ok "is taken as it is" $?
cp -a "$tmp/k73" "$tmp/k73.kept"
echo "/* changed */" >>"$tmp/k73/mm/vmscan.c"
works "the same tree, changed since" env KSRC="$tmp/k73" scripts/source 7.3
grep -q 'k73 before .*k73/mm/vmscan.c changed; making it anew' "$tmp/err" && grep -q '/\* changed' build/7.3/base/mm/vmscan.c
ok "is copied anew, and says why" $?
rm -rf "$tmp/k73"
mv "$tmp/k73.kept" "$tmp/k73"
fails "a tree below build/" "KSRC=build/7.3/base is in .*build, which is made anew" env KSRC=build/7.3/base scripts/source 7.3
rm -rf build
tar -cf "$tmp/flat.tar" -C "$tmp/k73" .
works "a plain tarball" env KSRC="$tmp/flat.tar" scripts/source 7.3
[ "$first" = "$(git -C build/7.3/base rev-parse pristine)" ]
ok "the same source has the same commit id" $?

# Runs at the same time
rm -rf build
KSRC=$tmp/k73 scripts/source 7.3 2>/dev/null & a=$!
KSRC=$tmp/k73 scripts/source 7.3 2>/dev/null & b=$!
wait $a; ra=$?; wait $b; rb=$?
[ $ra = 0 ] && [ $rb = 0 ] && git -C build/7.3/base rev-parse -q --verify pristine >/dev/null
ok "two runs at the same time" $?

# A tarball in the cache, and what was killed half-way
rm -rf build
. bases/7.3.conf
mkdir -p "$XDG_CACHE_HOME/memcg-lru-queue" build/7.3/.new.killed/src
cp "$tmp/k.tar.xz" "$XDG_CACHE_HOME/memcg-lru-queue/${PACKAGE}_$VERSION.tar.xz"
sum=$(sha256sum <"$tmp/k.tar.xz")
sed -i "s/^SHA256=.*/SHA256=${sum%% *}/" bases/7.3.conf
works "a cached tarball needs no network" scripts/source 7.3
[ ! -e build/7.3/.new.killed ]
ok "the leftovers of a killed run are removed" $?

# The archive.  The real apt-get is called, with a proxy that is not there.
rm -rf build "$XDG_CACHE_HOME"
mkdir "$tmp/bin"
real=$(type -P apt-get || :)
if [ -n "$real" ] && [ -r /usr/share/keyrings/debian-archive-keyring.gpg ]; then
	cat >"$tmp/bin/apt-get" <<-W
		#!/bin/sh
		exec $real -o Acquire::http::Proxy=http://127.0.0.1:9/ -o Acquire::https::Proxy=http://127.0.0.1:9/ -o Acquire::Retries=0 "\$@"
	W
	chmod +x "$tmp/bin/apt-get"
	fails "no network" "cannot be reached.*apt.log.*KSRC=" env PATH="$tmp/bin:$PATH" timeout 60 scripts/source 7.3
	nothing_left "nothing left behind without network"

	# A made-up archive: what apt-get and apt-cache would have done
	mkdir -p "$tmp/deb/DEBIAN" "$tmp/deb/usr/src"
	cp "$tmp/k.tar.xz" "$tmp/deb/usr/src/$PACKAGE.tar.xz"
	printf 'Package: %s\nVersion: 7.3.9-1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' "$PACKAGE" >"$tmp/deb/DEBIAN/control"
	dpkg-deb -b "$tmp/deb" "$tmp/source.deb" >/dev/null
	cat >"$tmp/bin/apt-get" <<-W
		#!/bin/sh
		for a; do case \$a in
		indextargets) echo http://archive.example/debian/ ;;
		download) cp $tmp/source.deb ./linux.deb ;;
		esac; done
	W
	cat >"$tmp/bin/apt-cache" <<-W
		#!/bin/sh
		echo "$PACKAGE | \$OFFER | http://archive.example/debian trixie/main Sources"
		echo "$PACKAGE | 7.3.1-1 | http://archive.example/debian trixie/main Sources"
	W
	chmod +x "$tmp"/bin/*
	export PATH="$tmp/bin:$PATH"
	sed -i "s/^SHA256=.*/SHA256=0000/" bases/7.3.conf
	fails "wrong checksum" "wrong checksum: .*${sum%% *}.*nothing was kept" env OFFER="$VERSION" scripts/source 7.3
	nothing_left "nothing left behind by a wrong checksum"
	[ -z "$(find "$XDG_CACHE_HOME" -name '*.tar.xz' -o -name '.fetch*')" ]
	ok "a tarball with a wrong checksum is not kept in the cache" $?
	works "a pinned version that is gone: the newest is taken" env OFFER=7.3.9-1 scripts/source 7.3
	grep -q "is gone from the archive: this is 7.3.9-1.*bases/7.3.conf: VERSION=7.3.9-1 SHA256=${sum%% *}" "$tmp/err"
	ok "and it is said, with the line for bases/7.3.conf" $?
	works "again" scripts/source 7.3
	grep -q "is gone from the archive: this is 7.3.9-1" "$tmp/err"
	ok "and said again" $?
else
	for name in "no network" "wrong checksum" "a pinned version that is gone"; do
		count=$((count + 1))
		echo "ok $count - $name # SKIP no apt-get with Debian's keyring here"
	done
fi

# A full disk
if [ "$(id -u)" = 0 ] && mkdir "$tmp/small" && mount -t tmpfs -o size=2m tmpfs "$tmp/small" 2>/dev/null; then
	trap 'umount "$tmp/small"; rm -rf "$tmp"' EXIT
	head -c 4000000 /dev/zero >"$tmp/k73/big"
	fails "too little space is seen beforehand" "not enough space in .*MiB needed" env BUILD="$tmp/small/b" KSRC="$tmp/k73" scripts/source 7.3
	tar -cJf "$tmp/big.tar.xz" -C "$tmp" k73
	fails "a disk that fills up" "disk full while unpacking" env BUILD="$tmp/small/b" KSRC="$tmp/big.tar.xz" scripts/source 7.3
	[ -z "$(find "$tmp/small" -mindepth 3 ! -name lock)" ]
	ok "nothing left behind on a full disk" $?
else
	count=$((count + 1))
	echo "ok $count - a full disk # SKIP only root can mount a small file system"
fi

done_testing
