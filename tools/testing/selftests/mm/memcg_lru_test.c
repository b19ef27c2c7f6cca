// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim from many memory cgroups with the multi-gen LRU, driven through
 * memory.reclaim.
 *
 * Root reclaim finds memcgs on per-node lists and moves them about there, while
 * other writers reclaim from single memcgs and memcgs come and go.  These tests
 * look at the result from user space: requests end, with the documented errno,
 * having reclaimed what was asked for; every memcg is visited; protection holds;
 * nothing is lost or counted wrongly afterwards.  The same goes for the other way
 * over memcgs, iteration, and for switching between them.  What becomes of memcgs
 * on the lists is seen in the trace events memcg_lru.
 *
 * All reclaimable memory here is clean page cache of a file that reads as zeros
 * and is never written, so no swap and no I/O is needed.  Each memcg owns one
 * slice of that file; mincore() then tells exactly how much of a memcg's cache
 * is still there, without waiting for memory.stat to be flushed.  The file is a
 * new zram device, or an unnamed sparse file in the current directory.
 *
 * Needs root and cgroup v2 with the memory controller.  Draining the root also
 * drops the page cache of everything else on the machine.  Optional settings,
 * from the environment:
 *
 *   MEMCG_LRU_NR       memcgs in the tests that want many (default 300)
 *   MEMCG_LRU_WAIT_NR  memcgs in the test that looks at waiting (default 10000)
 *   MEMCG_LRU_PAGES    pages of page cache in each of them (default 32)
 *   MEMCG_LRU_TIMEOUT  bound of each single wait, in seconds (default 120)
 *   MEMCG_LRU_FILE     file or block device to read instead; it must be large
 *                      enough and on something whose page cache can be dropped
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "cgroup_util.h"
#include "memcg_test_util.h"

#define LRU_GEN_ENABLED	"/sys/kernel/mm/lru_gen/enabled"
/* the multi-gen LRU at all; global reclaim iterates, see multigen_lru.rst */
#define LRU_GEN_CORE	0x0001
#define LRU_GEN_MEMCG_ITER 0x0008

/* Harness limit of one test: a backstop, the waits inside are bounded one by one */
#define TEST_LIMIT	400

/* Siblings in the tests that compare a few large memcgs */
#define NR_SIBLINGS	8
/* Pages in each of those, and slots of memcgs that come and go */
#define BIG_PAGES	2048
#define NR_CHURN	16

/* enough for any file of a cgroup or of /proc that is read here */
#define READ_SIZE	4096

#define NR_ROOT_WRITERS	4
#define NR_MEMCG_WRITERS 3

/*
 * What a request may reclaim beyond its size.  user_proactive_reclaim() asks for
 * at least SWAP_CLUSTER_MAX pages at a time, and a memcg is evicted from by up
 * to MIN_LRU_BATCH (BITS_PER_LONG) pages between two tests for being done, on
 * each node.  Large folios would add to it; a file opened for random access and
 * read page by page has none.
 */
#define SWAP_CLUSTER_MAX	32
#define MIN_LRU_BATCH		((int)sizeof(long) * 8)

/*
 * memory.current includes pages that a CPU has charged ahead, and memory.stat
 * lacks what a CPU has not passed on yet: MEMCG_CHARGE_BATCH pages each.
 */
#define MEMCG_CHARGE_BATCH	64

static long nr_cpus;
static long nr_nodes;

static long nr_memcgs;
static long nr_wait_memcgs;
static long nr_pages;

static long count_nodes(void)
{
	char path[64];
	long nr = 0;
	int i;

	for (i = 0; i < 1024; i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", i);
		if (!access(path, F_OK))
			nr++;
	}
	return nr ?: 1;
}

static void __attribute__((constructor)) read_settings(void)
{
	page_size = sysconf(_SC_PAGESIZE);
	nr_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	nr_nodes = count_nodes();
	nr_memcgs = env_long("MEMCG_LRU_NR", 300);
	nr_wait_memcgs = env_long("MEMCG_LRU_WAIT_NR", 10000);
	nr_pages = env_long("MEMCG_LRU_PAGES", 32);
	timeout = env_long("MEMCG_LRU_TIMEOUT", 120);
}

/* --- files and memcgs ----------------------------------------------------- */

static int reclaim_text(const char *cg, const char *text)
{
	return write_str(cg, "memory.reclaim", text);
}

/* The page cache only: other users of the machine may have swap */
static int reclaim_pages(const char *cg, long pages)
{
	char request[64];

	snprintf(request, sizeof(request), "%ld swappiness=0", pages * page_size);
	return reclaim_text(cg, request);
}

/*
 * Reclaim until nothing more is found.  The requests are larger than what
 * these tests fill, so most of them end in EAGAIN; two in a row end it.
 */
static int drain(const char *cg)
{
	double deadline = now() + timeout;
	int again = 0;
	int ret;

	while (again < 2) {
		if (now() > deadline)
			return -ETIMEDOUT;
		ret = reclaim_text(cg, "1G swappiness=0");
		if (!ret)
			again = 0;
		else if (ret == -EAGAIN)
			again++;
		else
			return ret;
	}
	return 0;
}

static long stat_pages(const char *cg, const char *key)
{
	long bytes = cg_read_key_long(cg, "memory.stat", key);

	return bytes < 0 ? bytes : bytes / page_size;
}

static long pgsteal(const char *cg)
{
	return cg_read_key_long(cg, "memory.stat", "\npgsteal ");
}

static long current_pages(const char *cg)
{
	return cg_read_long(cg, "memory.current") / page_size;
}

static long low_events(const char *cg)
{
	return cg_read_key_long(cg, "memory.events", "low ");
}

static long nr_descendants(const char *cg)
{
	return cg_read_key_long(cg, "cgroup.stat", "nr_descendants ");
}

static long nr_dying(const char *cg)
{
	return cg_read_key_long(cg, "cgroup.stat", "nr_dying_descendants ");
}

/* --- the multi-gen LRU's switches ----------------------------------------- */

/* What is enabled, or -1 */
static long lru_gen_caps(void)
{
	char buf[32];

	if (read_text(LRU_GEN_ENABLED, buf, sizeof(buf)) <= 0)
		return -1;
	return strtol(buf, NULL, 0);
}

/* Enable @caps and nothing else; whether that is what is read back */
static bool set_lru_gen_caps(long caps)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%#lx", caps);
	return !write_str("/", LRU_GEN_ENABLED, buf) && lru_gen_caps() == caps;
}

static bool iterate_over_memcgs(bool on)
{
	long caps = lru_gen_caps() & ~LRU_GEN_MEMCG_ITER;

	return set_lru_gen_caps(on ? caps | LRU_GEN_MEMCG_ITER : caps);
}

/* --- set-up --------------------------------------------------------------- */

struct env {
	char root[PATH_MAX];		/* mount point of cgroup v2 */
	char top[PATH_MAX];		/* parent of all memcgs made here */
	char prot[PATH_MAX];		/* the protected one, if outside of top */
	char lru_gen[32];		/* to be restored, if not empty */
	bool delegated;			/* memory was not enabled below the root */
	int zram;
	int fd;				/* what the page cache comes from */
};

/* Also called for a set-up that came half way */
static bool clean_up(struct env *env)
{
	bool ok = true;

	if (!end_trace())
		ok = false;
	if (env->top[0] && !remove_tree(env->top))
		ok = false;
	if (env->prot[0] && !access(env->prot, F_OK) &&
	    !remove_tree(env->prot))
		ok = false;
	if (env->delegated &&
	    write_str(env->root, "cgroup.subtree_control", "-memory"))
		ok = false;
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
static const char *set_up(struct env *env)
{
	const char *file = getenv("MEMCG_LRU_FILE");
	long max_pages, small, big, caps;
	char buf[READ_SIZE];
	off_t size;

	env->zram = -1;

	if (geteuid())
		return "needs root";
	if (cg_find_unified_root(env->root, sizeof(env->root), NULL))
		return "cgroup v2 is not mounted";
	if (cg_read_strstr(env->root, "cgroup.controllers", "memory"))
		return "no memory controller on cgroup v2";
	if (access(LRU_GEN_ENABLED, F_OK))
		return "kernel without CONFIG_LRU_GEN";
	path_fmt(buf, sizeof(buf), "%s/memory.reclaim", env->root);
	if (access(buf, W_OK))
		return "kernel without memory.reclaim";

	small = (nr_memcgs + NR_CHURN) * nr_pages;
	big = (NR_SIBLINGS + 1) * BIG_PAGES;
	max_pages = small > big ? small : big;
	size = (off_t)max_pages * page_size;
	if (file && *file) {
		env->fd = open(file, O_RDONLY | O_CLOEXEC);
		if (env->fd < 0)
			return "the file named by MEMCG_LRU_FILE can't be opened";
		if (lseek(env->fd, 0, SEEK_END) < size)
			return "the file named by MEMCG_LRU_FILE is too small";
	} else {
		env->zram = zram_add();
		env->fd = env->zram >= 0 ? open_zram(env->zram, size) :
					     open_sparse(size);
		if (env->fd < 0)
			return "neither zram nor a disk file system in the current directory";
	}
	/* No read-ahead: it would charge a memcg for its neighbour's slice */
	posix_fadvise(env->fd, 0, 0, POSIX_FADV_RANDOM);

	caps = lru_gen_caps();
	if (caps < 0)
		return LRU_GEN_ENABLED " can't be read";
	snprintf(env->lru_gen, sizeof(env->lru_gen), "%#lx", caps);
	if (!set_lru_gen_caps((caps | LRU_GEN_CORE) & ~LRU_GEN_MEMCG_ITER))
		return "the multi-gen LRU can't be enabled";

	if (cg_read_strstr(env->root, "cgroup.subtree_control", "memory")) {
		if (write_str(env->root, "cgroup.subtree_control", "+memory"))
			return "memory can't be enabled below the root";
		env->delegated = true;
	}
	/*
	 * Root reclaim would take the test's own text time and again.  Only what
	 * is mapped now: locking what comes later would fill the page cache.
	 */
	if (mlockall(MCL_CURRENT))
		return "the test can't be locked into memory";

	path_fmt(env->top, sizeof(env->top), "%s/memcg_lru_test.%d",
		 env->root, getpid());
	if (mkdir(env->top, 0755)) {
		env->top[0] = '\0';
		return "can't make a cgroup";
	}
	if (write_str(env->top, "cgroup.subtree_control", "+memory"))
		return "memory can't be enabled below the parent of the tests";
	return NULL;
}

FIXTURE(memcg_lru)
{
	struct env env;
};

FIXTURE_SETUP(memcg_lru)
{
	const char *why = set_up(&self->env);

	if (why) {
		/* There is no tear-down after a set-up that failed */
		EXPECT_TRUE(clean_up(&self->env));
		SKIP(return, "%s", why);
	}
}

/* In the parent, so that it is done however the test ends */
FIXTURE_TEARDOWN_PARENT(memcg_lru)
{
	/* The descriptor belongs to the child that ran the test */
	self->env.fd = -1;
	EXPECT_TRUE(clean_up(&self->env))
		TH_LOG("something was left behind below %s", self->env.top);
}

FIXTURE(iteration)
{
	struct env env;
};

FIXTURE_SETUP(iteration)
{
	const char *why = set_up(&self->env);

	if (why) {
		EXPECT_TRUE(clean_up(&self->env));
		SKIP(return, "%s", why);
	}
	if (!iterate_over_memcgs(true)) {
		EXPECT_TRUE(clean_up(&self->env));
		ASSERT_TRUE(false)
			TH_LOG("global reclaim can't be told to iterate over memcgs");
	}
}

FIXTURE_TEARDOWN_PARENT(iteration)
{
	self->env.fd = -1;
	EXPECT_TRUE(clean_up(&self->env))
		TH_LOG("something was left behind below %s", self->env.top);
}

static void memcg_path(struct env *env, char *buf,
		       const char *name, long i)
{
	path_fmt(buf, PATH_MAX, "%s/%s%ld", env->top, name, i);
}

/* Make memcgs @name0..@name(@nr - 1), each with @pages pages of page cache */
static void make_memcgs(struct __test_metadata *_metadata,
			struct env *env, const char *name,
			long nr, long pages)
{
	char path[PATH_MAX];
	long i;

	for (i = 0; i < nr; i++) {
		memcg_path(env, path, name, i);
		ASSERT_EQ(0, mkdir(path, 0755))
			TH_LOG("%s: %s", path, strerror(errno));
		ASSERT_TRUE(fill(path, env->fd, i * pages, pages));
	}
	ASSERT_EQ(nr * pages, resident(env->fd, 0, nr * pages));
}

static void remove_memcgs(struct __test_metadata *_metadata,
			  struct env *env, const char *name, long nr)
{
	char path[PATH_MAX];
	long i;
	int ret;

	for (i = 0; i < nr; i++) {
		memcg_path(env, path, name, i);
		ret = remove_memcg(path);
		ASSERT_EQ(0, ret)
			TH_LOG("rmdir %s: %s", path, strerror(-ret));
	}
}

/*
 * A removed memcg goes away once nothing refers to it any more.  The page cache
 * does on kernels that don't reparent it.
 */
static void expect_none_dying(struct __test_metadata *_metadata,
			      struct env *env)
{
	posix_fadvise(env->fd, 0, 0, POSIX_FADV_DONTNEED);
	EXPECT_TRUE(wait_until(nr_dying(env->top) == 0))
		TH_LOG("%ld memcgs are still dying", nr_dying(env->top));
}

/*
 * Whether what memory.stat adds up to is what has been charged.  Waits, since
 * what CPUs hold back in memory.stat is flushed every two seconds at the latest.
 */
static bool stat_is_current(const char *cg, long *charged, long *counted)
{
	long anon, file, kernel, sock;

	anon = stat_pages(cg, "anon ");
	file = stat_pages(cg, "\nfile ");
	kernel = stat_pages(cg, "\nkernel ");
	sock = stat_pages(cg, "\nsock ");
	*charged = current_pages(cg);
	if (anon < 0 || file < 0 || kernel < 0 || sock < 0)
		return false;
	*counted = anon + file + kernel + sock;
	/* Never less than has been counted, at most the CPUs' stocks more */
	return *counted <= *charged + MEMCG_CHARGE_BATCH &&
	       *charged <= *counted + MEMCG_CHARGE_BATCH * nr_cpus;
}

static void check_stat_is_current(struct __test_metadata *_metadata,
				  const char *cg)
{
	long charged = 0, counted = 0;

	/* Each failure costs the whole wait: one is enough */
	ASSERT_TRUE(wait_until(stat_is_current(cg, &charged, &counted)))
		TH_LOG("%s: charged %ld pages, counted %ld", cg, charged, counted);
}

/* --- many memcgs, many writers -------------------------------------------- */

struct worker {
	unsigned long done;		/* requests, or memcgs made */
	int bad;			/* an errno that should not happen */
	const char *what;
};

enum { CHURNER = NR_ROOT_WRITERS + NR_MEMCG_WRITERS, SWITCHER, NR_WORKERS };

/* Shared by the processes of one storm */
struct storm {
	bool stop;
	int nr_workers;			/* one less without a switcher */
	struct worker w[NR_WORKERS];
};

static bool stopped(struct storm *storm)
{
	return __atomic_load_n(&storm->stop, __ATOMIC_RELAXED);
}

static void one_done(struct worker *w)
{
	__atomic_add_fetch(&w->done, 1, __ATOMIC_RELAXED);
}

static unsigned long nr_done(struct worker *w)
{
	return __atomic_load_n(&w->done, __ATOMIC_RELAXED);
}

static void root_writer(struct env *env, struct storm *storm,
			struct worker *w)
{
	int ret;

	/*
	 * Small requests: as long as some page is found, a large one goes on, and
	 * the refills would keep it going.
	 */
	while (!stopped(storm)) {
		ret = reclaim_pages(env->root, nr_pages);
		if (ret && ret != -EAGAIN) {
			w->bad = -ret;
			w->what = "root memory.reclaim";
			return;
		}
		one_done(w);
	}
}

/* Also refills, so that there always is something to reclaim */
static void memcg_writer(struct env *env, struct storm *storm,
			 struct worker *w)
{
	unsigned int seed = w - storm->w;
	char path[PATH_MAX];
	long i;
	int ret;

	while (!stopped(storm)) {
		i = rand_r(&seed) % nr_memcgs;
		memcg_path(env, path, "m", i);
		if (!fill(path, env->fd, i * nr_pages, nr_pages)) {
			w->bad = EIO;
			w->what = "refill";
			return;
		}
		/* Half of it stays for the root writers */
		ret = reclaim_pages(path, nr_pages / 2);
		if (ret && ret != -EAGAIN) {
			w->bad = -ret;
			w->what = "memory.reclaim of a memcg";
			return;
		}
		one_done(w);
	}
}

/* A ring of memcgs: the oldest goes for each new one */
static void churner(struct env *env, struct storm *storm,
		    struct worker *w)
{
	char path[PATH_MAX];
	long i;

	for (i = 0; !stopped(storm); i++) {
		memcg_path(env, path, "c", i % NR_CHURN);
		if (i >= NR_CHURN) {
			w->bad = -remove_memcg(path);
			if (w->bad) {
				w->what = "rmdir";
				return;
			}
		}
		if (mkdir(path, 0755)) {
			w->bad = errno;
			w->what = "mkdir";
			return;
		}
		if (!fill(path, env->fd, (nr_memcgs + i % NR_CHURN) * nr_pages,
			  nr_pages)) {
			w->bad = EIO;
			w->what = "fill of a new memcg";
			return;
		}
		one_done(w);
	}
	/* Leave as many as there were */
	for (i = i < NR_CHURN ? i - 1 : NR_CHURN - 1; i >= 0; i--) {
		memcg_path(env, path, "c", i);
		w->bad = -remove_memcg(path);
		if (w->bad) {
			w->what = "last rmdir";
			return;
		}
	}
}

/* From one way over memcgs to the other */
static void switcher(struct storm *storm, struct worker *w)
{
	bool on = false;

	while (!stopped(storm)) {
		on = !on;
		if (!iterate_over_memcgs(on)) {
			w->bad = EIO;
			w->what = "switching";
			return;
		}
		one_done(w);
		/* The walks are to get somewhere meanwhile */
		usleep(2000);
	}
}

static bool storm_is_enough(struct storm *storm)
{
	unsigned long enough;
	int i;

	for (i = 0; i < storm->nr_workers; i++) {
		/* One that failed makes no progress: end it here */
		if (storm->w[i].bad)
			return true;
		if (i < NR_ROOT_WRITERS)
			enough = 20;
		else if (i < CHURNER)
			enough = 50;
		else if (i == CHURNER)
			enough = 5 * NR_CHURN;
		else
			enough = 100;
		if (nr_done(&storm->w[i]) < enough)
			return false;
	}
	return true;
}

/*
 * Make @nr_memcgs memcgs, let all writers loose on them, and wait for the end.
 * With @switching, global reclaim is switched between its ways all the time.
 */
static void run_storm(struct __test_metadata *_metadata,
		      struct env *env, bool switching)
{
	pid_t pids[NR_WORKERS];
	struct storm *storm;
	int i, left, status;
	double deadline;

	ASSERT_EQ(0, nr_dying(env->top));
	make_memcgs(_metadata, env, "m", nr_memcgs, nr_pages);

	storm = mmap(NULL, sizeof(*storm), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, storm);
	storm->nr_workers = switching ? NR_WORKERS : SWITCHER;

	for (i = 0; i < storm->nr_workers; i++) {
		pids[i] = fork();
		ASSERT_LE(0, pids[i]);
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (i < NR_ROOT_WRITERS)
			root_writer(env, storm, &storm->w[i]);
		else if (i < CHURNER)
			memcg_writer(env, storm, &storm->w[i]);
		else if (i == CHURNER)
			churner(env, storm, &storm->w[i]);
		else
			switcher(storm, &storm->w[i]);
		_exit(0);
	}

	/* A slow machine gets a shorter storm, but no writer may be stuck */
	deadline = now() + timeout / 4.0;
	while (!storm_is_enough(storm) && nap(deadline))
		;
	for (i = 0; i < storm->nr_workers; i++) {
		EXPECT_TRUE(wait_until(nr_done(&storm->w[i]) || storm->w[i].bad))
			TH_LOG("writer %d has made no progress", i);
	}
	__atomic_store_n(&storm->stop, true, __ATOMIC_RELAXED);

	deadline = now() + timeout;
	do {
		for (i = 0, left = 0; i < storm->nr_workers; i++) {
			if (!pids[i])
				continue;
			if (waitpid(pids[i], &status, WNOHANG) != pids[i]) {
				left++;
				continue;
			}
			pids[i] = 0;
			EXPECT_EQ(0, status);
		}
	} while (left && nap(deadline));
	EXPECT_EQ(0, left)
		TH_LOG("%d writers don't end", left);

	for (i = 0; i < storm->nr_workers; i++) {
		EXPECT_EQ(0, storm->w[i].bad)
			TH_LOG("%s: %s", storm->w[i].what,
			       strerror(storm->w[i].bad));
		if (pids[i])
			kill(pids[i], SIGKILL);
	}
	TH_LOG("requests: %lu by a root writer, %lu by a memcg writer; %lu memcgs made",
	       nr_done(&storm->w[0]), nr_done(&storm->w[NR_ROOT_WRITERS]),
	       nr_done(&storm->w[CHURNER]));
	if (switching)
		TH_LOG("switched %lu times", nr_done(&storm->w[SWITCHER]));
	munmap(storm, sizeof(*storm));
}

/*
 * Success or EAGAIN, no other errno, and an end: no writer is left spinning by
 * memcgs that move, appear and disappear under it.
 */
TEST_F_TIMEOUT(memcg_lru, concurrent_requests_end, TEST_LIMIT)
{
	run_storm(_metadata, &self->env, false);
}

/* The same number of memcgs as before, all found by root reclaim, all removable */
static void check_none_lost(struct __test_metadata *_metadata, struct env *env)
{
	char path[PATH_MAX];
	long i, left;

	EXPECT_EQ(nr_memcgs, nr_descendants(env->top));

	for (i = 0; i < nr_memcgs; i++) {
		memcg_path(env, path, "m", i);
		ASSERT_TRUE(fill(path, env->fd, i * nr_pages, nr_pages));
	}
	ASSERT_EQ(0, drain(env->root));
	left = resident(env->fd, 0, nr_memcgs * nr_pages);
	EXPECT_EQ(0, left)
		TH_LOG("%ld pages were not reached by root reclaim", left);

	/* A reference that a walk has kept would leave it dying */
	remove_memcgs(_metadata, env, "m", nr_memcgs);
	EXPECT_EQ(0, nr_descendants(env->top));
	expect_none_dying(_metadata, env);
}

TEST_F_TIMEOUT(memcg_lru, concurrent_requests_lose_no_memcg, TEST_LIMIT)
{
	run_storm(_metadata, &self->env, false);
	check_none_lost(_metadata, &self->env);
}

TEST_F_TIMEOUT(iteration, concurrent_requests_lose_no_memcg, TEST_LIMIT)
{
	run_storm(_metadata, &self->env, false);
	EXPECT_TRUE(lru_gen_caps() & LRU_GEN_MEMCG_ITER);
	check_none_lost(_metadata, &self->env);
}

TEST_F_TIMEOUT(iteration, switching_loses_no_memcg, TEST_LIMIT)
{
	run_storm(_metadata, &self->env, true);
	/* Whatever it was switched to last, the lists have to be complete */
	ASSERT_TRUE(iterate_over_memcgs(false));
	check_none_lost(_metadata, &self->env);
}

/* What is charged is what is counted, in each memcg and in the parent */
TEST_F_TIMEOUT(memcg_lru, concurrent_requests_keep_stats, TEST_LIMIT)
{
	char path[PATH_MAX];
	long i;

	run_storm(_metadata, &self->env, false);
	for (i = 0; i < nr_memcgs; i++) {
		memcg_path(&self->env, path, "m", i);
		check_stat_is_current(_metadata, path);
	}

	/* The parent has the removed ones' counts as well */
	remove_memcgs(_metadata, &self->env, "m", nr_memcgs);
	expect_none_dying(_metadata, &self->env);
	check_stat_is_current(_metadata, self->env.top);
}

/* --- protection ----------------------------------------------------------- */

/*
 * One protected memcg and unprotected ones, m0...  The protection is twice what
 * the first has, so none of it may go.  It is a child of what is reclaimed from:
 * a parent in between would have to grant the protection, and what is not claimed
 * of that goes to the unprotected ones where memory_recursiveprot is in force.
 */
static void make_protected(struct __test_metadata *_metadata,
			   struct env *env, const char *target,
			   const char *knob)
{
	char value[32];

	path_fmt(env->prot, sizeof(env->prot), "%s/memcg_lru_test.%d.prot",
		 target, getpid());
	ASSERT_EQ(0, mkdir(env->prot, 0755));
	snprintf(value, sizeof(value), "%ld", 2 * BIG_PAGES * page_size);
	ASSERT_EQ(0, write_str(env->prot, knob, value));

	make_memcgs(_metadata, env, "m", NR_SIBLINGS, BIG_PAGES);
	ASSERT_TRUE(fill(env->prot, env->fd, NR_SIBLINGS * BIG_PAGES,
			 BIG_PAGES));
}

static long resident_siblings(struct env *env)
{
	return resident(env->fd, 0, NR_SIBLINGS * BIG_PAGES);
}

static long resident_protected(struct env *env)
{
	return resident(env->fd, NR_SIBLINGS * BIG_PAGES, BIG_PAGES);
}

static void check_min(struct __test_metadata *_metadata,
		      struct env *env, const char *target)
{
	const char *prot = env->prot;

	make_protected(_metadata, env, target, "memory.min");

	ASSERT_EQ(0, drain(target));
	EXPECT_EQ(0, resident_siblings(env));
	/* Not one page, however hard the target was reclaimed from */
	EXPECT_EQ(BIG_PAGES, resident_protected(env));
	EXPECT_LE(BIG_PAGES, current_pages(prot));
	EXPECT_EQ(0, pgsteal(prot));

	/* That it was the protection shows once it is gone */
	ASSERT_EQ(0, write_str(prot, "memory.min", "0"));
	ASSERT_EQ(0, drain(target));
	EXPECT_EQ(0, resident_protected(env));
	EXPECT_TRUE(wait_until(pgsteal(prot) == BIG_PAGES))
		TH_LOG("pgsteal %ld of %d", pgsteal(prot), BIG_PAGES);
}

TEST_F_TIMEOUT(memcg_lru, min_survives_root_reclaim, TEST_LIMIT)
{
	check_min(_metadata, &self->env, self->env.root);
}

TEST_F_TIMEOUT(iteration, min_survives_root_reclaim, TEST_LIMIT)
{
	check_min(_metadata, &self->env, self->env.root);
}

TEST_F_TIMEOUT(memcg_lru, min_survives_parent_reclaim, TEST_LIMIT)
{
	check_min(_metadata, &self->env, self->env.top);
}

static void check_low(struct __test_metadata *_metadata,
		      struct env *env, const char *target)
{
	const char *prot = env->prot;
	char path[PATH_MAX];
	long left;
	int i;

	make_protected(_metadata, env, target, "memory.low");

	/* Half of what the siblings have: enough without touching the protected one */
	ASSERT_EQ(0, reclaim_pages(target, NR_SIBLINGS * BIG_PAGES / 2));
	left = resident_protected(env);
	EXPECT_LE(BIG_PAGES * 9 / 10, left)
		TH_LOG("%ld of %d pages left", left, BIG_PAGES);

	/* Nothing else to be had: now it goes, and that is counted */
	ASSERT_EQ(0, drain(target));
	EXPECT_EQ(0, resident_siblings(env));
	EXPECT_EQ(0, resident_protected(env));
	EXPECT_LT(0, low_events(prot));
	for (i = 0; i < NR_SIBLINGS; i++) {
		memcg_path(env, path, "m", i);
		EXPECT_EQ(0, low_events(path));
	}
}

TEST_F_TIMEOUT(memcg_lru, low_yields_last_to_root_reclaim, TEST_LIMIT)
{
	check_low(_metadata, &self->env, self->env.root);
}

TEST_F_TIMEOUT(iteration, low_yields_last_to_root_reclaim, TEST_LIMIT)
{
	check_low(_metadata, &self->env, self->env.root);
}

TEST_F_TIMEOUT(memcg_lru, low_yields_last_to_parent_reclaim, TEST_LIMIT)
{
	check_low(_metadata, &self->env, self->env.top);
}

/* --- every memcg is visited ----------------------------------------------- */

static void check_all_visited(struct __test_metadata *_metadata,
			      struct env *env, long *before)
{
	char path[PATH_MAX];
	long i, missed = 0;

	ASSERT_EQ(0, drain(env->root));
	for (i = 0; i < nr_memcgs; i++) {
		if (resident(env->fd, i * nr_pages, nr_pages))
			missed++;
	}
	ASSERT_EQ(0, missed)
		TH_LOG("%ld of %ld memcgs still have pages", missed, nr_memcgs);

	/* It was reclaim that took them, and each memcg was told its share */
	for (i = 0; i < nr_memcgs; i++) {
		memcg_path(env, path, "m", i);
		ASSERT_TRUE(wait_until(pgsteal(path) >= before[i] + nr_pages))
			TH_LOG("%s: pgsteal %ld, expected %ld", path, pgsteal(path),
			       before[i] + nr_pages);
	}
}

TEST_F_TIMEOUT(memcg_lru, root_reclaim_visits_every_memcg, TEST_LIMIT)
{
	long *before = calloc(nr_memcgs, sizeof(*before));

	ASSERT_NE(NULL, before);
	make_memcgs(_metadata, &self->env, "m", nr_memcgs, nr_pages);
	check_all_visited(_metadata, &self->env, before);
	free(before);
}

TEST_F_TIMEOUT(iteration, root_reclaim_visits_every_memcg, TEST_LIMIT)
{
	long *before = calloc(nr_memcgs, sizeof(*before));

	ASSERT_NE(NULL, before);
	make_memcgs(_metadata, &self->env, "m", nr_memcgs, nr_pages);
	check_all_visited(_metadata, &self->env, before);
	free(before);
}

/*
 * Rotate them many times with small requests, replacing every fifth memcg on
 * the way, and see that a refill is found in each.
 */
TEST_F_TIMEOUT(memcg_lru, rotated_memcgs_are_visited, TEST_LIMIT)
{
	long *before = calloc(nr_memcgs, sizeof(*before));
	char path[PATH_MAX];
	int round, ret;
	long i;

	ASSERT_NE(NULL, before);
	make_memcgs(_metadata, &self->env, "m", nr_memcgs, nr_pages);

	for (round = 0; round < 5; round++) {
		/* Until nothing is left, in pieces of a memcg's size */
		for (i = 0; i < 10; i++) {
			ret = reclaim_pages(self->env.root, nr_memcgs * nr_pages / 10);
			if (ret == -EAGAIN)
				break;
			ASSERT_EQ(0, ret);
		}
		for (i = 0; i < nr_memcgs; i++) {
			memcg_path(&self->env, path, "m", i);
			if (i % 5 == round) {
				ASSERT_EQ(0, remove_memcg(path));
				ASSERT_EQ(0, mkdir(path, 0755));
			}
		}
	}

	/* Drop what may be charged to a predecessor */
	posix_fadvise(self->env.fd, 0, 0, POSIX_FADV_DONTNEED);
	for (i = 0; i < nr_memcgs; i++) {
		memcg_path(&self->env, path, "m", i);
		ASSERT_TRUE(fill(path, self->env.fd, i * nr_pages, nr_pages));
		before[i] = pgsteal(path);
	}
	check_all_visited(_metadata, &self->env, before);
	free(before);
}

/* --- how much is reclaimed ------------------------------------------------ */

static void check_amount(struct __test_metadata *_metadata,
			 struct env *env, const char *cg,
			 const char *request, long asked)
{
	long had, steal, got;

	had = resident(env->fd, 0, BIG_PAGES);
	steal = pgsteal(cg);
	ASSERT_EQ(0, reclaim_text(cg, request));
	got = had - resident(env->fd, 0, BIG_PAGES);

	EXPECT_LE(asked, got)
		TH_LOG("%s: %ld pages", request, got);
	EXPECT_GE(asked + SWAP_CLUSTER_MAX + MIN_LRU_BATCH * nr_nodes, got)
		TH_LOG("%s: %ld pages", request, got);
	/* All of it was counted */
	EXPECT_TRUE(wait_until(pgsteal(cg) - steal == got))
		TH_LOG("%s: pgsteal %ld, gone %ld", request, pgsteal(cg) - steal, got);
}

TEST_F_TIMEOUT(memcg_lru, memcg_gives_what_was_asked, TEST_LIMIT)
{
	char path[PATH_MAX], request[64];

	make_memcgs(_metadata, &self->env, "m", 1, BIG_PAGES);
	memcg_path(&self->env, path, "m", 0);

	snprintf(request, sizeof(request), "%ld", BIG_PAGES / 2 * page_size);
	check_amount(_metadata, &self->env, path, request, BIG_PAGES / 2);
	snprintf(request, sizeof(request), "%ld", BIG_PAGES / 8 * page_size);
	check_amount(_metadata, &self->env, path, request, BIG_PAGES / 8);
	check_amount(_metadata, &self->env, path, "64k\n", 65536 / page_size);
	/* Rounded down to pages */
	snprintf(request, sizeof(request), "%ld swappiness=60", 2 * page_size - 1);
	check_amount(_metadata, &self->env, path, request, 1);
	/* All there is, but less than was asked */
	EXPECT_EQ(-EAGAIN, reclaim_pages(path, BIG_PAGES));
	EXPECT_EQ(0, resident(self->env.fd, 0, BIG_PAGES));
}

/*
 * At the root what shrinkers free counts as well, so pgsteal may be less than
 * was asked for.
 */
static void check_root_amount(struct __test_metadata *_metadata, struct env *env)
{
	long steal, had, got, asked = NR_SIBLINGS * BIG_PAGES / 4;
	int i;

	/* Leave little to the shrinkers */
	ASSERT_EQ(0, drain(env->root));
	make_memcgs(_metadata, env, "m", NR_SIBLINGS, BIG_PAGES);
	for (i = 0; i < 2; i++) {
		had = resident_siblings(env);
		steal = pgsteal(env->root);
		ASSERT_EQ(0, reclaim_pages(env->root, asked));
		got = had - resident_siblings(env);
		EXPECT_GE(asked + SWAP_CLUSTER_MAX + MIN_LRU_BATCH * nr_nodes, got);
		EXPECT_TRUE(wait_until(pgsteal(env->root) - steal >= asked * 3 / 4))
			TH_LOG("pgsteal %ld of %ld", pgsteal(env->root) - steal, asked);
	}
	ASSERT_EQ(0, drain(env->root));
	EXPECT_EQ(0, resident_siblings(env));
}

TEST_F_TIMEOUT(memcg_lru, root_gives_what_was_asked, TEST_LIMIT)
{
	check_root_amount(_metadata, &self->env);
}

TEST_F_TIMEOUT(iteration, root_gives_what_was_asked, TEST_LIMIT)
{
	check_root_amount(_metadata, &self->env);
}

/* --- memcgs that have nothing to reclaim ---------------------------------- */

/* Runs in the memcg to be charged: anonymous memory, held until it is killed */
static int hold_anon(const char *cg, void *arg)
{
	long pages = *(long *)arg;
	char *map;

	map = mmap(NULL, pages * page_size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (map == MAP_FAILED)
		return EXIT_FAILURE;
	while (true)
		pause();
}

/*
 * A memcg below memory.low has nothing that a request for page cache may take.
 * That its protection had to be given up for such a request is to be counted all
 * the same, and only there.
 */
TEST_F_TIMEOUT(memcg_lru, low_event_without_reclaimable_pages, TEST_LIMIT)
{
	long pages = BIG_PAGES / 4;
	char path[PATH_MAX], other[PATH_MAX], value[32];
	int pid, pid_other, status;

	path_fmt(self->env.prot, sizeof(self->env.prot), "%s/memcg_lru_test.%d.prot",
		 self->env.root, getpid());
	strcpy(path, self->env.prot);
	ASSERT_EQ(0, mkdir(path, 0755));
	snprintf(value, sizeof(value), "%ld", BIG_PAGES * page_size);
	ASSERT_EQ(0, write_str(path, "memory.low", value));
	pid = cg_run_nowait(path, hold_anon, &pages);
	ASSERT_LT(0, pid);
	memcg_path(&self->env, other, "m", 0);
	ASSERT_EQ(0, mkdir(other, 0755));
	pid_other = cg_run_nowait(other, hold_anon, &pages);
	ASSERT_LT(0, pid_other);
	ASSERT_TRUE(wait_until(current_pages(path) >= pages && current_pages(other) >= pages));

	ASSERT_EQ(0, drain(self->env.root));
	EXPECT_LT(0, low_events(path));
	EXPECT_EQ(0, low_events(other));
	EXPECT_LE(pages, current_pages(path));

	kill(pid, SIGKILL);
	kill(pid_other, SIGKILL);
	waitpid(pid, &status, 0);
	waitpid(pid_other, &status, 0);
}

/* Names that do not exist are remembered as well, in slab objects */
static int look_up_names(const char *cg, void *arg)
{
	long i, nr = *(long *)arg;
	char path[PATH_MAX];
	struct stat st;

	for (i = 0; i < nr; i++) {
		path_fmt(path, sizeof(path), "/sys/kernel/mm/memcg_lru_test.%d.%ld", getpid(), i);
		if (!stat(path, &st))
			return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}

static long slab_reclaimable(const char *cg)
{
	return cg_read_key_long(cg, "memory.stat", "slab_reclaimable ");
}

/* Without a page on the LRU lists, a memcg's slab is still shrunk */
TEST_F_TIMEOUT(memcg_lru, slab_without_pages_is_shrunk, TEST_LIMIT)
{
	enum { NR_NAMES = 4000, DENTRY = 192 };
	long nr = NR_NAMES, before;
	char path[PATH_MAX];
	int pid, status;

	memcg_path(&self->env, path, "m", 0);
	ASSERT_EQ(0, mkdir(path, 0755));
	pid = cg_run_nowait(path, look_up_names, &nr);
	ASSERT_LT(0, pid);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);

	ASSERT_TRUE(wait_until(slab_reclaimable(path) >= NR_NAMES * DENTRY));
	before = slab_reclaimable(path);
	ASSERT_EQ(0, drain(self->env.root));
	EXPECT_TRUE(wait_until(slab_reclaimable(path) <= before / 10))
		TH_LOG("%ld of %ld bytes of slab are left", slab_reclaimable(path), before);
}

/* --- what is enabled ------------------------------------------------------ */

TEST_F_TIMEOUT(iteration, is_a_bit_of_its_own, TEST_LIMIT)
{
	long caps;

	/* All components, and what it has always meant */
	ASSERT_EQ(0, write_str("/", LRU_GEN_ENABLED, "y"));
	caps = lru_gen_caps();
	EXPECT_TRUE(caps & LRU_GEN_CORE);
	EXPECT_FALSE(caps & LRU_GEN_MEMCG_ITER);

	/* It changes nothing else, nor does anything else change it */
	EXPECT_TRUE(set_lru_gen_caps(caps | LRU_GEN_MEMCG_ITER));
	EXPECT_TRUE(set_lru_gen_caps(LRU_GEN_CORE | LRU_GEN_MEMCG_ITER));
	EXPECT_EQ(-EINVAL, write_str("/", LRU_GEN_ENABLED, "abc"));
	EXPECT_EQ(LRU_GEN_CORE | LRU_GEN_MEMCG_ITER, lru_gen_caps());
	/* A value from a kernel without it turns it off */
	EXPECT_TRUE(set_lru_gen_caps(caps));

	/* Without the multi-gen LRU it is remembered, and does nothing */
	EXPECT_TRUE(set_lru_gen_caps(LRU_GEN_MEMCG_ITER));
	EXPECT_EQ(-EAGAIN, reclaim_pages(self->env.root, 1L << 30));
	ASSERT_EQ(0, write_str("/", LRU_GEN_ENABLED, "n"));
	EXPECT_EQ(0, lru_gen_caps());
	EXPECT_TRUE(set_lru_gen_caps(caps));
}

/* --- requests that make no sense ------------------------------------------ */

static char too_long[8192];

/*
 * All of these ask for more than there is, if for anything, so that one which is
 * wrongly taken for valid leaves nothing behind.  user_proactive_reclaim() wants
 * a number that memparse() understands, then known options, each EINVAL if not;
 * memparse() takes no sign.  swappiness is 0 to 200, or max.
 */
static const struct {
	const char *text;
	int err;
} bad_requests[] = {
	{ "abc",			-EINVAL },
	{ "",				0 },	/* not passed on by cgroup_file_write() */
	{ "\n",				-EINVAL },
	{ " ",				-EINVAL },
	{ "G",				-EINVAL },	/* a unit of nothing */
	{ "-1",				-EINVAL },
	{ "-1G",			-EINVAL },
	{ "+1G",			-EINVAL },
	{ "max",			-EINVAL },
	{ "1.5G",			-EINVAL },
	{ "1Gi",			-EINVAL },
	{ "1G 1G",			-EINVAL },
	{ "1G foo",			-EINVAL },
	{ "1Gfoo",			-EINVAL },
	{ "swappiness=60",		-EINVAL },	/* no size */
	{ "swappiness=60 1G",		-EINVAL },
	{ "1G swappiness",		-EINVAL },
	{ "1G swappiness=",		-EINVAL },
	{ "1G swappiness=-1",		-EINVAL },
	{ "1G swappiness=201",		-EINVAL },
	{ "1G swappiness=2147483648",	-EINVAL },	/* not an int */
	{ "1G swappiness=18446744073709551616",	-EINVAL },
	{ "1G swappiness=abc",		-EINVAL },
	{ "1G swappiness=10x",		-EINVAL },
	{ "1G swappiness=60 foo",	-EINVAL },
	{ "1G swappiness=60 swappiness=201", -EINVAL },
	{ too_long,			-E2BIG },	/* than a page */
	/* Valid, and nothing to do */
	{ "0",				0 },
	{ "0 swappiness=0",		0 },
	{ "1",				0 },	/* less than a page */
};

static void check_bad(struct __test_metadata *_metadata,
		      struct env *env, const char *target)
{
	char path[PATH_MAX];
	long before, after, steal;
	size_t i;
	int ret;

	memset(too_long, ' ', sizeof(too_long) - 1);
	memcpy(too_long, "1G", 2);

	make_memcgs(_metadata, env, "m", 1, BIG_PAGES);
	memcg_path(env, path, "m", 0);
	before = current_pages(path);
	steal = pgsteal(path);

	for (i = 0; i < ARRAY_SIZE(bad_requests); i++) {
		ret = reclaim_text(target, bad_requests[i].text);
		EXPECT_EQ(bad_requests[i].err, ret)
			TH_LOG("\"%.40s\"", bad_requests[i].text);
		EXPECT_EQ(BIG_PAGES, resident(env->fd, 0, BIG_PAGES))
			TH_LOG("\"%.40s\" has reclaimed", bad_requests[i].text);
	}
	after = current_pages(path);
	EXPECT_LE(before, after + MEMCG_CHARGE_BATCH * nr_cpus);
	EXPECT_EQ(steal, pgsteal(path));

	/* And that a valid one would have */
	ASSERT_EQ(0, drain(target));
	EXPECT_EQ(0, resident(env->fd, 0, BIG_PAGES));
}

TEST_F_TIMEOUT(memcg_lru, bad_request_to_root, TEST_LIMIT)
{
	check_bad(_metadata, &self->env, self->env.root);
}

TEST_F_TIMEOUT(memcg_lru, bad_request_to_memcg, TEST_LIMIT)
{
	char path[PATH_MAX];

	memcg_path(&self->env, path, "m", 0);
	check_bad(_metadata, &self->env, path);
}

/* Huge numbers are valid: all there is goes, and EAGAIN says it was less */
static void check_huge(struct __test_metadata *_metadata,
		       struct env *env, const char *target)
{
	static const char * const requests[] = {
		"18446744073709551615 swappiness=0",
		/* More than 64 bits: memparse() saturates, older ones get 1E */
		"17E swappiness=0",
	};
	char path[PATH_MAX];
	size_t i;

	make_memcgs(_metadata, env, "m", 2, BIG_PAGES);
	for (i = 0; i < ARRAY_SIZE(requests); i++) {
		memcg_path(env, path, "m", 0);
		ASSERT_TRUE(fill(path, env->fd, 0, BIG_PAGES));
		EXPECT_EQ(-EAGAIN, reclaim_text(target, requests[i]))
			TH_LOG("%s", requests[i]);
		EXPECT_EQ(0, resident(env->fd, 0, BIG_PAGES));
		/* The sibling is out of reach of a request to m0 */
		EXPECT_EQ(target == env->root ? 0 : BIG_PAGES,
			  resident(env->fd, BIG_PAGES, BIG_PAGES));
	}
}

TEST_F_TIMEOUT(memcg_lru, huge_request_to_root, TEST_LIMIT)
{
	check_huge(_metadata, &self->env, self->env.root);
}

TEST_F_TIMEOUT(memcg_lru, huge_request_to_memcg, TEST_LIMIT)
{
	char path[PATH_MAX];

	memcg_path(&self->env, path, "m", 0);
	check_huge(_metadata, &self->env, path);
}

/* --- trace events --------------------------------------------------------- */

TEST_F_TIMEOUT(memcg_lru, rotations_are_traced, TEST_LIMIT)
{
	int i, fields, nid, old_gen, new_gen, bin;
	char path[PATH_MAX], found[256], op[16];
	unsigned long long id;

	make_memcgs(_metadata, &self->env, "m", NR_SIBLINGS, nr_pages);
	ASSERT_TRUE(start_trace("memcg_lru/memcg_lru_rotate"));
	ASSERT_EQ(0, drain(self->env.root));

	for (i = 0; i < NR_SIBLINGS; i++) {
		memcg_path(&self->env, path, "m", i);
		ASSERT_LT(0, nr_traced("memcg_lru_rotate", memcg_id(path), found,
				       sizeof(found)));
		fields = sscanf(found,
				"nid=%d memcg_id=%llu op=%15s old_gen=%d new_gen=%d bin=%d",
				&nid, &id, op, &old_gen, &new_gen, &bin);
		ASSERT_EQ(6, fields) TH_LOG("%s", found);
		EXPECT_TRUE(nid >= 0 && nid < nr_nodes) TH_LOG("%s", found);
		EXPECT_TRUE(!strcmp(op, "TAIL") || !strcmp(op, "YOUNG")) TH_LOG("%s", found);
		/* MEMCG_NR_GENS and MEMCG_NR_BINS of the kernel */
		EXPECT_TRUE(old_gen >= 0 && old_gen < 3) TH_LOG("%s", found);
		EXPECT_TRUE(new_gen >= 0 && new_gen < 3) TH_LOG("%s", found);
		EXPECT_TRUE(bin >= 0 && bin < 8) TH_LOG("%s", found);
	}
}

/* All is reclaimed, but no memcg is rotated for that */
TEST_F_TIMEOUT(iteration, leaves_the_lists_alone, TEST_LIMIT)
{
	char path[PATH_MAX], found[256];
	int i;

	make_memcgs(_metadata, &self->env, "m", NR_SIBLINGS, nr_pages);
	ASSERT_TRUE(start_trace("memcg_lru/memcg_lru_rotate"));
	ASSERT_EQ(0, drain(self->env.root));
	EXPECT_EQ(0, resident(self->env.fd, 0, NR_SIBLINGS * nr_pages));
	for (i = 0; i < NR_SIBLINGS; i++) {
		memcg_path(&self->env, path, "m", i);
		EXPECT_EQ(0, nr_traced("memcg_lru_rotate", memcg_id(path), found, sizeof(found)))
			TH_LOG("%s", found);
	}

	/* And that they would be */
	ASSERT_TRUE(iterate_over_memcgs(false));
	ASSERT_EQ(0, drain(self->env.root));
	memcg_path(&self->env, path, "m", 0);
	EXPECT_LT(0, nr_traced("memcg_lru_rotate", memcg_id(path), found, sizeof(found)));
}

/*
 * Reclaim in a memcg ends with a YOUNG rotation once the memcg had to be aged.
 * As nobody walks over the memcgs meanwhile, the second one finds it there.
 */
TEST_F_TIMEOUT(memcg_lru, skipped_rotations_are_traced, TEST_LIMIT)
{
	char path[PATH_MAX], found[256];
	unsigned long long id;

	memcg_path(&self->env, path, "m", 0);
	ASSERT_EQ(0, mkdir(path, 0755));
	id = memcg_id(path);
	ASSERT_TRUE(start_trace("memcg_lru/memcg_lru_rotate"));
	ASSERT_TRUE(start_trace("memcg_lru/memcg_lru_skip"));

	EXPECT_TRUE(wait_until(fill(path, self->env.fd, 0, nr_pages) && !drain(path) &&
			       nr_traced("memcg_lru_skip", id, found, sizeof(found)) > 0));
	EXPECT_LE(1, nr_traced("memcg_lru_rotate", id, found, sizeof(found)));
}

/* --- memcgs that go away -------------------------------------------------- */

static int open_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return fd >= 0 ? fd : socket(AF_UNIX, SOCK_STREAM, 0);
}

static bool sockets_are_charged(void)
{
	char buf[READ_SIZE];

	return read_text("/proc/cmdline", buf, sizeof(buf)) > 0 && !strstr(buf, "nosocket");
}

struct dying {
	int sock;
	unsigned long long id;
};

/*
 * A socket refers to the memcg of the task that made it.  Memcgs m0... that are
 * gone but for such a socket each stay around, dying; s0... live.
 */
static void make_dying(struct __test_metadata *_metadata, struct env *env, struct dying *dying,
		       long nr)
{
	char path[PATH_MAX], home[PATH_MAX], buf[READ_SIZE];
	char *mine;
	long i;

	ASSERT_LT(0, proc_read_text(0, false, "cgroup", buf, sizeof(buf)));
	mine = strstr(buf, "0::");
	ASSERT_NE(NULL, mine);
	mine[strcspn(mine, "\n")] = '\0';
	path_fmt(home, sizeof(home), "%s%s", env->root, mine + 3);

	make_memcgs(_metadata, env, "m", nr, nr_pages);
	for (i = 0; i < nr; i++) {
		memcg_path(env, path, "m", i);
		ASSERT_EQ(0, write_str(path, "cgroup.procs", "0"));
		dying[i].sock = open_socket();
		dying[i].id = memcg_id(path);
		ASSERT_EQ(0, write_str(home, "cgroup.procs", "0"));
		ASSERT_LE(0, dying[i].sock);
	}
	make_memcgs(_metadata, env, "s", nr, nr_pages);
	remove_memcgs(_metadata, env, "m", nr);
}

static void end_dying(struct __test_metadata *_metadata, struct env *env, struct dying *dying,
		      long nr)
{
	long i;

	/* They were there all the time */
	EXPECT_EQ(nr, nr_dying(env->top));

	for (i = 0; i < nr; i++)
		close(dying[i].sock);
	expect_none_dying(_metadata, env);
	remove_memcgs(_metadata, env, "s", nr);
	expect_none_dying(_metadata, env);
}

/* Root reclaim has to cope with dying memcgs, and they have to go when they can */
TEST_F_TIMEOUT(memcg_lru, dying_memcg_pinned_by_socket, TEST_LIMIT)
{
	enum { NR_PINNED = 16 };
	struct dying dying[NR_PINNED];
	char path[PATH_MAX];
	long i;

	if (!sockets_are_charged())
		SKIP(return, "sockets are not charged: booted with cgroup.memory=nosocket");
	make_dying(_metadata, &self->env, dying, NR_PINNED);

	ASSERT_EQ(0, drain(self->env.root));
	EXPECT_EQ(0, resident(self->env.fd, 0, NR_PINNED * nr_pages));
	for (i = 0; i < NR_PINNED; i++) {
		memcg_path(&self->env, path, "s", i);
		ASSERT_TRUE(fill(path, self->env.fd, i * nr_pages, nr_pages));
	}
	ASSERT_EQ(0, drain(self->env.root));
	EXPECT_EQ(0, resident(self->env.fd, 0, NR_PINNED * nr_pages));

	end_dying(_metadata, &self->env, dying, NR_PINNED);
}

/* How many of @nr dying memcgs root reclaim has to do with; -1 if not with all living */
static long nr_dying_rotated(struct env *env, struct dying *dying, long nr)
{
	char path[PATH_MAX], found[256];
	long i, rotated = 0;

	if (!clear_trace() || drain(env->root))
		return -1;
	for (i = 0; i < nr; i++) {
		memcg_path(env, path, "s", i);
		if (nr_traced("memcg_lru_rotate", memcg_id(path), found, sizeof(found)) <= 0)
			return -1;
		rotated += !!nr_traced("memcg_lru_rotate", dying[i].id, found, sizeof(found));
	}
	return rotated;
}

/*
 * Their page cache is their parent's, so root reclaim has no business with them.
 * They go offline some time after rmdir, and nothing else tells when.
 */
TEST_F_TIMEOUT(memcg_lru, dying_memcgs_are_off_the_lists, TEST_LIMIT)
{
	enum { NR_PINNED = 16 };
	struct dying dying[NR_PINNED];
	long rotated = -1;

	if (!sockets_are_charged())
		SKIP(return, "sockets are not charged: booted with cgroup.memory=nosocket");
	make_dying(_metadata, &self->env, dying, NR_PINNED);
	ASSERT_TRUE(start_trace("memcg_lru/memcg_lru_rotate"));

	EXPECT_TRUE(wait_until(!(rotated = nr_dying_rotated(&self->env, dying, NR_PINNED))))
		TH_LOG("%ld of %d dying memcgs are rotated", rotated, NR_PINNED);

	end_dying(_metadata, &self->env, dying, NR_PINNED);
}

/*
 * rmdir waits for a write that is under way, and that has to notice: EAGAIN.
 * Later writes through the same descriptor find the file gone: ENODEV.
 */
TEST_F_TIMEOUT(memcg_lru, rmdir_ends_reclaim, TEST_LIMIT)
{
	struct worker *w;
	char path[PATH_MAX];
	int round, fd, status;
	pid_t pid;

	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, w);

	memcg_path(&self->env, path, "m", 0);
	for (round = 0; round < 20; round++) {
		memset(w, 0, sizeof(*w));
		make_memcgs(_metadata, &self->env, "m", 1, BIG_PAGES);
		fd = cg_open(path, "memory.reclaim", O_WRONLY | O_CLOEXEC);
		ASSERT_LE(0, fd);
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			static const char request[] = "1G swappiness=0";

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (write(fd, request, strlen(request)) >= 0 ||
			       errno == EAGAIN)
				one_done(w);
			w->bad = errno;
			_exit(0);
		}
		close(fd);
		ASSERT_TRUE(wait_until(nr_done(w) >= (unsigned long)round % 4));
		ASSERT_EQ(0, remove_memcg(path));
		ASSERT_TRUE(wait_until(waitpid(pid, &status, WNOHANG) == pid));
		EXPECT_EQ(0, status);
		EXPECT_EQ(ENODEV, w->bad)
			TH_LOG("writer ended by %s", strerror(w->bad));
	}
	expect_none_dying(_metadata, &self->env);
	munmap(w, sizeof(*w));
}

/* --- what others wait for ------------------------------------------------- */

/* Sleep for a millisecond at a time; how late the latest wake-up was, in ms */
static double longest_wait(double until)
{
	struct timespec due;
	double late, longest = 0;

	do {
		clock_gettime(CLOCK_MONOTONIC, &due);
		due.tv_nsec += 1000000;
		if (due.tv_nsec >= 1000000000) {
			due.tv_nsec -= 1000000000;
			due.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
		late = now() - (due.tv_sec + due.tv_nsec / 1e9);
		if (late > longest)
			longest = late;
	} while (now() < until);
	return longest * 1000;
}

static pid_t run_on(int cpu)
{
	cpu_set_t set;
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(1);
	return 0;
}

/*
 * A walk that finds nothing in very many memcgs must not keep the CPU from start
 * to end: on a kernel that is not preemptible an ordinary task on the same CPU
 * would wait that long.  Reported; what fails is only many times the few timer
 * ticks it should be, each time out of several, since a virtual CPU may have to
 * wait for a real one.
 */
TEST_F_TIMEOUT(memcg_lru, root_reclaim_lets_others_run, TEST_LIMIT)
{
	enum { MAX_CPUS = 64, ROUNDS = 5, SECONDS = 4, MAX_WAIT_MS = 250 };
	double *wait, worst = 0, best = 1e9;
	pid_t writer[MAX_CPUS], sleeper[MAX_CPUS];
	int cpu, round, status, nr = 0;
	char path[PATH_MAX];
	unsigned long *requests;
	cpu_set_t allowed;
	long i;

	wait = mmap(NULL, page_size, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, wait);
	requests = (unsigned long *)(wait + MAX_CPUS);
	for (i = 0; i < nr_wait_memcgs; i++) {
		memcg_path(&self->env, path, "m", i);
		ASSERT_EQ(0, mkdir(path, 0755))
			TH_LOG("%s: %s", path, strerror(errno));
	}

	ASSERT_EQ(0, sched_getaffinity(0, sizeof(allowed), &allowed));
	for (cpu = 0; cpu < CPU_SETSIZE && nr < MAX_CPUS; cpu++) {
		if (!CPU_ISSET(cpu, &allowed))
			continue;
		writer[nr] = run_on(cpu);
		ASSERT_LE(0, writer[nr]);
		if (!writer[nr]) {
			while (true) {
				status = reclaim_text(self->env.root, "1G swappiness=0");
				if (status && status != -EAGAIN)
					_exit(1);
				__atomic_add_fetch(requests, 1, __ATOMIC_RELAXED);
			}
		}
		nr++;
	}

	for (round = 0; round < ROUNDS && best > MAX_WAIT_MS; round++) {
		for (cpu = 0, nr = 0; cpu < CPU_SETSIZE && nr < MAX_CPUS; cpu++) {
			if (!CPU_ISSET(cpu, &allowed))
				continue;
			sleeper[nr] = run_on(cpu);
			ASSERT_LE(0, sleeper[nr]);
			if (!sleeper[nr]) {
				wait[nr] = longest_wait(now() + SECONDS);
				_exit(0);
			}
			nr++;
		}
		for (cpu = 0, worst = 0; cpu < nr; cpu++) {
			ASSERT_EQ(sleeper[cpu], waitpid(sleeper[cpu], &status, 0));
			ASSERT_EQ(0, status);
			if (wait[cpu] > worst)
				worst = wait[cpu];
		}
		TH_LOG("longest wait for a CPU: %.1f ms; %ld memcgs, %d CPUs, %lu requests",
		       worst, nr_wait_memcgs, nr, __atomic_load_n(requests, __ATOMIC_RELAXED));
		if (worst < best)
			best = worst;
	}
	for (cpu = 0; cpu < nr; cpu++) {
		/* Still at it, so there was somebody to wait for */
		EXPECT_EQ(0, waitpid(writer[cpu], &status, WNOHANG));
		kill(writer[cpu], SIGKILL);
	}
	for (cpu = 0; cpu < nr; cpu++)
		waitpid(writer[cpu], &status, 0);
	EXPECT_LE(best, MAX_WAIT_MS)
		TH_LOG("root reclaim keeps a CPU for itself");
	munmap(wait, page_size);
	remove_memcgs(_metadata, &self->env, "m", nr_wait_memcgs);
}

TEST_HARNESS_MAIN
