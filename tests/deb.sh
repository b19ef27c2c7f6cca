#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of scripts/deb: arguments, and what becomes of a configuration. Builds nothing; tests/deb-boot does.
set -uo pipefail
top=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset KCONFIG LOCALMODCONFIG LSMOD PKG
n=0 failed=0
result() {	# STATUS NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"
	else echo "not ok $n - $2"; sed 's/^/# /' "$tmp/out" "$tmp/err"; failed=1; fi
}
deb() { timeout 600 "$top/scripts/deb" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; }
refuses() {	# NAME REGEX [VARIABLE=value...] ARGUMENT...: one line of error
	local name=$1 regex=$2
	shift 2
	! timeout 600 env "${@:1:$#-1}" "$top/scripts/deb" ${!#} >"$tmp/out" 2>"$tmp/err" </dev/null &&
		[ "$(grep -vc '^\[' "$tmp/err")" = 1 ] && grep -qE "^error: .*$regex" "$tmp/err"
	result $? "$name"
}
refuses "unknown base" "unknown base '9\.9'" "9.9"
refuses "unknown variant" "unknown variant 'ptached' \(known: base patched\)" "7.3 ptached"
refuses "unknown package format" "unknown package format PKG=snap" PKG=snap "7.3"
refuses "unknown config" "unknown config 'nrmal'" "-c 7.3 base nrmal"
refuses "a file that does not exist" "KCONFIG=.*none does not exist" KCONFIG="$tmp/none" "7.3"
echo hello >"$tmp/text"
refuses "a file that is no configuration" "is no kernel configuration" KCONFIG="$tmp/text" "7.3"
refuses "two configurations" "one of them" KCONFIG="$tmp/text" "7.3 patched normal"
refuses "a list of modules that does not exist" "LSMOD=.*none does not exist" CONFIG_= KCONFIG="$top/configs/base.config" LOCALMODCONFIG=1 LSMOD="$tmp/none" "7.3"
if type -P rpmbuild >/dev/null; then
	n=$((n + 1)); echo "ok $n - RPM without rpmbuild # SKIP rpmbuild is installed"
else
	refuses "RPM without rpmbuild" "PKG=rpm needs rpmbuild" PKG=rpm "7.3"
fi

# What a distribution's configuration has: keys in its own source package, many modules, no multi-gen LRU. Gzipped.
{
	cat "$top/configs/base.config"
	cat <<-'C'
	# CONFIG_LRU_GEN is not set
	CONFIG_LOCALVERSION="-distro"
	CONFIG_LOCALVERSION_AUTO=y
	CONFIG_MODULES=y
	CONFIG_MODULE_SIG=y
	CONFIG_MODULE_SIG_KEY="debian/certs/signing.pem"
	CONFIG_SYSTEM_TRUSTED_KEYRING=y
	CONFIG_SYSTEM_TRUSTED_KEYS="debian/certs/debian-uefi-certs.pem"
	CONFIG_SYSTEM_BLACKLIST_KEYRING=y
	CONFIG_SYSTEM_REVOCATION_LIST=y
	CONFIG_SYSTEM_REVOCATION_KEYS="debian/canonical-revoked-certs.pem"
	CONFIG_CRYPTO=y
	CONFIG_KEYS=y
	CONFIG_ASYMMETRIC_KEY_TYPE=y
	CONFIG_ASYMMETRIC_PUBLIC_KEY_SUBTYPE=y
	CONFIG_X509_CERTIFICATE_PARSER=y
	CONFIG_PKCS7_MESSAGE_PARSER=y
	CONFIG_OVERLAY_FS=m
	CONFIG_ZRAM=m
	C
} | grep -v '^CONFIG_LRU_GEN\|^CONFIG_\(OVERLAY_FS\|ZRAM\)=y' | gzip >"$tmp/distro.gz"
KCONFIG=$tmp/distro.gz deb -c 7.3 base
result $? "a distribution's configuration is taken"
config=$(cat "$tmp/out")
has() { grep -qxF -- "$2" "$config"; result $? "$1"; }
says() { grep -qF -- "$2" "$tmp/err"; result $? "$1"; }
has "the keys that are not here are taken out" 'CONFIG_SYSTEM_TRUSTED_KEYS=""'
says "which is said" 'CONFIG_SYSTEM_TRUSTED_KEYS names debian/certs/debian-uefi-certs.pem, which is not here'
has "also those to be revoked" 'CONFIG_SYSTEM_REVOCATION_KEYS=""'
has "modules are signed with a key made for it" 'CONFIG_MODULE_SIG_KEY="certs/signing_key.pem"'
has "the multi-gen LRU is switched on" 'CONFIG_LRU_GEN_ENABLED=y'
says "which is said, too" 'warning: the configuration has the multi-gen LRU not built, or off'
has "the kernel has a name of its own" 'CONFIG_LOCALVERSION="-memcg-lru-base"'
has "and no commit in it" '# CONFIG_LOCALVERSION_AUTO is not set'
has "what was a module is one" 'CONFIG_ZRAM=m'

printf 'Module                  Size  Used by\nzram 1 0\n' >"$tmp/lsmod"
KCONFIG=$tmp/distro.gz LOCALMODCONFIG=1 LSMOD=$tmp/lsmod deb -c 7.3 base
result $? "LOCALMODCONFIG=1"
has "a module that is loaded stays" 'CONFIG_ZRAM=m'
has "one that is not loaded goes" '# CONFIG_OVERLAY_FS is not set'

zcat "$tmp/distro.gz" | grep -v MEMCG | sed 's/^CONFIG_EXPERT=y/&\n# CONFIG_MEMCG is not set/' >"$tmp/no-memcg"
KCONFIG=$tmp/no-memcg deb -c 7.3 base
result $? "a configuration without memory cgroups"
says "is warned of" 'warning: the configuration has no CONFIG_MEMCG'

echo "1..$n"
exit $failed
