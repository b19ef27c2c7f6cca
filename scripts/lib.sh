# SPDX-License-Identifier: GPL-2.0
# Shared by the programs in scripts/: where things live, how they talk, what is
# known about a base.  Sourced, never run.

set -euo pipefail

top=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
BUILD=$(realpath -m "${BUILD:-$top/build}")
DIST=$top/dist
CACHE=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/memcg-lru-queue
PRIMARY=7.3		# whole files in the repository are this base's

# The programs start kernel makes of their own: variables and the jobserver of
# the make that called us are not meant for those.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL CDPATH
# Results must not depend on the user's git settings (diff prefixes, signing,
# hooks, attributes) or on a git command that happens to be our caller.
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_PREFIX
unset GIT_EXTERNAL_DIFF GIT_DIFF_OPTS GIT_NOTES_REF GIT_PAGER PAGER GIT_COMMON_DIR LANGUAGE
# A tree there that has lost its .git must not be taken for the repository around it.
export GIT_CEILING_DIRECTORIES=$BUILD
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$top/scripts/gitconfig
export LC_ALL=C.UTF-8 TZ=UTC
# The kernel's Python programs are run in the source trees, which stay as they are.
export PYTHONDONTWRITEBYTECODE=1

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# A full disk is reported as such, whoever hit it.  What the commands said is
# kept in variables, not in files: those would not fit either.
died_of() {	# OUTPUT WHAT
	case ${1,,} in *'no space left'* | *'out of diskspace'* | *'disk quota'*) die "disk full while $2" ;; esac
	die "$2 failed: $(grep -v '^[[:space:]]*$' <<<"$1" | tail -n 1)"
}

# need_space DIR KIB: refuses early rather than fill the disk.
need_space() {
	local free
	free=$(df -Pk "$1" | awk 'END { print $4 }')
	[ "$free" -ge "$2" ] ||
		die "not enough space in $1: $(($2 / 1024)) MiB needed, $((free / 1024)) MiB free"
}

# Progress goes to stderr; stdout is for results.
say() { printf '[%4ds] %s: %s\n' "$SECONDS" "${0##*/}" "$*" >&2; }

known_bases() {
	local f
	for f in "$top"/bases/*.conf; do
		f=${f##*/}
		printf '%s\n' "${f%.conf}"
	done | sort -rV
}

# load_base BASE: sets SERIES (the base's name) and all that its file says.
load_base() {
	case "${1:-}" in
	'' | *[!0-9.]*) : ;;
	*)	if [ -r "$top/bases/$1.conf" ]; then
			SERIES=$1
			. "$top/bases/$1.conf"
			return
		fi ;;
	esac
	die "unknown base '${1:-}'; known: $(known_bases | paste -sd' ')"
}

has_queue() { [ -e "$top/patches/$1/series" ]; }

need_queue() {
	has_queue "$1" || die "base $1 has no queue yet (patches/$1/series does not exist)"
}

# lock BASE: one program at a time works on build/BASE; released on exit.
lock() {
	mkdir -p "$BUILD/$1" || die "cannot create $BUILD/$1"
	exec 9>"$BUILD/$1/lock"
	flock -n 9 && return
	say "waiting for another run on base $1"
	flock -w 3600 9 || die "another run has held $BUILD/$1/lock for an hour"
}

# A composed tree is described by its commits and their notes; compose and
# refresh write this down, so that work done since then can be told.
queue_state() {
	git -C "$BUILD/$1/patched" rev-parse HEAD
	git -C "$BUILD/$1/patched" log --notes --format='%H%n%N' pristine..HEAD
}

record_state() {
	queue_inputs "$1" >"$BUILD/$1/composed-of"
	queue_state "$1" | sha256sum >"$BUILD/$1/composed.new"
	mv "$BUILD/$1/composed.new" "$BUILD/$1/composed"
}

# queue_inputs BASE: what a tree is composed of, a line `checksum  file` each.
queue_inputs() {
	(cd "$top" && {
		echo "patches/$1/series"
		series_lines "patches/$1/series" | while read -r patch wholes; do
			# shellcheck disable=SC2086	# they are words
			printf '%s\n' "patches/$1/$patch" $wholes
		done
	} | xargs sha256sum)
}

# edited_input BASE: a file that was changed in the repository since the tree was
# composed of it, or nothing.
edited_input() {
	[ -e "$BUILD/$1/composed-of" ] && has_queue "$1" || return 0
	{ diff <(queue_inputs "$1" 2>/dev/null) "$BUILD/$1/composed-of" || :; } | sed -n 's/^[<>] [0-9a-f]*  //p' | sed -n 1p
}

# unsaved_work BASE: says what in build/BASE/patched is in no patch yet; prints
# nothing when there is nothing to lose.
unsaved_work() {
	local tree=$BUILD/$1/patched
	[ -e "$tree" ] || return 0
	if ! git -C "$tree" rev-parse -q --verify pristine >/dev/null 2>&1; then
		echo "it is no git work tree of $BUILD/$1/base"
	elif [ -n "$(git -C "$tree" status --porcelain | head -n 1)" ]; then
		echo "it has uncommitted changes or untracked files"
	elif [ -e "$BUILD/$1/composed" ]; then
		[ "$(queue_state "$1" | sha256sum)" = "$(cat "$BUILD/$1/composed")" ] ||
			echo "its commits or notes are not those composed last"
	elif [ "$(git -C "$tree" rev-parse HEAD)" != "$(git -C "$tree" rev-parse pristine)" ]; then
		echo "it has commits that were never composed"
	fi
}

# series_lines FILE: the patch lines of a series, comments and blanks removed.
series_lines() { grep -aEv '^[[:space:]]*(#|$)' "$1" || [ $? = 1 ]; }

# queue_files BASE: every file that the queue of a base changes or adds.
queue_files() {
	series_lines "$top/patches/$1/series" | while read -r patch wholes; do
		# shellcheck disable=SC2086	# they are words
		[ -z "$wholes" ] || printf '%s\n' $wholes
		sed -n 's|^diff --git a/\(.*\) b/\1$|\1|p' "$top/patches/$1/$patch"
	done | sort -u
}
