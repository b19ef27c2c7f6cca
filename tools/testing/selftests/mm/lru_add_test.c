// SPDX-License-Identifier: GPL-2.0
/*
 * Folios that die before they get to an LRU list.
 *
 * A new folio waits in a batch of the CPU it was made on.  When the batch is
 * drained, folios to which nobody but the batch refers any more are to be freed
 * instead of being put on an LRU list.  These tests see that none of them gets
 * there, that nothing of their former use is left on them when they are freed,
 * and that the live ones around them are not lost.
 *
 * Insertions are counted in the kernel, by a histogram of the reference counts
 * of folios at the tracepoint mm_lru_insertion.
 *
 * Needs root, two CPUs and cgroup v2 with the memory controller.  Swap, and a
 * file system that is not in memory only, are made on new zram devices.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "cgroup_util.h"
#include "memcg_test_util.h"

#define TRACING		"/sys/kernel/tracing"

/* Harness limit of one test: a backstop */
#define TEST_LIMIT	300
/* Bound of each single wait, in seconds */
#define WAIT_LIMIT	30

#define NR_MEMCGS	3

/* Folios in a batch: PAGEVEC_SIZE, or FOLIO_BATCH_SIZE, of the kernel */
#define BATCH		31

/*
 * Pages that a CPU may have charged ahead: MEMCG_CHARGE_BATCH of the kernel.  Up
 * to 6.14 a CPU also keeps as many swap slots that are free but still charged.
 */
#define CHARGE_BATCH	64

/* The two CPUs that are used */
static int cpus[2];
static cpu_set_t all_cpus;
static bool have_cpus;

static void __attribute__((constructor)) find_cpus(void)
{
	int cpu, nr = 0;

	page_size = sysconf(_SC_PAGESIZE);
	timeout = WAIT_LIMIT;
	sched_getaffinity(0, sizeof(all_cpus), &all_cpus);
	for (cpu = 0; cpu < CPU_SETSIZE && nr < 2; cpu++) {
		if (CPU_ISSET(cpu, &all_cpus))
			cpus[nr++] = cpu;
	}
	have_cpus = nr == 2;
}

/* --- small helpers --------------------------------------------------------- */

/* What goes wrong in a child shows in its exit status, and here */
static void check(bool ok, const char *what)
{
	if (ok)
		return;
	ksft_print_msg("%s: %s\n", what, strerror(errno));
	_exit(EXIT_FAILURE);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	check(!sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

static char *map_anon(long pages)
{
	char *map = mmap(NULL, pages * page_size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(map != MAP_FAILED, "mmap");
	return map;
}

static void *map_shared(size_t size)
{
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(map != MAP_FAILED, "mmap");
	return map;
}

static void touch(char *map, long pages)
{
	long i;

	for (i = 0; i < pages; i++)
		map[i * page_size] = 1;
}

static void look_at(const char *map, long pages)
{
	long i;

	for (i = 0; i < pages; i++)
		asm volatile("" : : "r" (map[i * page_size]));
}

/*
 * Empty the batches of all CPUs: each holds references to folios.  MADV_COLD
 * begins with that on the CPU it is called on.
 */
static void drain_cpus(void)
{
	char *map = map_anon(1);
	int cpu;

	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all_cpus))
			continue;
		pin(cpu);
		check(!madvise(map, page_size, MADV_COLD), "MADV_COLD");
	}
	sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
	munmap(map, page_size);
}

/* --- zram ------------------------------------------------------------------ */

static int new_zram(const char *size)
{
	char path[64];
	int id = zram_add();

	if (id < 0)
		return -1;
	snprintf(path, sizeof(path), "/sys/block/zram%d", id);
	if (write_str(path, "disksize", size))
		return -1;
	/* devtmpfs or udev make the node */
	snprintf(path, sizeof(path), "/dev/zram%d", id);
	return wait_until(!access(path, R_OK | W_OK)) ? id : -1;
}

static bool swap_on(int id)
{
	char cmd[128], dev[64];

	snprintf(dev, sizeof(dev), "/dev/zram%d", id);
	snprintf(cmd, sizeof(cmd), "mkswap %s >/dev/null 2>&1", dev);
	return !system(cmd) && !swapon(dev, 0);
}

/*
 * A mount that is nowhere in the tree of directories, and goes away with its
 * last descriptor.  No journal: it would hold references to pages.
 */
static int mount_ext4(int id)
{
	char cmd[128], dev[64];
	int fs, fd = -1;

	snprintf(dev, sizeof(dev), "/dev/zram%d", id);
	snprintf(cmd, sizeof(cmd),
		 "mkfs.ext4 -q -F -O ^has_journal %s >/dev/null 2>&1", dev);
	if (system(cmd))
		return -1;
	fs = syscall(__NR_fsopen, "ext4", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -1;
	if (!syscall(__NR_fsconfig, fs, FSCONFIG_SET_STRING, "source", dev, 0) &&
	    !syscall(__NR_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fd = syscall(__NR_fsmount, fs, FSMOUNT_CLOEXEC, 0);
	close(fs);
	return fd;
}

/* --- counting insertions --------------------------------------------------- */

/*
 * An event probe reads the reference count of the folio that the tracepoint
 * mm_lru_insertion tells of.  _refcount of struct folio, which is that of struct
 * page, is behind the flags, five words whose use depends on the type of page,
 * and an int.  At the time of the event the batch holds a reference: a folio
 * with a count of 1 is dead, a live page of a single mapping has 2.
 *
 * The histogram is made in the kernel, so nothing is lost to a full buffer.
 */
#define REFCOUNT_OFFSET	(6 * sizeof(long) + sizeof(int))

#define EVENT_NAME	"lru_add_test/insertion"
#define EVENT_DIR	TRACING "/events/" EVENT_NAME

/* Far above what holders of the pages here add up to */
#define MAX_REFS	64

struct count {
	unsigned long total;
	unsigned long dropped;		/* by the histogram */
	unsigned long odd;		/* reference counts that can't be */
	unsigned long refs[MAX_REFS];
};

/* NULL, or why this kernel can't count: features it was configured without */
static const char *why_no_count(void)
{
	static char text[65536];
	ssize_t len;

	if (access(TRACING "/README", R_OK) &&
	    system("mount -t tracefs none " TRACING " 2>/dev/null"))
		return "kernel without tracefs";
	if (access(TRACING "/events/pagemap/mm_lru_insertion", F_OK))
		return "kernel without trace events";
	len = read_text(TRACING "/README", text, sizeof(text));
	text[len > 0 ? len : 0] = '\0';
	if (!strstr(text, "<attached-event>"))
		return "kernel without event probes (CONFIG_EPROBE_EVENTS)";
	if (!strstr(text, "hist trigger"))
		return "kernel without CONFIG_HIST_TRIGGERS";
	return NULL;
}

static bool count_start(void)
{
	char probe[128];
	int fd, ret;

	snprintf(probe, sizeof(probe),
		 "e:%s pagemap/mm_lru_insertion refs=+%zu($folio):s32",
		 EVENT_NAME, REFCOUNT_OFFSET);
	fd = open(TRACING "/dynamic_events", O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return false;
	ret = write(fd, probe, strlen(probe));
	close(fd);
	return ret > 0 && !write_str(EVENT_DIR, "trigger", "hist:keys=refs");
}

/* Also called when there is nothing to stop */
static bool count_stop(void)
{
	if (access(EVENT_DIR, F_OK))
		return true;
	write_str(EVENT_DIR, "trigger", "!hist:keys=refs");
	return !write_str(TRACING, "dynamic_events", "-:" EVENT_NAME);
}

static bool count_read(struct count *count)
{
	FILE *file = fopen(EVENT_DIR "/hist", "re");
	unsigned long hits;
	char line[256];
	long refs;

	memset(count, 0, sizeof(*count));
	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "{ refs: %ld } hitcount: %lu", &refs, &hits) == 2) {
			count->total += hits;
			if (refs > 0 && refs < MAX_REFS)
				count->refs[refs] += hits;
			else
				count->odd += hits;
		}
		sscanf(line, " Dropped: %lu", &count->dropped);
	}
	fclose(file);
	return true;
}

static void count_print(const char *what, struct count *count)
{
	ksft_print_msg("%s: %lu insertions, %lu of dead folios (%.4f %%)\n",
		       what, count->total, count->refs[1],
		       count->total ? 100.0 * count->refs[1] / count->total : 0.0);
}

/* --- set-up ---------------------------------------------------------------- */

enum { NR_FILES = 2 };

/* What the processes of a test share */
struct shared {
	pthread_barrier_t barrier;
	bool stop;
	unsigned long rounds[NR_MEMCGS];
	/* of the keeper's pages, and how often something was wrong with them */
	unsigned long generation;
	unsigned long lost_anon;
	unsigned long lost_file;
};

struct env {
	char root[PATH_MAX];		/* mount point of cgroup v2 */
	char top[PATH_MAX];		/* parent of all memcgs made here */
	bool delegated;			/* memory was not enabled below the root */
	int swap;			/* zram devices, or -1 */
	int disk;
	int mount;			/* of the file system on disk, or -1 */
	int kmsg;
	bool counting;
	struct shared *shared;
};

static bool clean_up(struct env *env)
{
	char dev[64];
	bool ok = true;

	if (env->top[0] && !remove_tree(env->top))
		ok = false;
	if (env->delegated &&
	    write_str(env->root, "cgroup.subtree_control", "-memory"))
		ok = false;
	if (env->counting && !count_stop())
		ok = false;
	if (env->swap >= 0) {
		snprintf(dev, sizeof(dev), "/dev/zram%d", env->swap);
		/* EINVAL: it never was turned on */
		if (swapoff(dev) && errno != EINVAL)
			ok = false;
		if (!zram_remove(env->swap))
			ok = false;
	}
	if (env->disk >= 0 && !zram_remove(env->disk))
		ok = false;
	return ok;
}

static const char *set_up(struct env *env)
{
	env->swap = -1;
	env->disk = -1;
	env->mount = -1;

	if (geteuid())
		return "needs root";
	if (!have_cpus)
		return "needs two CPUs: where a folio is made, and where it dies";
	if (cg_find_unified_root(env->root, sizeof(env->root), NULL))
		return "cgroup v2 is not mounted";
	if (cg_read_strstr(env->root, "cgroup.controllers", "memory"))
		return "no memory controller on cgroup v2";

	if (cg_read_strstr(env->root, "cgroup.subtree_control", "memory")) {
		if (write_str(env->root, "cgroup.subtree_control", "+memory"))
			return "the memory controller can't be enabled";
		env->delegated = true;
	}
	path_fmt(env->top, sizeof(env->top), "%s/lru_add_test.%d",
		 env->root, getpid());
	if (mkdir(env->top, 0755)) {
		env->top[0] = '\0';
		return "no cgroup can be made";
	}
	if (write_str(env->top, "cgroup.subtree_control", "+memory"))
		return "no memcgs can be made below a cgroup";

	env->swap = new_zram("512M");
	env->disk = new_zram("64M");
	if (env->disk >= 0)
		env->mount = mount_ext4(env->disk);
	if (env->mount < 0)
		ksft_print_msg("no ext4 on zram: page cache is that of tmpfs only\n");
	env->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (env->kmsg < 0)
		return "/dev/kmsg can't be read";
	/* What is there now was not our doing */
	lseek(env->kmsg, 0, SEEK_END);
	env->shared = map_shared(sizeof(*env->shared));
	return NULL;
}

FIXTURE(lru_add)
{
	struct env env;
};

FIXTURE_SETUP(lru_add)
{
	const char *why = set_up(&self->env);

	if (why) {
		/* There is no tear-down after a set-up that failed */
		EXPECT_TRUE(clean_up(&self->env));
		SKIP(return, "%s", why);
	}
}

/* In the parent, so that it is done however the test ends */
FIXTURE_TEARDOWN_PARENT(lru_add)
{
	EXPECT_TRUE(clean_up(&self->env))
		TH_LOG("something was left behind by %s", self->env.top);
}

static void memcg_path(struct env *env, char *buf, const char *name, long i)
{
	path_fmt(buf, PATH_MAX, "%s/%s%ld", env->top, name, i);
}

/* Have @fn run by a process in a new memcg; its process id */
static int start(struct env *env, const char *name, long i, const char *max,
		 int (*fn)(const char *cg, void *arg), void *arg)
{
	char path[PATH_MAX];

	memcg_path(env, path, name, i);
	if (mkdir(path, 0755) || write_str(path, "memory.max", max))
		return -1;
	return cg_run_nowait(path, fn, arg);
}

/* Wait for @nr children; if one fails, others may wait for it: kill them all */
static bool all_end_well(struct env *env, int nr)
{
	bool ok = true;
	int status;

	while (nr--) {
		if (wait(&status) < 0)
			return false;
		if (ok && status) {
			ok = false;
			cg_killall(env->top);
		}
	}
	return ok;
}

/* On a disk's file system if there is one; -1 fails in who uses it */
static int new_file(struct env *env)
{
	if (env->mount < 0)
		return memfd_create("lru_add_test", MFD_CLOEXEC);
	return openat(env->mount, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* --- workers --------------------------------------------------------------- */

/* A process with a thread on each of the two CPUs, and what they share */
struct worker {
	struct env *env;
	int id;
	int nr_files;
	int files[NR_FILES];
	pthread_barrier_t *barrier;
	void (*body)(struct worker *w, int side);
	/* as the body needs it */
	char *map;
	long window;
	bool mlocked;
	bool last;
};

struct thread {
	struct worker *w;
	int side;
};

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	/* Both CPUs are to make pages, and to free those of the other */
	pin(cpus[(t->side + t->w->id) % 2]);
	t->w->body(t->w, t->side);
	return NULL;
}

/* One on tmpfs and, if there is one, one on a file system with a block device */
static void open_file(struct worker *w, int i)
{
	if (i == 0)
		w->files[i] = memfd_create("lru_add_test", MFD_CLOEXEC);
	else
		w->files[i] = new_file(w->env);
	check(w->files[i] >= 0, "making a file");
}

static void write_pages(int fd, long first, long nr)
{
	static const char buf[64];
	long i;

	/* A write to each page makes it, and makes it a folio of its own */
	for (i = first; i < first + nr; i++)
		check(pwrite(fd, buf, sizeof(buf), i * page_size) == sizeof(buf),
		      "pwrite");
}

static int run_worker(struct worker *w)
{
	struct thread t[2] = { { w, 0 }, { w, 1 } };
	pthread_t other;
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	w->nr_files = w->env->mount < 0 ? 1 : NR_FILES;
	for (i = 0; i < w->nr_files; i++)
		open_file(w, i);
	check(!pthread_create(&other, NULL, thread_main, &t[1]), "pthread_create");
	thread_main(&t[0]);
	pthread_join(other, NULL);
	return EXIT_SUCCESS;
}

/* --- dead folios are not inserted ------------------------------------------ */

/*
 * In each round one CPU makes pages in all memcgs, then the other one frees
 * those that are short-lived.  The last of them are in the batch of the first
 * CPU, which drains it in the next round when it is full.  All memcgs are in
 * lock step and only one CPU works at a time, so that no folio can die between
 * being looked at and being inserted.
 */
#define NR_ROUNDS	6000
/* Then the CPUs swap roles */
#define TURN		50
/* Pages a round: short-lived ones of each kind, and anonymous ones that stay */
#define SHORT_PAGES	2
#define LIVE_PAGES	4
/* ... for that many rounds */
#define LIVE_ROUNDS	8

static void lock_step(struct worker *w, int side)
{
	char *live[LIVE_ROUNDS] = { };
	int round, i;

	for (round = 0; round < NR_ROUNDS; round++) {
		bool fills = (round / TURN) % 2 == side;
		int slot = round % LIVE_ROUNDS;

		if (fills) {
			if (live[slot])
				munmap(live[slot], LIVE_PAGES * page_size);
			live[slot] = map_anon(LIVE_PAGES);
			touch(live[slot], LIVE_PAGES);

			w->map = map_anon(SHORT_PAGES);
			touch(w->map, SHORT_PAGES);
			for (i = 0; i < w->nr_files; i++)
				write_pages(w->files[i], 0, SHORT_PAGES);
		}
		pthread_barrier_wait(w->barrier);
		if (!fills) {
			munmap(w->map, SHORT_PAGES * page_size);
			for (i = 0; i < w->nr_files; i++) {
				if (round % 2) {
					check(!ftruncate(w->files[i], 0), "ftruncate");
				} else {
					/* The same by removing the file */
					close(w->files[i]);
					open_file(w, i);
				}
			}
		}
		pthread_barrier_wait(w->barrier);
	}
}

static int dead_worker(const char *cg, void *arg)
{
	struct worker w = {
		.env = arg,
		.barrier = &((struct env *)arg)->shared->barrier,
		.body = lock_step,
	};

	return run_worker(&w);
}

TEST_F_TIMEOUT(lru_add, dead_folios_are_not_inserted, TEST_LIMIT)
{
	struct env *env = &self->env;
	const char *why = why_no_count();
	pthread_barrierattr_t attr;
	unsigned long allowed;
	struct count count;
	int i;

	if (why)
		SKIP(return, "%s", why);

	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	ASSERT_EQ(0, pthread_barrier_init(&env->shared->barrier, &attr,
					  2 * NR_MEMCGS));

	count_stop();
	env->counting = true;
	ASSERT_TRUE(count_start())
		TH_LOG("see %s/error_log", TRACING);
	for (i = 0; i < NR_MEMCGS; i++)
		ASSERT_LT(0, start(env, "m", i, "max", dead_worker, env));
	ASSERT_TRUE(all_end_well(env, NR_MEMCGS));
	ASSERT_TRUE(count_read(&count));
	count_print("in lock step", &count);

	/*
	 * That the counts are counts: the pages that stay had the references of
	 * one mapping and of the batch when they were inserted.  A few are still
	 * in a batch when the CPUs swap roles, and are unmapped before it is
	 * drained.
	 */
	EXPECT_EQ(0, count.odd);
	EXPECT_EQ(0, count.dropped);
	ASSERT_LE(NR_MEMCGS * NR_ROUNDS * LIVE_PAGES / 2, count.refs[2]);

	/*
	 * The workload leaves no chance to die between look and insertion.  The
	 * rest of the system may: then one batch can be full of such folios, if
	 * its CPU is halted just there by a hypervisor, say.
	 */
	allowed = count.total / 1000000;
	if (allowed < BATCH)
		allowed = BATCH;
	EXPECT_GE(allowed, count.refs[1]);
}

/* --- no harm: workers that refault, fork, lock and truncate ---------------- */

#define CHURN_SECONDS	3
#define MIN_ROUNDS	20

#define CHURN_MAX	"64M"
#define CHURN_PAGES	(80L * 1024 * 1024 / page_size)
#define FILE_PAGES	256

/* Pages that are made, and freed on the other CPU, at a time: less than BATCH */
#define WINDOW		12

/* Not random(): that takes a lock which a forked child would inherit */
static unsigned long rnd(unsigned long *state)
{
	*state = *state * 1103515245 + 12345;
	return (*state >> 16) & 0x7fff;
}

static void child_writes(char *map, long pages)
{
	pid_t pid = fork();
	int status;

	check(pid >= 0, "fork");
	if (!pid) {
		touch(map, pages);
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid && !status, "child");
}

/*
 * Side 0 makes pages, then has some swapped in, which side 1 frees.  Only reads
 * leave those in the batch until then: before a write to a page in the swap
 * cache do_swap_page() drains it.
 */
static void churn(struct worker *w, int side)
{
	unsigned long seed = w->id + 1, round;
	double end = 0;
	long at;
	int i;

	if (side == 0) {
		w->map = map_anon(CHURN_PAGES);
		/* May fail: there may be no THP */
		madvise(w->map, CHURN_PAGES / 4 * page_size, MADV_HUGEPAGE);
		touch(w->map, CHURN_PAGES);
		end = now() + CHURN_SECONDS;
	}

	for (round = 0; ; round++) {
		if (side == 0) {
			/* What was freed is made anew: the memcg stays full */
			touch(w->map + w->window * page_size, WINDOW);
			if (round % 16 == 5)
				child_writes(w->map + w->window * page_size, WINDOW);

			/* Every other time from a part that is hot for that */
			at = rnd(&seed) % (CHURN_PAGES / (round & 1 ? 1 : 4) / WINDOW);
			w->window = at * WINDOW;
			for (i = 0; i < w->nr_files; i++)
				write_pages(w->files[i], w->window % FILE_PAGES, WINDOW);
			look_at(w->map + w->window * page_size, WINDOW);
			w->mlocked = round % 7 == 0;
			if (w->mlocked)
				check(!mlock(w->map + w->window * page_size,
					     WINDOW * page_size), "mlock");
			w->env->shared->rounds[w->id] = round;
			w->last = round >= MIN_ROUNDS && now() > end;
		}
		pthread_barrier_wait(w->barrier);
		if (w->last)
			break;
		if (side == 1) {
			char *win = w->map + w->window * page_size;

			/* DONTNEED leaves locked pages alone, a new mapping does not */
			if (w->mlocked)
				check(mmap(win, WINDOW * page_size, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
					   -1, 0) == win, "mmap");
			else if (round % 4)
				check(!madvise(win, WINDOW * page_size, MADV_DONTNEED),
				      "MADV_DONTNEED");
			for (i = 0; i < w->nr_files; i++) {
				if (round % 16 == 0)
					check(!ftruncate(w->files[i], 0), "ftruncate");
				else
					check(!fallocate(w->files[i],
							 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
							 w->window % FILE_PAGES * page_size,
							 WINDOW * page_size), "punching a hole");
			}
		}
		pthread_barrier_wait(w->barrier);
	}
}

static int churn_worker(const char *cg, void *arg)
{
	struct worker *w = arg;
	pthread_barrier_t barrier;

	check(!pthread_barrier_init(&barrier, NULL, 2), "barrier");
	w->barrier = &barrier;
	return run_worker(w);
}

/* --- no harm: somebody whose pages live ------------------------------------ */

#define KEPT_PAGES	1024

struct keeper {
	struct env *env;
	int fd;
};

static uint64_t stamp(long page, unsigned long generation)
{
	return (uint64_t)generation << 32 | (page * 2654435761UL & 0xffffffff);
}

static void fill_page(uint64_t *buf, long page, unsigned long generation)
{
	size_t i;

	for (i = 0; i < page_size / sizeof(*buf); i++)
		buf[i] = stamp(page, generation) + i;
}

static bool page_is(const uint64_t *buf, long page, unsigned long generation)
{
	size_t i;

	for (i = 0; i < page_size / sizeof(*buf); i++) {
		if (buf[i] != stamp(page, generation) + i)
			return false;
	}
	return true;
}

static bool file_is(int fd, unsigned long generation)
{
	uint64_t *buf = malloc(page_size);
	bool ok = buf;
	long i;

	for (i = 0; i < KEPT_PAGES && ok; i++) {
		ok = pread(fd, buf, page_size, i * page_size) == page_size &&
		     page_is(buf, i, generation);
	}
	free(buf);
	return ok;
}

static bool anon_is(const uint64_t *map, unsigned long generation)
{
	long i;

	for (i = 0; i < KEPT_PAGES; i++) {
		if (!page_is(map + i * page_size / sizeof(*map), i, generation))
			return false;
	}
	return true;
}

/*
 * Fill anonymous memory and a file, see that all is still there, start again.
 * The pages go through the same batches as those of the workers.  There is a
 * last look at them when all workers have ended; those of the file then stay.
 */
static int keep(const char *cg, void *arg)
{
	struct keeper *k = arg;
	struct shared *shared = k->env->shared;
	uint64_t *map, *page;
	bool stop;
	long i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	do {
		map = (uint64_t *)map_anon(KEPT_PAGES);
		check(!ftruncate(k->fd, 0), "ftruncate");
		shared->generation++;
		for (i = 0; i < KEPT_PAGES; i++) {
			if (i % BATCH == 0)
				pin(cpus[i / BATCH % 2]);
			page = map + i * page_size / sizeof(*map);
			fill_page(page, i, shared->generation);
			check(pwrite(k->fd, page, page_size, i * page_size) == page_size,
			      "pwrite");
		}
		stop = __atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE);
		if (!anon_is(map, shared->generation))
			shared->lost_anon++;
		if (!file_is(k->fd, shared->generation))
			shared->lost_file++;
		munmap(map, KEPT_PAGES * page_size);
	} while (!stop);
	return EXIT_SUCCESS;
}

/* --- no harm --------------------------------------------------------------- */

/*
 * Let workers in several memcgs make pages and free them on the other CPU, and a
 * keeper in one of its own fill @fd, for some seconds.
 */
static void run_churn(struct __test_metadata *_metadata, struct env *env, int fd)
{
	struct keeper keeper = { .env = env, .fd = fd };
	struct worker w[NR_MEMCGS];
	bool count = !why_no_count();
	unsigned long refaults = 0, active = 0;
	struct count inserted;
	char path[PATH_MAX];
	int keeper_pid, i, status;

	count_stop();
	env->counting = count;
	if (count)
		ASSERT_TRUE(count_start());

	for (i = 0; i < NR_MEMCGS; i++) {
		w[i] = (struct worker) { .env = env, .id = i, .body = churn };
		ASSERT_LT(0, start(env, "m", i, CHURN_MAX, churn_worker, &w[i]));
	}
	keeper_pid = start(env, "k", 0, "max", keep, &keeper);
	ASSERT_LT(0, keeper_pid);
	ASSERT_TRUE(all_end_well(env, NR_MEMCGS));
	__atomic_store_n(&env->shared->stop, true, __ATOMIC_RELEASE);
	ASSERT_EQ(keeper_pid, waitpid(keeper_pid, &status, 0));
	ASSERT_EQ(0, status);

	/* That there was what these tests are about */
	for (i = 0; i < NR_MEMCGS; i++) {
		memcg_path(env, path, "m", i);
		refaults += cg_read_key_long(path, "memory.stat",
					     "workingset_refault_anon ");
		active += cg_read_key_long(path, "memory.stat",
					   "workingset_activate_anon ");
	}
	ksft_print_msg("%lu rounds, %lu refaults (%lu active), %lu generations of pages\n",
		       env->shared->rounds[0], refaults, active,
		       env->shared->generation);
	EXPECT_LT(100, refaults);
	if (count) {
		ASSERT_TRUE(count_read(&inserted));
		/* No limit: here folios may die in the moment before insertion */
		count_print("in disorder", &inserted);
	}
	drain_cpus();
}

/* Read what is new in the kernel's log; whether it tells of a bad page */
static bool log_has_bad_page(struct env *env)
{
	char line[8192];
	bool bad = false;
	ssize_t len;

	for (;;) {
		len = read(env->kmsg, line, sizeof(line) - 1);
		if (len < 0 && errno == EPIPE)
			continue;	/* some were overwritten */
		if (len <= 0)
			return bad;
		line[len] = '\0';
		if (strcasestr(line, "bad page")) {
			if (!bad)
				ksft_print_msg("%.*s\n", (int)strcspn(line, "\n"), line);
			bad = true;
		}
	}
}

/* TAINT_BAD_PAGE and TAINT_WARN */
static long taint(void)
{
	char buf[32];

	if (read_text("/proc/sys/kernel/tainted", buf, sizeof(buf)) <= 0)
		return -1;
	return atol(buf) & (1 << 5 | 1 << 9);
}

TEST_F_TIMEOUT(lru_add, freed_folios_are_clean, TEST_LIMIT)
{
	struct env *env = &self->env;
	long before = taint();

	if (env->swap < 0)
		SKIP(return, "no zram to swap to");
	ASSERT_TRUE(swap_on(env->swap));
	run_churn(_metadata, env, new_file(env));

	EXPECT_FALSE(log_has_bad_page(env));
	EXPECT_LE(0, before);
	EXPECT_EQ(before, taint());
}

/* Pages, of all CPUs */
static long mlocked_pages(void)
{
	char line[128];
	FILE *file;
	long nr = -1;

	write_str("/proc/sys/vm", "stat_refresh", "1");
	file = fopen("/proc/vmstat", "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file) && nr < 0)
		sscanf(line, "nr_mlock %ld", &nr);
	fclose(file);
	return nr;
}

/*
 * No page of users is charged any more.  Memory of the kernel may be, slabs for
 * instance; then memory.current is that and what CPUs have charged ahead.
 * memory.stat may lag behind by two seconds.
 */
static bool is_uncharged(const char *cg)
{
	long stock = CHARGE_BATCH * CPU_COUNT(&all_cpus) * page_size;
	long rest = cg_read_long(cg, "memory.current") -
		    cg_read_key_long(cg, "memory.stat", "\nkernel ");

	return !cg_read_key_long(cg, "memory.stat", "anon ") &&
	       !cg_read_key_long(cg, "memory.stat", "\nfile ") &&
	       !cg_read_key_long(cg, "memory.stat", "\nshmem ") &&
	       cg_read_long(cg, "memory.swap.current") <= stock &&
	       rest <= stock;
}

TEST_F_TIMEOUT(lru_add, freed_folios_are_uncharged, TEST_LIMIT)
{
	struct env *env = &self->env;
	char path[PATH_MAX], stat[4096];
	long locked = mlocked_pages();
	int fd, i;

	if (env->swap < 0)
		SKIP(return, "no zram to swap to");
	ASSERT_TRUE(swap_on(env->swap));
	fd = new_file(env);
	run_churn(_metadata, env, fd);

	/* With the file system goes what it has cached of its device */
	close(fd);
	if (env->mount >= 0)
		close(env->mount);
	EXPECT_TRUE(wait_until(mlocked_pages() == locked))
		TH_LOG("nr_mlock %ld, was %ld", mlocked_pages(), locked);
	for (i = 0; i < NR_MEMCGS; i++) {
		memcg_path(env, path, "m", i);
		EXPECT_TRUE(wait_until(is_uncharged(path))) {
			cg_read(path, "memory.stat", stat, sizeof(stat));
			TH_LOG("%s: memory.current %ld, memory.swap.current %ld, memory.stat %s",
			       path, cg_read_long(path, "memory.current"),
			       cg_read_long(path, "memory.swap.current"), stat);
		}
		EXPECT_EQ(0, remove_memcg(path));
	}
}

TEST_F_TIMEOUT(lru_add, live_pages_keep_their_content, TEST_LIMIT)
{
	struct env *env = &self->env;
	int fd = new_file(env);

	if (env->swap < 0)
		SKIP(return, "no zram to swap to");
	ASSERT_TRUE(swap_on(env->swap));
	run_churn(_metadata, env, fd);

	EXPECT_EQ(0, env->shared->lost_anon);
	EXPECT_EQ(0, env->shared->lost_file);
	EXPECT_TRUE(file_is(fd, env->shared->generation));
}

/* Reclaim finds on the LRU lists what it takes */
TEST_F_TIMEOUT(lru_add, live_page_cache_is_reclaimable, TEST_LIMIT)
{
	struct env *env = &self->env;
	char path[PATH_MAX];
	int fd;

	if (env->swap < 0)
		SKIP(return, "no zram to swap to");
	if (env->mount < 0)
		SKIP(return, "no page cache but that of tmpfs: no ext4 on zram");
	ASSERT_TRUE(swap_on(env->swap));
	fd = new_file(env);
	run_churn(_metadata, env, fd);

	/* Dirty pages would have to be written first */
	ASSERT_EQ(0, fsync(fd));
	ASSERT_EQ(KEPT_PAGES, resident(fd, 0, KEPT_PAGES));
	memcg_path(env, path, "k", 0);
	/* EAGAIN, when it finds less than it is asked for, is no end by itself */
	EXPECT_TRUE(wait_until(write_str(path, "memory.reclaim", "64M") &&
			       !resident(fd, 0, KEPT_PAGES)))
		TH_LOG("%ld of %d pages are not reclaimed",
		       resident(fd, 0, KEPT_PAGES), KEPT_PAGES);
	/* Nor has it gone with them */
	EXPECT_TRUE(file_is(fd, env->shared->generation));
}

TEST_HARNESS_MAIN
