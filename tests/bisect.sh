#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts/bisect on a tiny kernel, whose makefile knows just what is asked of it.
. "$(dirname "$(readlink -f "$0")")/harness"

new_repo "$tmp/repo"
cd "$tmp/repo"
new_kernel "$tmp/k" 7 3
cat >>"$tmp/k/Makefile" <<'M'
MAKEFLAGS += -r
.DELETE_ON_ERROR:
allnoconfig:
	@mkdir -p $(O)
	@sed -n 's/^config //p' mm/Kconfig | while read s; do grep "^CONFIG_$$s=" $(KCONFIG_ALLCONFIG) || echo "# CONFIG_$$s is not set"; done >$(O)/.config
	@sed -n 's/^\(CONFIG_[A-Z_]*\)=y/#define \1 1/p' $(O)/.config >$(O)/new.h
	@cmp -s $(O)/new.h $(O)/autoconf.h || mv $(O)/new.h $(O)/autoconf.h
objects := $(patsubst %.c,%.o,$(wildcard mm/*.c))
kernel/cgroup/: ; @:
mm/: $(objects) ; @:
$(objects): %.o: $(O)/%.o ; @:
$(addprefix $(O)/,$(objects)): $(O)/%.o: %.c $(O)/autoconf.h
	@mkdir -p $(@D)
	@echo "  CC      $*.o"
	@$(CC) -Wall $(if $(W),-Wextra) -Iinclude -include $(O)/autoconf.h -MMD -MT $@ -c -o $@ $<
bzImage: $(objects)
	@mkdir -p $(O)/arch/x86/boot
	@$(CC) -nostdlib -shared -Wl,-z,defs -o $(O)/arch/x86/boot/bzImage $(addprefix $(O)/,$(objects))
-include $(wildcard $(O)/*/*.d)
M
touch "$tmp/k/Kbuild"
printf 'config MEMCG\nconfig SWAP\n' >"$tmp/k/mm/Kconfig"
cat >"$tmp/k/mm/vmscan.c" <<'C'
#include <linux/a.h>
int old_warning(int unused) { return A; }
#ifdef CONFIG_MEMCG
int memcg(void) { return A; }
#endif
int scan(void);
int scan(void) { return A; }
C
echo 'int other(void) { return 1; }' >"$tmp/k/mm/other.c"
mkdir -p configs
printf 'CONFIG_MEMCG=y\nCONFIG_SWAP=y\n' >configs/base.config
echo base.config >configs/normal.list
printf 'base.config\n-MEMCG\n' >configs/without-memcg.list
echo '# none' >configs/exceptions
export KSRC=$tmp/k

patched=build/7.3/patched
scripts/source 7.3 >/dev/null 2>&1
sed -i 's/^int scan(void) {.*/int scan(void) { return A + 1; }/' $patched/mm/vmscan.c
commit $patched 'mm: good' 'Body.'
sed -i 's/^int scan(void) {.*/int scan(void) { return memcg(); }/' $patched/mm/vmscan.c
commit $patched 'mm: not without MEMCG' 'Body.'
echo x >$patched/MAINTAINERS
commit $patched 'MAINTAINERS: an entry' 'Body.'
sed -i 's/^int scan(void) {.*/int scan(void) { return A; }/' $patched/mm/vmscan.c
commit $patched 'mm: repaired' 'Body.'
sed -i 's/^int scan(void) {.*/int scan(void) { int unused; return A; }/' $patched/mm/vmscan.c
commit $patched 'mm: warns' 'Body.'
sed -i 's/return A; }$/return A + 0; }/' $patched/mm/vmscan.c
commit $patched 'mm: changes lines that warned' 'Body.'
echo 'static inline int in_header(int unused_too) { return 1; }' >>$patched/include/linux/a.h
commit $patched 'mm: a header that W=1 warns of' 'Body.'
works "the queue is written out" scripts/refresh 7.3
git -C $patched tag before

! run scripts/bisect 7.3 normal without-memcg
ok "a queue that does not compile everywhere fails" $?
says() { grep -qxE -- "$2" "$tmp/out"; ok "$1" $?; }
says "what compiles is ok, with the number of objects" 'ok 0001-mm-good normal \(1 objects\)'
says "also in the other configuration" 'ok 0001-mm-good without-memcg \(1 objects\)'
says "an error is in one configuration only" 'ok 0002-mm-not-without-MEMCG normal \(1 objects\)'
says "where it is named, with file and line" 'not ok 0002-mm-not-without-MEMCG without-memcg # mm/vmscan\.c:7:.*memcg.*'
says "a patch without code" 'ok 0003-MAINTAINERS-an-entry nothing to compile'
says "the patch that repairs it is ok" 'ok 0004-mm-repaired without-memcg \(1 objects\)'
says "a new warning fails" 'not ok 0005-mm-warns normal # mm/vmscan\.c:7:.*unused variable.*'
says "one that was there is not blamed on the next patch" 'ok 0006-mm-changes-lines-that-warned normal .*'
says "a warning of W=1 counts, and one from a header" 'not ok 0007-mm-a-header-that-W-1-warns-of normal # include/linux/a\.h:2:.*unused parameter.*unused_too.*'
says "the whole queue links" 'ok the whole queue links as normal'
says "the count is the last line" '[0-9]+ passed, 5 failed'
[ "$(git -C $patched rev-parse HEAD)" = "$(git -C $patched rev-parse before)" ] && [ -z "$(git -C $patched status --porcelain)" ]
ok "the patched tree is left alone" $?
cp "$tmp/out" "$tmp/first"
! run scripts/bisect 7.3 normal without-memcg && cmp -s "$tmp/first" "$tmp/out"
ok "a second run, from what is built, says the same" $?
fails "an unknown configuration" "unknown config 'nomral' \(known: normal without-memcg\)" scripts/bisect 7.3 nomral
echo 'CONFIG_NO_SUCH=y' >>configs/base.config
! run scripts/bisect 7.3 normal
grep -q 'did not stick on 7.3 patched: CONFIG_NO_SUCH=y' "$tmp/err"
ok "a configuration that is not what it says is no result" $?
sed -i '$d' configs/base.config

# A queue that is all right
git -C $patched reset -q --hard pristine
sed -i 's/^int scan(void) {.*/int scan(void) { return A + 1; }/' $patched/mm/vmscan.c
commit $patched 'mm: good' 'Body.'
DISCARD=1 scripts/refresh 7.3 >/dev/null 2>&1
works "a good queue passes" scripts/bisect 7.3 normal without-memcg
says "with its count" '3 passed, 0 failed'
# Compiles, but what it calls is nowhere
sed -i 's/^int scan(void) {.*/int nowhere(void); int scan(void) { return nowhere(); }/' $patched/mm/vmscan.c
git -C $patched commit -qam 'mm: calls nothing' -m 'Body.'
scripts/refresh 7.3 >/dev/null 2>&1
! run scripts/bisect 7.3 normal
ok "one that does not link fails" $?
says "and says what is missing" 'not ok the whole queue links as normal # .*undefined reference.*nowhere.*'

done_testing
