// SPDX-License-Identifier: GPL-2.0
/*
 * Memory cgroups' statistics when memcgs go away, and what workingset detection
 * makes of them.
 *
 * The page cache and the slab objects of a memcg that was removed are passed on
 * to its parent, and so have to be the counters; they can't be wrong for long
 * without being seen in the parent's memory.stat or in the number of shadow nodes
 * that reclaim lets a memcg keep. The tests compare counters with what they know
 * of their own pages, and watch a memcg change its working set, which takes its
 * shadow nodes.
 *
 * All page cache is clean and comes from a zram device that was never written, or
 * from a sparse file in the current directory, so no swap and no I/O is needed.
 *
 * Needs root and cgroup v2 with the memory controller. Some cases move it to a
 * hierarchy of cgroup v1, for which no memcg but the root may be there, and run
 * only when asked for, as the first users of memcgs since boot: kernel memory that
 * was charged on cgroup v2 and is freed after the move comes off a counter of the
 * root, memory.kmem, that it never was on, and the kernel warns of that. That is
 * why they come first here. Optional settings, from the environment:
 *
 *   MEMCG_STAT_V1       1 to run the cases with cgroup v1
 *   MEMCG_STAT_NR       memcgs that are made and removed (default 400)
 *   MEMCG_STAT_MAX      memory.max of the memcg that changes its working set, in
 *                       pages (default 131072). Much less and there are not enough
 *                       shadow nodes for a shrinker to bother
 *   MEMCG_STAT_TIMEOUT  bound of each single wait, in seconds (default 120)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "cgroup_util.h"
#include "memcg_test_util.h"

#define LRU_GEN_ENABLED	"/sys/kernel/mm/lru_gen/enabled"

/* Harness limit of one test: a backstop, the waits inside are bounded one by one */
#define TEST_LIMIT	400

/* Pages of page cache in each memcg that is removed */
#define NR_PAGES	16

/* Those who make, fill and remove memcgs at the same time */
#define NR_WRITERS	4

/*
 * Pages that a CPU may hold back of a counter or have charged ahead:
 * MEMCG_CHARGE_BATCH of the kernel.
 */
#define BATCH		64

static long nr_cpus;
static long nr_memcgs;
static long max_pages;
static bool asked_for_v1;

static void __attribute__((constructor)) read_settings(void)
{
	page_size = sysconf(_SC_PAGESIZE);
	nr_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	nr_memcgs = env_long("MEMCG_STAT_NR", 400);
	max_pages = env_long("MEMCG_STAT_MAX", 131072);
	asked_for_v1 = getenv("MEMCG_STAT_V1") && !strcmp(getenv("MEMCG_STAT_V1"), "1");
	timeout = env_long("MEMCG_STAT_TIMEOUT", 120);
}

struct env {
	char root[PATH_MAX];		/* mount point of cgroup v2 */
	char top[PATH_MAX];		/* parent of all memcgs made here */
	char v1[PATH_MAX];		/* mount point of cgroup v1, or empty */
	char lru_gen[32];		/* to be restored, if not empty */
	bool delegated;			/* memory was not enabled below the root */
	int zram;
	int fd;				/* what the page cache comes from */
};

/* memcgs in the system, dying ones included */
static long nr_cgroups(void)
{
	char line[256];
	long nr = -1;
	FILE *f = fopen("/proc/cgroups", "re");

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "memory %*d %ld", &nr) == 1)
			break;
	fclose(f);
	return nr;
}

static bool clean_up(struct env *env)
{
	bool ok = true;

	if (!end_trace())
		ok = false;
	if (env->top[0] && !access(env->top, F_OK) && !remove_tree(env->top))
		ok = false;
	if (env->delegated &&
	    write_str(env->root, "cgroup.subtree_control", "-memory"))
		ok = false;
	if (env->v1[0]) {
		/* A hierarchy that is left while memcgs are dying in it stays for good */
		if (!wait_until(nr_cgroups() <= 1) ||
		    !wait_until(!umount(env->v1) || errno != EBUSY) || rmdir(env->v1) ||
		    !wait_until(!cg_read_strstr(env->root, "cgroup.controllers", "memory")))
			ok = false;
	}
	if (env->fd > 0)
		close(env->fd);
	if (env->zram >= 0 && !zram_remove(env->zram))
		ok = false;
	if (env->lru_gen[0] &&
	    write_str("/", LRU_GEN_ENABLED, env->lru_gen))
		ok = false;
	return ok;
}

/* NULL, or why the tests can't run */
static const char *set_up(struct env *env, long pages)
{
	char buf[1024];

	env->zram = -1;
	if (geteuid())
		return "needs root";
	if (cg_find_unified_root(env->root, sizeof(env->root), NULL))
		return "cgroup v2 is not mounted";
	if (cg_read_strstr(env->root, "cgroup.controllers", "memory"))
		return "no memory controller on cgroup v2";

	env->zram = zram_add();
	env->fd = env->zram >= 0 ? open_zram(env->zram, (off_t)pages * page_size) :
				   open_sparse((off_t)pages * page_size);
	if (env->fd < 0)
		return "neither zram nor a disk file system in the current directory";
	/* No read-ahead: what is read is what is charged */
	posix_fadvise(env->fd, 0, 0, POSIX_FADV_RANDOM);

	if (!access(LRU_GEN_ENABLED, F_OK)) {
		if (read_text(LRU_GEN_ENABLED, buf, sizeof(buf)) <= 0)
			return LRU_GEN_ENABLED " can't be read";
		snprintf(env->lru_gen, sizeof(env->lru_gen), "%.16s", buf);
	}
	return NULL;
}

static const char *set_up_v2(struct env *env)
{
	if (cg_read_strstr(env->root, "cgroup.subtree_control", "memory")) {
		if (write_str(env->root, "cgroup.subtree_control", "+memory"))
			return "memory can't be enabled below the root";
		env->delegated = true;
	}
	path_fmt(env->top, sizeof(env->top), "%s/memcg_stat_test.%d",
		 env->root, getpid());
	if (mkdir(env->top, 0755)) {
		env->top[0] = '\0';
		return "can't make a cgroup";
	}
	if (write_str(env->top, "cgroup.subtree_control", "+memory"))
		return "memory can't be enabled below the parent of the tests";
	return NULL;
}

static const char *set_up_v1(struct env *env)
{
	char dir[] = "/dev/shm/memcg_stat_test.XXXXXX";

	if (!asked_for_v1)
		return "cases with cgroup v1 are run with MEMCG_STAT_V1=1 only";
	if (!cg_read_strstr(env->root, "cgroup.subtree_control", "memory"))
		return "memory is in use on cgroup v2";
	if (!mkdtemp(dir))
		return "no directory to mount cgroup v1 on";
	if (mount("memcg_stat_test", dir, "cgroup", 0, "memory")) {
		rmdir(dir);
		return errno == EBUSY ? "memory can't leave cgroup v2: memcgs are there" :
			"kernel without CONFIG_MEMCG_V1";
	}
	path_fmt(env->v1, sizeof(env->v1), "%s", dir);
	path_fmt(env->top, sizeof(env->top), "%s/top", dir);
	if (mkdir(env->top, 0755)) {
		env->top[0] = '\0';
		return "can't make a memcg on cgroup v1";
	}
	return NULL;
}

static const char *choose_lru(struct env *env, const char *lru_gen)
{
	if (!env->lru_gen[0])
		return *lru_gen == 'y' ? "kernel without CONFIG_LRU_GEN" : NULL;
	return write_str("/", LRU_GEN_ENABLED, lru_gen) ? "the LRU can't be chosen" : NULL;
}

/* What memory.stat says of @key, a whole word, or -1 */
static long long stat_value(const char *cg, const char *key)
{
	char line[256], word[64];
	long long value, found = -1;
	char path[PATH_MAX];
	FILE *f;

	path_fmt(path, sizeof(path), "%s/memory.stat", cg);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %lld", word, &value) == 2 && !strcmp(word, key))
			found = value;
	}
	fclose(f);
	return found;
}

static long stat_pages(const char *cg, const char *key)
{
	long long bytes = stat_value(cg, key);

	return bytes < 0 ? -1 : bytes / page_size;
}

/* Page cache on the LRU lists */
static long lru_pages(const char *cg)
{
	return stat_pages(cg, "inactive_file") + stat_pages(cg, "active_file");
}

static bool close_to(long seen, long want, long slack)
{
	return seen >= want - slack && seen <= want + slack;
}

/* Reads as fill() does; cgroup.procs exists on both hierarchies */
static bool fill_in(const char *cg, int fd, long first, long nr)
{
	struct slice s = { .fd = fd, .first = first, .nr = nr };
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (write_str(cg, "cgroup.procs", "0"))
			_exit(EXIT_FAILURE);
		_exit(read_slice(cg, &s));
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid &&
	       WIFEXITED(status) && !WEXITSTATUS(status);
}

/* --- a controller that moves ------------------------------------------------ */

FIXTURE(rebind)
{
	struct env env;
};

FIXTURE_SETUP(rebind)
{
	const char *why = set_up(&self->env, NR_WRITERS * NR_PAGES);

	if (!why)
		why = set_up_v1(&self->env);
	if (why) {
		EXPECT_TRUE(clean_up(&self->env));
		SKIP(return, "%s", why);
	}
}

FIXTURE_TEARDOWN_PARENT(rebind)
{
	self->env.fd = -1;
	EXPECT_TRUE(clean_up(&self->env))
		TH_LOG("something was left behind below %s", self->env.v1);
}

/* Page cache and anonymous memory of the root, charged and freed all the time */
static void charge(struct env *env, int i, unsigned long *rounds)
{
	char *map;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (true) {
		struct slice s = { .fd = env->fd, .first = i * NR_PAGES, .nr = NR_PAGES };

		if (read_slice(env->root, &s))
			_exit(EXIT_FAILURE);
		posix_fadvise(env->fd, s.first * page_size, s.nr * page_size, POSIX_FADV_DONTNEED);
		map = mmap(NULL, NR_PAGES * page_size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (map == MAP_FAILED)
			_exit(EXIT_FAILURE);
		munmap(map, NR_PAGES * page_size);
		__atomic_add_fetch(rounds, 1, __ATOMIC_RELAXED);
	}
}

/*
 * The memory controller goes to cgroup v2 and back while others charge. What the
 * kernel has to say to that is on the console; what is charged to a memcg on
 * either hierarchy afterwards is counted there, and comes off again.
 */
TEST_F_TIMEOUT(rebind, counters_stay_balanced, TEST_LIMIT)
{
	enum { ROUNDS = 20 };
	const long slack = BATCH * nr_cpus;
	struct env *env = &self->env;
	unsigned long *rounds, seen;
	pid_t pids[NR_WRITERS];
	int i, status;
	long now_has;

	rounds = mmap(NULL, page_size, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, rounds);
	ASSERT_EQ(0, remove_memcg(env->top));
	for (i = 0; i < NR_WRITERS; i++) {
		pids[i] = fork();
		ASSERT_LE(0, pids[i]);
		if (!pids[i])
			charge(env, i, rounds);
	}
	for (i = 0; i < ROUNDS; i++) {
		seen = __atomic_load_n(rounds, __ATOMIC_RELAXED);
		ASSERT_TRUE(wait_until(!umount(env->v1) || errno != EBUSY));
		EXPECT_TRUE(wait_until(__atomic_load_n(rounds, __ATOMIC_RELAXED) > seen));
		/* The old hierarchy is taken down behind umount()'s back */
		ASSERT_TRUE(wait_until(!mount("memcg_stat_test", env->v1, "cgroup", 0, "memory")))
			TH_LOG("mount: %s", strerror(errno));
		seen = __atomic_load_n(rounds, __ATOMIC_RELAXED);
		EXPECT_TRUE(wait_until(__atomic_load_n(rounds, __ATOMIC_RELAXED) > seen));
	}
	for (i = 0; i < NR_WRITERS; i++) {
		EXPECT_EQ(0, waitpid(pids[i], &status, WNOHANG));
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
	}
	munmap(rounds, page_size);

	posix_fadvise(env->fd, 0, 0, POSIX_FADV_DONTNEED);
	ASSERT_EQ(0, mkdir(env->top, 0755));
	ASSERT_TRUE(fill_in(env->top, env->fd, 0, NR_WRITERS * NR_PAGES));
	EXPECT_TRUE(wait_until(close_to(now_has = stat_pages(env->top, "total_cache"),
					NR_WRITERS * NR_PAGES, slack)))
		TH_LOG("total_cache has %ld pages", now_has);
	posix_fadvise(env->fd, 0, 0, POSIX_FADV_DONTNEED);
	EXPECT_TRUE(wait_until(close_to(now_has = stat_pages(env->top, "total_cache"), 0, slack)))
		TH_LOG("total_cache has %ld pages", now_has);
}

/* --- memcgs that go away ---------------------------------------------------- */

FIXTURE(removed)
{
	struct env env;
};

FIXTURE_VARIANT(removed)
{
	bool v1;
	const char *lru_gen;
};

FIXTURE_VARIANT_ADD(removed, v1_mglru) { .v1 = true, .lru_gen = "y" };
FIXTURE_VARIANT_ADD(removed, v1_classic_lru) { .v1 = true, .lru_gen = "n" };
FIXTURE_VARIANT_ADD(removed, v2_mglru) { .lru_gen = "y" };
FIXTURE_VARIANT_ADD(removed, v2_classic_lru) { .lru_gen = "n" };

FIXTURE_SETUP(removed)
{
	const char *why = set_up(&self->env, nr_memcgs * NR_PAGES);

	if (!why)
		why = variant->v1 ? set_up_v1(&self->env) : set_up_v2(&self->env);
	if (!why)
		why = choose_lru(&self->env, variant->lru_gen);
	if (why) {
		EXPECT_TRUE(clean_up(&self->env));
		SKIP(return, "%s", why);
	}
}

FIXTURE_TEARDOWN_PARENT(removed)
{
	self->env.fd = -1;
	EXPECT_TRUE(clean_up(&self->env))
		TH_LOG("something was left behind below %s", self->env.top);
}

/* Makes, fills and removes a share of the memcgs below @parent */
static void come_and_go(struct env *env, const char *parent, long first, long nr)
{
	char path[PATH_MAX];
	long i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = first; i < first + nr; i++) {
		path_fmt(path, sizeof(path), "%s/c%ld", parent, i);
		if (mkdir(path, 0755) ||
		    !fill_in(path, env->fd, i * NR_PAGES, NR_PAGES) ||
		    remove_memcg(path))
			_exit(EXIT_FAILURE);
	}
	_exit(EXIT_SUCCESS);
}

static void run_writers(struct __test_metadata *_metadata, struct env *env, const char *parent)
{
	pid_t pids[NR_WRITERS];
	long share = nr_memcgs / NR_WRITERS;
	int i, status;

	for (i = 0; i < NR_WRITERS; i++) {
		pids[i] = fork();
		ASSERT_LE(0, pids[i]);
		if (!pids[i])
			come_and_go(env, parent, i * share, share);
	}
	for (i = 0; i < NR_WRITERS; i++) {
		ASSERT_EQ(pids[i], waitpid(pids[i], &status, 0));
		ASSERT_EQ(0, status);
	}
}

/*
 * What has been read is page cache of the parent's when its children are gone, in
 * the counters that sum up the children and, where the page cache was passed on,
 * in the parent's own as well, which cgroup v1 shows. Then the same for the parent
 * of the parent.
 */
TEST_F_TIMEOUT(removed, counts_go_to_the_parent, TEST_LIMIT)
{
	const char *total = variant->v1 ? "total_cache" : "file";
	const long slack = BATCH * nr_cpus;
	struct env *env = &self->env;
	long before, want, seen = 0;
	char mid[PATH_MAX];
	int level;

	path_fmt(mid, sizeof(mid), "%s/mid", env->top);
	ASSERT_EQ(0, mkdir(mid, 0755));
	if (!variant->v1)
		ASSERT_EQ(0, write_str(mid, "cgroup.subtree_control", "+memory"));
	before = nr_cgroups();

	run_writers(_metadata, env, mid);
	want = resident(env->fd, 0, nr_memcgs * NR_PAGES);
	ASSERT_LT(0, want);

	for (level = 0; level < 2; level++) {
		const char *cg = level ? env->top : mid;

		EXPECT_TRUE(wait_until(close_to(seen = stat_pages(cg, total), want, slack)))
			TH_LOG("%s: %s has %ld pages, %ld are resident", cg, total, seen, want);
		/* Without dying memcgs left nobody but this one can have them */
		if (variant->v1 && nr_cgroups() <= before) {
			EXPECT_TRUE(wait_until(close_to(seen = stat_pages(cg, "cache"),
							want, slack)))
				TH_LOG("%s: cache has %ld pages, %ld are resident", cg, seen, want);
			EXPECT_TRUE(wait_until(close_to(seen = lru_pages(cg), want, slack)))
				TH_LOG("%s: the LRU lists have %ld pages, %ld are resident", cg,
				       seen, want);
		}
		if (!level)
			ASSERT_EQ(0, remove_memcg(mid));
	}

	/* Freed, they come off the counters that they are in now */
	posix_fadvise(env->fd, 0, 0, POSIX_FADV_DONTNEED);
	ASSERT_EQ(0, resident(env->fd, 0, nr_memcgs * NR_PAGES));
	EXPECT_TRUE(wait_until(close_to(seen = stat_pages(env->top, total), 0, slack)))
		TH_LOG("%s has %ld pages, none is resident", total, seen);
	EXPECT_TRUE(wait_until(nr_cgroups() < before))
		TH_LOG("%ld memcgs, there were %ld before", nr_cgroups(), before);
	if (variant->v1) {
		EXPECT_TRUE(wait_until(close_to(seen = stat_pages(env->top, "cache"), 0, slack)))
			TH_LOG("cache has %ld pages, none is resident", seen);
	}
}

/* --- a change of the working set ------------------------------------------- */

FIXTURE(shadow)
{
	struct env env;
};

FIXTURE_VARIANT(shadow)
{
	const char *lru_gen;
};

FIXTURE_VARIANT_ADD(shadow, mglru) { .lru_gen = "y" };
FIXTURE_VARIANT_ADD(shadow, classic_lru) { .lru_gen = "n" };

FIXTURE_SETUP(shadow)
{
	const char *why = set_up(&self->env, 2 * max_pages);

	if (!why)
		why = set_up_v2(&self->env);
	if (!why)
		why = choose_lru(&self->env, variant->lru_gen);
	if (why) {
		EXPECT_TRUE(clean_up(&self->env));
		SKIP(return, "%s", why);
	}
}

FIXTURE_TEARDOWN_PARENT(shadow)
{
	/* The descriptor belongs to the child that ran the test */
	self->env.fd = -1;
	EXPECT_TRUE(clean_up(&self->env))
		TH_LOG("something was left behind below %s", self->env.top);
}

/*
 * Two sets, each of three fifths of what the memcg may have. Once the first is
 * established, only refaults that are known to be close can get all of the second
 * in: that takes the shadow entries of what was evicted of it, and as many nodes
 * to hold them as the size of the memcg allows.
 */
TEST_F_TIMEOUT(shadow, second_set_becomes_resident, TEST_LIMIT)
{
	enum { FIRST_READS = 8, MAX_READS = 3, LAST_READS = 8 };
	const long pages = max_pages * 3 / 5;
	char cg[PATH_MAX], max[32], found[256];
	long long nodes;
	long left = pages;
	int i, reads = 0;

	path_fmt(cg, sizeof(cg), "%s/m", self->env.top);
	ASSERT_EQ(0, mkdir(cg, 0755));
	snprintf(max, sizeof(max), "%ld", max_pages * page_size);
	ASSERT_EQ(0, write_str(cg, "memory.max", max));

	for (i = 0; i < FIRST_READS; i++)
		ASSERT_TRUE(fill(cg, self->env.fd, 0, pages));
	ASSERT_EQ(pages, resident(self->env.fd, 0, pages));
	ASSERT_TRUE(start_trace("workingset/workingset_shadow_budget"));

	nodes = stat_value(cg, "workingset_nodereclaim");
	ASSERT_LE(0, nodes);
	for (i = 1; i <= LAST_READS && left; i++) {
		ASSERT_TRUE(fill(cg, self->env.fd, max_pages, pages));
		left = pages - resident(self->env.fd, max_pages, pages);
		TH_LOG("second set, read %d: %ld of %ld pages are resident; %lld nodes reclaimed",
		       i, pages - left, pages,
		       stat_value(cg, "workingset_nodereclaim") - nodes);
		reads = i;
	}
	/* Whenever reclaim looks for slab objects, it comes by the memcg's shadow nodes */
	EXPECT_LT(0, nr_traced("workingset_shadow_budget", memcg_id(cg), found, sizeof(found)));
	EXPECT_EQ(0, left);
	EXPECT_LE(reads, MAX_READS);
	EXPECT_EQ(nodes, stat_value(cg, "workingset_nodereclaim"))
		TH_LOG("shadow nodes were reclaimed, though the memcg may keep more");
}

TEST_HARNESS_MAIN
