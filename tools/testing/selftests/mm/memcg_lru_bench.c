// SPDX-License-Identifier: GPL-2.0
/*
 * memcg_lru_bench - what one failing reclaim request costs when there are many memcgs
 *
 * Makes N memory cgroups, each of which is charged for a little tmpfs, and lets
 * W writers ask for far more memory than there is through the root's
 * memory.reclaim, with swappiness=0. Nothing can be reclaimed: each request
 * walks all memcgs again and again, on every priority and retry, and then ends
 * in EAGAIN. What is left of the cost is the walk over the memcgs itself and
 * the rotation of each of them on the memcg LRU.
 *
 * Four things can be measured:
 *   --requests R  R requests from each writer: the time of each, and under
 *                 QEMU's -icount with one virtual CPU also guest instructions
 *   --seconds T   as many requests as W writers get done in T seconds
 *   --mkdir M     the cost of making M memcgs, per thousand
 *   --latency T   what others wait for meanwhile, for T seconds: an ordinary
 *                 task that was woken up, for a CPU; an RCU grace period; a Tasks
 *                 RCU grace period
 *
 * With --dying D there are D memcgs more, which were removed and stay around,
 * offline, since each is referred to by a socket that was made in it.
 *
 * It is a measuring tool, not a test: it is built and installed with the tests,
 * but no test runs it. Comments go to stderr; the result is one JSON object on
 * one line of stdout. Everything made is removed at the end, also after an error
 * or SIGINT; the tmpfs has no mount point and goes away with the process.
 *
 * How instructions are counted: under "-icount shift=S" QEMU advances the guest's
 * clock, and with it the TSC, by 2^S ns for each instruction executed, whatever
 * the host does. Two loops with a known number of instructions, one of cheap and
 * one of expensive ones, tell whether this is so: only then do both take the same
 * power of two of TSC ticks per instruction. The count includes everything the
 * CPU did meanwhile, among it the periodic timer interrupt; how much that is, is
 * measured with a longer loop and reported as "interrupt_share".
 *
 * How waiting is measured: on each CPU a task with the default policy sleeps for
 * a millisecond at a time, and how much later than asked for it runs again is its
 * wait. membarrier(MEMBARRIER_CMD_GLOBAL) lasts one RCU grace period where there
 * are at least two CPUs. For a Tasks RCU grace period a kprobe that nothing hits
 * is optimized and unoptimized, which the kernel does behind such a grace period;
 * where kprobes or the optimization are not built in, none is reported. Without
 * CONFIG_PREEMPTION both kinds of grace period are the same.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <linux/sched.h>
#include <mntent.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_SKIP	4	/* what kselftest calls KSFT_SKIP */
#define REQUEST		"1024M swappiness=0"
#define MAX_WARMUP	20	/* requests until their cost is the same */
#define MAX_SAMPLES	65536	/* latencies kept per writer or observer */
#define SLEEP_NS	1000000ULL	/* of the tasks whose waits are measured */
#define NSEC_PER_SEC	1000000000ULL

/* fsmount() is younger than some C libraries; the numbers are the same everywhere */
#ifndef SYS_fsopen
#define SYS_fsopen	430
#define SYS_fsconfig	431
#define SYS_fsmount	432
#endif
#define FSCONFIG_CREATE	6	/* FSCONFIG_CMD_CREATE */

struct sample {
	unsigned long long ns;
	unsigned long long ticks;
};

/* One per writer, in memory shared with the parent */
struct writer {
	unsigned long long requests;	/* counted ones */
	unsigned long long reclaimed;	/* requests that did not end in EAGAIN */
	int error;		/* errno of one that failed in another way */
	unsigned long long start_ns, end_ns;
	unsigned long long start_ticks, end_ticks;
	unsigned long long nr_samples;
	struct sample samples[MAX_SAMPLES];
};

/* Also shared: writers that have their counted requests behind them */
static int *nr_done;

static struct {
	unsigned long memcgs, dying, kib, writers, requests, seconds, mkdirs, step, latency;
	bool need_instructions, protect;
} opt = { .memcgs = 1500, .kib = 64, .writers = 1, .step = 1000 };

static char cgroup_root[256];		/* where cgroup v2 is mounted */
static char parent_path[320];		/* our own cgroup below it, once made */
static int parent_fd = -1;
static unsigned long nr_made;		/* memcgs below it */
static bool enabled_memory;		/* memory was not in the root's subtree_control */
static int tmpfs_fd = -1;
static pid_t *pids;			/* of the writers */
static pid_t *observer_pids;
static unsigned long nr_observers;
static bool made_kprobe;
static int kprobes_were_optimized = -1;	/* what to restore, or -1 */
static pid_t main_pid;
static int interrupted;			/* the signal, set by its handler */

static unsigned long long ticks_per_instruction;	/* 0: no instruction clock */
static double interrupt_share;

/* ---- kprobes, for the Tasks RCU grace period ---- */

#define TRACING		"/sys/kernel/tracing/"
#define KPROBE		"memcg_lru_bench"
#define KPROBE_ENABLE	TRACING "events/kprobes/" KPROBE "/enable"
#define OPTIMIZATION	"/proc/sys/debug/kprobes-optimization"

/* Returns false and sets errno if it cannot be written */
static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), error = 0;

	if (fd < 0)
		return false;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		error = errno;
	close(fd);
	errno = error;
	return !error;
}

static void restore_kprobes(void)
{
	if (made_kprobe) {
		made_kprobe = false;
		if (!write_file(KPROBE_ENABLE, "0") ||
		    !write_file(TRACING "kprobe_events", "-:" KPROBE))
			fprintf(stderr, "error: cannot remove the kprobe %s: %s\n",
				KPROBE, strerror(errno));
	}
	if (kprobes_were_optimized >= 0) {
		if (!write_file(OPTIMIZATION, kprobes_were_optimized ? "1" : "0"))
			fprintf(stderr, "error: cannot restore %s: %s\n",
				OPTIMIZATION, strerror(errno));
		kprobes_were_optimized = -1;
	}
}

/* ---- cleaning up, messages ---- */

static void cleanup(void)
{
	char name[32];
	unsigned long i;
	int status, fd;

	/* A child that fails must leave what it shares with us alone */
	if (getpid() != main_pid)
		return;
	for (i = 0; observer_pids && i < nr_observers; i++) {
		if (observer_pids[i] <= 0)
			continue;
		kill(observer_pids[i], SIGKILL);
		waitpid(observer_pids[i], &status, 0);
	}
	for (i = 0; pids && i < opt.writers; i++) {
		if (pids[i] <= 0)
			continue;
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
	}
	restore_kprobes();
	if (tmpfs_fd >= 0)
		close(tmpfs_fd);
	tmpfs_fd = -1;
	while (nr_made) {
		snprintf(name, sizeof(name), "m%lu", --nr_made);
		if (unlinkat(parent_fd, name, AT_REMOVEDIR))
			fprintf(stderr, "error: cannot remove %s/%s: %s\n",
				parent_path, name, strerror(errno));
	}
	if (parent_fd >= 0) {
		close(parent_fd);
		parent_fd = -1;
		if (rmdir(parent_path))
			fprintf(stderr, "error: cannot remove %s: %s\n",
				parent_path, strerror(errno));
	}
	if (enabled_memory) {
		snprintf(parent_path, sizeof(parent_path),
			 "%s/cgroup.subtree_control", cgroup_root);
		fd = open(parent_path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "-memory", 7) != 7)
			fprintf(stderr, "# memory stays enabled in %s: %s\n",
				parent_path, strerror(errno));
		if (fd >= 0)
			close(fd);
		enabled_memory = false;
	}
}

/* Says why on stderr, cleans up and ends the program */
#define stop(status, kind, fmt, ...)					\
do {									\
	fprintf(stderr, kind ": " fmt "\n", ##__VA_ARGS__);		\
	cleanup();							\
	exit(status);							\
} while (0)

#define die(fmt, ...)	stop(EXIT_FAILURE, "error", fmt, ##__VA_ARGS__)
#define skip(fmt, ...)	stop(EXIT_SKIP, "skip", fmt, ##__VA_ARGS__)

static void on_signal(int sig)
{
	__atomic_store_n(&interrupted, sig, __ATOMIC_RELAXED);
}

static void check_interrupted(void)
{
	int sig = __atomic_load_n(&interrupted, __ATOMIC_RELAXED);

	if (sig)
		die("interrupted by signal %d", sig);
}

/* ---- clocks ---- */

static unsigned long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

#ifdef __x86_64__
static unsigned long long now_ticks(void)
{
	unsigned int low, high;

	asm volatile("lfence\n\trdtsc" : "=a" (low), "=d" (high) : : "memory");
	return (unsigned long long)high << 32 | low;
}

/* Ticks that @turns turns of two instructions take */
static unsigned long long cheap_loop(unsigned long long turns)
{
	unsigned long long start = now_ticks();

	asm volatile("1:\n\t"
		     "dec %0\n\t"
		     "jnz 1b"
		     : "+r" (turns) : : "cc");
	return now_ticks() - start;
}

/* The same for turns of five, one of which is a slow division on real hardware */
static unsigned long long costly_loop(unsigned long long turns)
{
	unsigned long long start = now_ticks();

	asm volatile("1:\n\t"
		     "mov $-1, %%rax\n\t"
		     "mov $1, %%edx\n\t"
		     "div %1\n\t"
		     "dec %0\n\t"
		     "jnz 1b"
		     : "+r" (turns) : "r" (3UL) : "rax", "rdx", "cc");
	return now_ticks() - start;
}

/*
 * Ticks per instruction of a loop: the difference between a long and a short run,
 * so that entry and exit drop out; of each the quickest of many, which is one
 * that no interrupt came into.
 */
static double loop_ticks(unsigned long long (*loop)(unsigned long long), unsigned int per_turn)
{
	const unsigned long long turns = 100000 / per_turn;
	unsigned long long t, once = ULLONG_MAX, twice = ULLONG_MAX;
	int i;

	for (i = 0; i < 50; i++) {
		t = loop(turns);
		if (t < once)
			once = t;
		t = loop(2 * turns);
		if (t < twice)
			twice = t;
	}
	return ((double)twice - once) / (turns * per_turn);
}

static bool close_to(double a, double b)
{
	return a > b * 0.999 && a < b * 1.001;
}

static void find_instruction_clock(void)
{
	const unsigned long long turns = 50000000;
	double cheap = loop_ticks(cheap_loop, 2);
	double costly = loop_ticks(costly_loop, 5);
	unsigned long long power = 1;

	while (power < cheap * 0.999)
		power *= 2;
	fprintf(stderr,
		"# TSC ticks per instruction: %.4f in a loop of cheap ones, %.4f in one with divisions\n",
		cheap, costly);
	if (!close_to(cheap, power) || !close_to(costly, power)) {
		fprintf(stderr, "# the clock does not follow instructions: none are reported\n");
		return;
	}
	ticks_per_instruction = power;
	interrupt_share = (double)cheap_loop(turns) / power / (2 * turns) - 1;
	fprintf(stderr,
		"# the clock follows instructions: %llu ticks each; a loop of %llu M took %.2f %% more (interrupts)\n",
		power, 2 * turns / 1000000, interrupt_share * 100);
}
#else
static unsigned long long now_ticks(void)
{
	return 0;
}

static void find_instruction_clock(void)
{
	fprintf(stderr, "# instructions are counted on x86_64 only\n");
}
#endif

/* ---- files ---- */

static int open_at(int dir, const char *name, int flags)
{
	int fd = openat(dir, name, flags | O_CLOEXEC);

	if (fd < 0)
		die("cannot open %s: %s", name, strerror(errno));
	return fd;
}

/* Reads a small file whole; false if it cannot be read */
static bool read_at(int dir, const char *name, char *buf, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	if (fd < 0)
		return false;
	while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0)
		len += n;
	close(fd);
	buf[len] = '\0';
	return true;
}

/* ---- memcgs ---- */

static void find_cgroup_root(void)
{
	struct mntent *m;
	FILE *f;

	f = setmntent("/proc/self/mounts", "r");
	if (!f)
		die("cannot read /proc/self/mounts: %s", strerror(errno));
	while ((m = getmntent(f))) {
		if (strcmp(m->mnt_type, "cgroup2"))
			continue;
		if (strlen(m->mnt_dir) >= sizeof(cgroup_root))
			die("the path %s is too long", m->mnt_dir);
		memcpy(cgroup_root, m->mnt_dir, strlen(m->mnt_dir) + 1);
		break;
	}
	endmntent(f);
	if (!*cgroup_root)
		skip("cgroup v2 is not mounted");
}

/* All that is and will be charged to the memcg is below its memory.min */
static void protect(int dir, const char *name)
{
	int fd = open_at(dir, "memory.min", O_WRONLY);

	if (write(fd, "max", 3) != 3)
		die("cannot set memory.min of %s: %s", name, strerror(errno));
	close(fd);
}

/* Our own cgroup below the root, with the memory controller for its children */
static void make_parent(void)
{
	char buf[1024];
	int root, fd;

	root = open_at(AT_FDCWD, cgroup_root, O_RDONLY | O_DIRECTORY);
	if (!read_at(root, "cgroup.controllers", buf, sizeof(buf)) || !strstr(buf, "memory"))
		skip("%s has no memory controller", cgroup_root);
	if (faccessat(root, "memory.reclaim", W_OK, 0))
		skip("%s/memory.reclaim: %s", cgroup_root, strerror(errno));
	if (!read_at(root, "cgroup.subtree_control", buf, sizeof(buf)))
		die("cannot read %s/cgroup.subtree_control: %s", cgroup_root, strerror(errno));
	if (!strstr(buf, "memory")) {
		fd = open_at(root, "cgroup.subtree_control", O_WRONLY);
		if (write(fd, "+memory", 7) != 7)
			die("cannot enable memory in %s: %s", cgroup_root, strerror(errno));
		close(fd);
		enabled_memory = true;
	}
	close(root);

	snprintf(parent_path, sizeof(parent_path), "%s/memcg_lru_bench.%d",
		 cgroup_root, getpid());
	if (mkdir(parent_path, 0755))
		die("cannot make %s: %s", parent_path, strerror(errno));
	parent_fd = open(parent_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent_fd < 0) {
		int error = errno;

		rmdir(parent_path);
		die("cannot open %s: %s", parent_path, strerror(error));
	}
	fd = open_at(parent_fd, "cgroup.subtree_control", O_WRONLY);
	if (write(fd, "+memory", 7) != 7)
		die("cannot enable memory in %s: %s", parent_path, strerror(errno));
	close(fd);
	if (opt.protect)
		protect(parent_fd, parent_path);
}

static void make_memcg(void)
{
	char name[32];
	int dir;

	check_interrupted();
	snprintf(name, sizeof(name), "m%lu", nr_made);
	if (mkdirat(parent_fd, name, 0755))
		die("cannot make memcg %lu: %s", nr_made, strerror(errno));
	nr_made++;
	if (opt.protect) {
		dir = open_at(parent_fd, name, O_RDONLY | O_DIRECTORY);
		protect(dir, name);
		close(dir);
	}
}

/* A tmpfs without a mount point: no path to choose, nothing to unmount */
static void make_tmpfs(void)
{
	int fs = syscall(SYS_fsopen, "tmpfs", 1 /* FSOPEN_CLOEXEC */);

	if (fs < 0)
		die("cannot open tmpfs: %s", strerror(errno));
	if (syscall(SYS_fsconfig, fs, 1 /* FSCONFIG_SET_STRING */, "size", "100%", 0) ||
	    syscall(SYS_fsconfig, fs, 1, "nr_inodes", "0", 0) ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_CREATE, NULL, NULL, 0))
		die("cannot configure tmpfs: %s", strerror(errno));
	tmpfs_fd = syscall(SYS_fsmount, fs, 1 /* FSMOUNT_CLOEXEC */, 0);
	if (tmpfs_fd < 0)
		die("cannot mount tmpfs: %s", strerror(errno));
	close(fs);
}

/*
 * Charges the newest memcg for a file: written by a child that is born in the
 * memcg, which is much cheaper than moving a process in and out.
 */
static void fill_memcg(const char *data)
{
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
	};
	char name[32];
	int status, cgroup, file;
	pid_t pid;

	snprintf(name, sizeof(name), "m%lu", nr_made - 1);
	cgroup = open_at(parent_fd, name, O_RDONLY | O_DIRECTORY);
	args.cgroup = cgroup;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		die("cannot start a process in memcg %s: %s", name, strerror(errno));
	if (!pid) {
		/* Only system calls from here on */
		file = openat(tmpfs_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (file < 0)
			_exit(errno);
		if (opt.kib && write(file, data, opt.kib * 1024) != (ssize_t)opt.kib * 1024)
			_exit(errno ? errno : ENOSPC);
		_exit(0);
	}
	close(cgroup);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		die("cannot write %lu KiB in memcg %s: %s", opt.kib, name,
		    WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "killed");
}

static void nap(void)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	check_interrupted();
	nanosleep(&ms, NULL);
}

/*
 * A memcg that is referred to by a socket after it was removed. The child shares
 * our file descriptors, so that the socket it makes stays open.
 */
static void make_dying_memcg(void)
{
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP | CLONE_FILES,
		.exit_signal = SIGCHLD,
	};
	int status, cgroup, sock;
	pid_t pid;

	check_interrupted();
	if (mkdirat(parent_fd, "dying", 0755))
		die("cannot make a memcg: %s", strerror(errno));
	cgroup = open_at(parent_fd, "dying", O_RDONLY | O_DIRECTORY);
	args.cgroup = cgroup;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		die("cannot start a process in a memcg: %s", strerror(errno));
	if (!pid) {
		/* Only system calls from here on */
		sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (sock < 0)
			sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		_exit(sock < 0 ? errno : 0);
	}
	close(cgroup);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		die("cannot make a socket: %s",
		    WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "killed");
	/* A task leaves its cgroup a little after it could be waited for */
	while (unlinkat(parent_fd, "dying", AT_REMOVEDIR)) {
		if (errno != EBUSY)
			die("cannot remove %s/dying: %s", parent_path, strerror(errno));
		nap();
	}
}

static void make_dying_memcgs(void)
{
	struct rlimit limit = { opt.dying + 64, opt.dying + 64 };
	unsigned long i;

	if (!opt.dying)
		return;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("cannot have %lu files open: %s", opt.dying + 64, strerror(errno));
	for (i = 0; i < opt.dying; i++)
		make_dying_memcg();
	fprintf(stderr, "# %lu dying memcgs made\n", opt.dying);
}

static void make_memcgs(void)
{
	char buf[64], *data = NULL;
	unsigned long long charged;

	if (opt.kib) {
		data = malloc(opt.kib * 1024);
		if (!data)
			die("no memory for a buffer of %lu KiB", opt.kib);
		memset(data, 'm', opt.kib * 1024);
	}
	make_tmpfs();
	while (nr_made < opt.memcgs) {
		make_memcg();
		fill_memcg(data);
		if (!(nr_made % 1000))
			fprintf(stderr, "# %lu of %lu memcgs made\n", nr_made, opt.memcgs);
	}
	free(data);
	make_dying_memcgs();

	/* Counters may lag behind by a batch per CPU, charges do not */
	if (!read_at(parent_fd, "memory.current", buf, sizeof(buf)))
		die("cannot read %s/memory.current: %s", parent_path, strerror(errno));
	charged = strtoull(buf, NULL, 10);
	if (charged < (unsigned long long)opt.memcgs * opt.kib * 1024)
		die("only %llu bytes are charged to %lu memcgs of %lu KiB each",
		    charged, opt.memcgs, opt.kib);
}

/* ---- requests ---- */

/* One request; false if it failed in another way than the expected one */
static bool request(int fd, struct writer *w, struct sample *s)
{
	unsigned long long ns = now_ns(), ticks = now_ticks();
	ssize_t n = pwrite(fd, REQUEST, strlen(REQUEST), 0);
	int error = errno;

	s->ticks = now_ticks() - ticks;
	s->ns = now_ns() - ns;
	if (n >= 0) {
		w->reclaimed++;
	} else if (error != EAGAIN) {
		w->error = error;
		return false;
	}
	return true;
}

static void count(struct writer *w, const struct sample *s)
{
	if (w->nr_samples < MAX_SAMPLES)
		w->samples[w->nr_samples++] = *s;
	w->requests++;
	w->end_ticks = now_ticks();
	w->end_ns = now_ns();
}

static void write_requests(struct writer *w, int fd, int start_fd)
{
	struct sample s;
	char c;

	/* The parent closes the other end when all writers are there */
	while (read(start_fd, &c, 1) < 0)
		if (errno != EINTR)
			_exit(1);

	w->start_ns = now_ns();
	w->start_ticks = now_ticks();
	if (opt.latency) {
		/* Until the observers have seen enough and the parent ends us */
		for (;;) {
			if (!request(fd, w, &s))
				_exit(1);
			__atomic_add_fetch(&w->requests, 1, __ATOMIC_RELAXED);
		}
	} else if (opt.requests) {
		while (w->requests < opt.requests) {
			if (!request(fd, w, &s))
				_exit(1);
			count(w, &s);
		}
	} else {
		do {
			if (!request(fd, w, &s))
				_exit(1);
			count(w, &s);
		} while (w->end_ns - w->start_ns < opt.seconds * NSEC_PER_SEC);
	}
	/*
	 * What has begun in time is finished and counted. Then keep those company
	 * that are not there yet, so that their last requests do not get by cheaper.
	 * The last one leaves, by which the parent knows that it may end us all:
	 * a signal gets a request out of the kernel at its next retry.
	 */
	if (__atomic_add_fetch(nr_done, 1, __ATOMIC_SEQ_CST) < (int)opt.writers && opt.seconds)
		for (;;)
			if (!request(fd, w, &s))
				_exit(1);
	_exit(0);
}

static void *map_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no shared memory: %s", strerror(errno));
	return p;
}

/* Pages reclaimed in the whole system so far, or 0 if that is not known */
static unsigned long long pages_stolen(void)
{
	char line[128];
	unsigned long long v, sum = 0;
	FILE *f = fopen("/proc/vmstat", "re");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "pgsteal_anon %llu", &v) == 1 ||
		    sscanf(line, "pgsteal_file %llu", &v) == 1)
			sum += v;
	fclose(f);
	return sum;
}

/* Leaves the writers running; returns how many pages had been reclaimed before */
static unsigned long long start_writers(struct writer *writers)
{
	int ready[2], start[2], fd;
	unsigned long i;
	pid_t pid;
	char path[300], c = 0;
	struct sample s;
	unsigned long long stolen;

	snprintf(path, sizeof(path), "%s/memory.reclaim", cgroup_root);
	fd = open_at(AT_FDCWD, path, O_WRONLY);

	/* Uncounted: ages the fresh memcgs and throws out unused page cache */
	if (!opt.latency) {
		if (!request(fd, &writers[0], &s))
			die("writing '%s' to %s: %s", REQUEST, path, strerror(writers[0].error));
		fprintf(stderr, "# first request, not counted: %.3f s\n", s.ns / 1e9);
		check_interrupted();
		/*
		 * Memcgs go offline some time after they were removed, and nothing
		 * tells when but what a request costs.
		 */
		for (i = 0; opt.dying && i < MAX_WARMUP; i++) {
			unsigned long long last = s.ns;

			if (!request(fd, &writers[0], &s))
				die("writing '%s' to %s: %s", REQUEST, path,
				    strerror(writers[0].error));
			check_interrupted();
			if (s.ns < last + last / 50 && last < s.ns + s.ns / 50)
				break;
		}
		if (opt.dying && i == MAX_WARMUP)
			die("the cost of a request does not settle");
		writers[0].reclaimed = 0;
	}

	pids = calloc(opt.writers, sizeof(*pids));
	if (!pids || pipe2(ready, O_CLOEXEC) || pipe2(start, O_CLOEXEC))
		die("cannot set up the writers: %s", strerror(errno));
	for (i = 0; i < opt.writers; i++) {
		pid = fork();
		if (pid < 0)
			die("fork: %s", strerror(errno));
		if (!pid) {
			signal(SIGINT, SIG_DFL);
			signal(SIGTERM, SIG_DFL);
			close(ready[0]);
			close(start[1]);
			/* Touch what is written to later, then report */
			memset(&writers[i], 0, sizeof(writers[i]));
			if (write(ready[1], &c, 1) != 1)
				_exit(1);
			close(ready[1]);
			write_requests(&writers[i], fd, start[0]);
		}
		pids[i] = pid;
	}
	close(ready[1]);
	close(start[0]);
	for (i = 0; i < opt.writers;) {
		ssize_t n = read(ready[0], &c, 1);

		check_interrupted();
		if (n == 0)
			die("a writer died before it could start");
		if (n < 0 && errno != EINTR)
			die("waiting for the writers: %s", strerror(errno));
		if (n == 1)
			i++;
	}
	close(ready[0]);
	close(fd);
	stolen = pages_stolen();
	close(start[1]);	/* all of them go */
	return stolen;
}

/* Returns how many pages were reclaimed meanwhile */
static unsigned long long run_writers(struct writer *writers)
{
	unsigned long long stolen = start_writers(writers);
	bool all_done = false;
	unsigned long i, left;
	int status;
	pid_t pid;

	for (left = opt.writers; left; left--) {
		bool killed;

		pid = waitpid(-1, &status, 0);
		check_interrupted();
		if (pid < 0)
			die("waiting for the writers: %s", strerror(errno));
		for (i = 0; i < opt.writers && pids[i] != pid; i++)
			;
		if (i == opt.writers)
			die("child %d is not a writer", pid);
		pids[i] = 0;
		killed = all_done && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		if (!killed && writers[i].error)
			die("writing '%s' to memory.reclaim: %s", REQUEST,
			    strerror(writers[i].error));
		if (!killed && (!WIFEXITED(status) || WEXITSTATUS(status)))
			die("writer %lu ended with status 0x%x", i, status);
		if (all_done || __atomic_load_n(nr_done, __ATOMIC_SEQ_CST) < (int)opt.writers)
			continue;
		all_done = true;
		for (i = 0; i < opt.writers; i++)
			if (pids[i])
				kill(pids[i], SIGKILL);
	}
	return pages_stolen() - stolen;
}

static int by_value(const void *a, const void *b)
{
	const unsigned long long *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double median(const unsigned long long *sorted, size_t n)
{
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0;
}

/* The beginning of the result, which is the same for all modes */
static void print_setup(const char *mode)
{
	char lru_gen[32] = "none";
	struct utsname u;

	uname(&u);
	if (read_at(AT_FDCWD, "/sys/kernel/mm/lru_gen/enabled", lru_gen, sizeof(lru_gen)))
		lru_gen[strcspn(lru_gen, "\n")] = '\0';
	printf("{\"program\":\"memcg_lru_bench\",\"mode\":\"%s\",\"release\":\"%s\"",
	       mode, u.release);
	printf(",\"cpus\":%ld,\"lru_gen\":\"%s\"", sysconf(_SC_NPROCESSORS_ONLN), lru_gen);
	if (ticks_per_instruction)
		printf(",\"ticks_per_instruction\":%llu,\"interrupt_share\":%.5f",
		       ticks_per_instruction, interrupt_share);
}

static void measure_requests(void)
{
	struct writer *writers = map_shared(opt.writers * sizeof(*writers));
	unsigned long long *ns, *ticks, n = 0, total = 0, reclaimed = 0, stolen;
	unsigned long long start_ns, end_ns, start_ticks, end_ticks, j;
	double rate = 0;
	unsigned long i;

	nr_done = map_shared(sizeof(*nr_done));
	make_memcgs();
	stolen = run_writers(writers);

	start_ns = writers[0].start_ns;
	end_ns = writers[0].end_ns;
	start_ticks = writers[0].start_ticks;
	end_ticks = writers[0].end_ticks;
	for (i = 0; i < opt.writers; i++) {
		struct writer *w = &writers[i];

		/* Each at its own pace over its own time */
		rate += w->requests / ((w->end_ns - w->start_ns) / 1e9);
		total += w->requests;
		n += w->nr_samples;
		reclaimed += w->reclaimed;
		if (w->start_ns < start_ns)
			start_ns = w->start_ns;
		if (w->end_ns > end_ns)
			end_ns = w->end_ns;
		if (w->start_ticks < start_ticks)
			start_ticks = w->start_ticks;
		if (w->end_ticks > end_ticks)
			end_ticks = w->end_ticks;
	}
	if (reclaimed)
		die("%llu of %llu requests got all they asked for, so this was not the walk alone",
		    reclaimed, total);

	ns = calloc(n, sizeof(*ns));
	ticks = calloc(n, sizeof(*ticks));
	if (!ns || !ticks)
		die("no memory for %llu latencies", n);
	for (n = 0, i = 0; i < opt.writers; i++) {
		for (j = 0; j < writers[i].nr_samples; j++, n++) {
			ns[n] = writers[i].samples[j].ns;
			ticks[n] = writers[i].samples[j].ticks;
		}
	}
	qsort(ns, n, sizeof(*ns), by_value);
	qsort(ticks, n, sizeof(*ticks), by_value);

	print_setup("requests");
	printf(",\"memcgs\":%lu,\"dying\":%lu,\"kib\":%lu,\"writers\":%lu", opt.memcgs, opt.dying,
	       opt.kib, opt.writers);
	printf(",\"requests\":%llu,\"pages_reclaimed\":%llu", total, stolen);
	printf(",\"seconds\":%.6f,\"requests_per_second\":%.6f",
	       (end_ns - start_ns) / 1e9, rate);
	printf(",\"latency_ms\":{\"min\":%.3f,\"median\":%.3f,\"max\":%.3f}",
	       ns[0] / 1e6, median(ns, n) / 1e6, ns[n - 1] / 1e6);
	if (ticks_per_instruction) {
		unsigned long long p = ticks_per_instruction;

		printf(",\"instructions\":{\"per_request\":%.0f",
		       (double)(end_ticks - start_ticks) / p / total);
		/* With several writers a request's time has the others' in it */
		if (opt.writers == 1)
			printf(",\"min\":%llu,\"median\":%.0f,\"max\":%llu",
			       ticks[0] / p, median(ticks, n) / p, ticks[n - 1] / p);
		printf("}");
	}
	printf("}\n");
	free(ns);
	free(ticks);
}

/* ---- latency ---- */

/* Waits that one observer has seen, in memory shared with the parent */
struct observer {
	const char *what;		/* the key in the result */
	void (*observe)(struct observer *o);
	int cpu;			/* where it is to run, or -1 */
	unsigned long long nr_waits, max_ns;
	unsigned long long waits[MAX_SAMPLES];	/* the first ones */
};

static unsigned long long observe_until;	/* in an observer: its end */

static bool time_left(void)
{
	return now_ns() < observe_until;
}

static void add_wait(struct observer *o, unsigned long long ns)
{
	if (ns > o->max_ns)
		o->max_ns = ns;
	if (o->nr_waits < MAX_SAMPLES)
		o->waits[o->nr_waits] = ns;
	o->nr_waits++;
}

static void observe_wakeups(struct observer *o)
{
	unsigned long long due, now;
	struct timespec ts;

	do {
		due = now_ns() + SLEEP_NS;
		ts.tv_sec = due / NSEC_PER_SEC;
		ts.tv_nsec = due % NSEC_PER_SEC;
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL))
			_exit(1);
		now = now_ns();
		add_wait(o, now > due ? now - due : 0);
	} while (time_left());
}

static void observe_rcu(struct observer *o)
{
	unsigned long long start;

	do {
		start = now_ns();
		if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
			_exit(1);
		add_wait(o, now_ns() - start);
	} while (time_left());
}

/*
 * Taking the jump of an optimized kprobe out again waits for a grace period. The
 * optimization before it waits for one too, but in a kernel thread that does not
 * tell when it is done. One that has not been done yet is just called off, which
 * takes no time and does not sleep: then the next one gets more time.
 */
static void observe_tasks_rcu(struct observer *o)
{
	struct timespec pause = { .tv_nsec = 100000000 };
	struct rusage before, after;
	unsigned long long start, ns;

	do {
		if (!write_file(OPTIMIZATION, "1"))
			_exit(1);
		nanosleep(&pause, NULL);

		getrusage(RUSAGE_SELF, &before);
		start = now_ns();
		if (!write_file(OPTIMIZATION, "0"))
			_exit(1);
		ns = now_ns() - start;
		getrusage(RUSAGE_SELF, &after);
		if (after.ru_nvcsw > before.ru_nvcsw)
			add_wait(o, ns);
		else if (pause.tv_nsec < 800000000)
			pause.tv_nsec *= 2;
	} while (time_left());
}

/*
 * A probe in code that does not run here, so that rewriting it disturbs nobody.
 * Returns false, and says why, where Tasks RCU grace periods cannot be measured.
 */
static bool make_kprobe(void)
{
	char buf[16];

	if (!read_at(AT_FDCWD, OPTIMIZATION, buf, sizeof(buf))) {
		fprintf(stderr, "# no Tasks RCU grace periods: %s: %s\n", OPTIMIZATION,
			strerror(errno));
		return false;
	}
	if (access(TRACING "kprobe_events", W_OK)) {
		fprintf(stderr, "# no Tasks RCU grace periods: %skprobe_events: %s\n", TRACING,
			strerror(errno));
		return false;
	}
	kprobes_were_optimized = *buf != '0';
	if (!write_file(OPTIMIZATION, "0"))
		die("cannot write %s: %s", OPTIMIZATION, strerror(errno));
	if (!write_file(TRACING "kprobe_events", "p:" KPROBE " emergency_restart"))
		die("cannot make a kprobe: %s", strerror(errno));
	made_kprobe = true;
	if (!write_file(KPROBE_ENABLE, "1"))
		die("cannot enable the kprobe: %s", strerror(errno));
	return true;
}

static void start_observer(struct observer *o)
{
	cpu_set_t cpus;
	pid_t pid = fork();

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid) {
		observer_pids[nr_observers++] = pid;
		return;
	}
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	if (o->cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET(o->cpu, &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			_exit(1);
	}
	/* What is written to later is there before the clock runs */
	memset(o->waits, 0, sizeof(o->waits));
	observe_until = now_ns() + opt.latency * NSEC_PER_SEC;
	o->observe(o);
	_exit(0);
}

static void print_waits(const struct observer *observers, unsigned long nr, const char *what)
{
	unsigned long long *ns, n = 0, kept = 0, max = 0, i;
	unsigned long o;

	for (o = 0; o < nr; o++)
		if (!strcmp(observers[o].what, what))
			kept += observers[o].nr_waits < MAX_SAMPLES ? observers[o].nr_waits :
								      MAX_SAMPLES;
	if (!kept)
		return;
	ns = calloc(kept, sizeof(*ns));
	if (!ns)
		die("no memory for %llu waits", kept);
	for (kept = 0, o = 0; o < nr; o++) {
		if (strcmp(observers[o].what, what))
			continue;
		for (i = 0; i < observers[o].nr_waits && i < MAX_SAMPLES; i++)
			ns[kept++] = observers[o].waits[i];
		n += observers[o].nr_waits;
		if (observers[o].max_ns > max)
			max = observers[o].max_ns;
	}
	qsort(ns, kept, sizeof(*ns), by_value);
	printf(",\"%s\":{\"waits\":%llu,\"median_ms\":%.3f,\"max_ms\":%.3f}", what, n,
	       median(ns, kept) / 1e6, max / 1e6);
	free(ns);
}

static void measure_latency(void)
{
	long cpu, cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct writer *writers = map_shared(opt.writers * sizeof(*writers));
	struct observer *observers = map_shared((cpus + 2) * sizeof(*observers));
	unsigned long long stolen, requests = 0;
	unsigned long nr = 0, i;
	cpu_set_t allowed;
	int status;
	pid_t pid;

	nr_done = map_shared(sizeof(*nr_done));
	observer_pids = calloc(cpus + 2, sizeof(*observer_pids));
	if (!observer_pids)
		die("no memory for %ld observers", cpus + 2);
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		die("sched_getaffinity: %s", strerror(errno));
	make_memcgs();
	for (cpu = 0; cpu < cpus && cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed))
			continue;
		observers[nr].what = "wakeup";
		observers[nr].observe = observe_wakeups;
		observers[nr++].cpu = cpu;
	}
	/* With one CPU membarrier() has nothing to wait for */
	if (nr > 1) {
		observers[nr].what = "rcu";
		observers[nr].observe = observe_rcu;
		observers[nr++].cpu = -1;
	}
	if (make_kprobe()) {
		observers[nr].what = "tasks_rcu";
		observers[nr].observe = observe_tasks_rcu;
		observers[nr++].cpu = -1;
	}

	stolen = start_writers(writers);
	for (i = 0; i < nr; i++)
		start_observer(&observers[i]);

	for (i = 0; i < nr; i++) {
		do {
			pid = waitpid(observer_pids[i], &status, 0);
			check_interrupted();
		} while (pid < 0 && errno == EINTR);
		observer_pids[i] = 0;
		if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
			die("the observer of %s ended with status 0x%x", observers[i].what, status);
	}
	for (i = 0; i < opt.writers; i++) {
		if (waitpid(pids[i], &status, WNOHANG)) {
			pids[i] = 0;
			die("writer %lu ended: %s", i, strerror(writers[i].error));
		}
		requests += __atomic_load_n(&writers[i].requests, __ATOMIC_RELAXED);
	}
	stolen = pages_stolen() - stolen;

	print_setup("latency");
	printf(",\"memcgs\":%lu,\"kib\":%lu,\"protected\":%s,\"writers\":%lu", opt.memcgs,
	       opt.kib, opt.protect ? "true" : "false", opt.writers);
	printf(",\"requests\":%llu,\"pages_reclaimed\":%llu", requests, stolen);
	print_waits(observers, nr, "wakeup");
	print_waits(observers, nr, "rcu");
	print_waits(observers, nr, "tasks_rcu");
	printf("}\n");
}

/* ---- mkdir ---- */

static void measure_mkdir(void)
{
	unsigned long steps = opt.mkdirs / opt.step, i;
	struct sample *s = calloc(steps, sizeof(*s));
	unsigned long long ns, ticks;

	if (!s)
		die("no memory for %lu steps", steps);
	for (i = 0; i < steps; i++) {
		ns = now_ns();
		ticks = now_ticks();
		while (nr_made < (i + 1) * opt.step)
			make_memcg();
		s[i].ticks = now_ticks() - ticks;
		s[i].ns = now_ns() - ns;
		fprintf(stderr, "# %lu memcgs made, the last %lu in %.3f s\n",
			nr_made, opt.step, s[i].ns / 1e9);
	}
	print_setup("mkdir");
	printf(",\"step\":%lu,\"milliseconds\":[", opt.step);
	for (i = 0; i < steps; i++)
		printf("%s%.3f", i ? "," : "", s[i].ns / 1e6);
	printf("]");
	if (ticks_per_instruction) {
		printf(",\"instructions\":[");
		for (i = 0; i < steps; i++)
			printf("%s%llu", i ? "," : "", s[i].ticks / ticks_per_instruction);
		printf("]");
	}
	printf("}\n");
	free(s);
}

/* ---- options ---- */

static const char usage[] =
"usage: memcg_lru_bench [options] --requests R | --seconds T | --mkdir M | --latency T\n"
"Measures reclaim requests that fail while there are many memcgs (cgroup v2, needs root).\n"
"  -n, --memcgs N      memcgs to make (1500)\n"
"  -d, --dying D       memcgs to make, remove and keep from going away besides (0)\n"
"  -k, --kib K         KiB of tmpfs charged to each (64)\n"
"  -p, --protect       set memory.min of all of them to max\n"
"  -w, --writers W     processes that write to the root's memory.reclaim (1)\n"
"  -r, --requests R    measure R requests of each writer\n"
"  -t, --seconds T     measure for T seconds; requests that began in time are finished\n"
"  -m, --mkdir M       measure making M empty memcgs instead\n"
"  -s, --step S        ... by this many at a time (1000)\n"
"  -l, --latency T     measure for T seconds what others wait for meanwhile: ordinary tasks\n"
"                      for a CPU, and the ends of RCU and of Tasks RCU grace periods\n"
"  -i, --instructions  fail where instructions cannot be counted: that takes QEMU with\n"
"                      -icount and one virtual CPU, see the comment in the source\n"
"  -h, --help          this text\n"
"The result is one JSON object on one line of stdout.\n"
"Exit status: 0 measured, 1 failed, 4 this machine cannot run it.\n";

static unsigned long parse(const char *what, const char *text, unsigned long min,
			   unsigned long max)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || end == text || *end || strchr(text, '-') || n < min || n > max)
		die("%s '%s' is not a number from %lu to %lu", what, text, min, max);
	return n;
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "memcgs", required_argument, NULL, 'n' },
		{ "dying", required_argument, NULL, 'd' },
		{ "kib", required_argument, NULL, 'k' },
		{ "writers", required_argument, NULL, 'w' },
		{ "requests", required_argument, NULL, 'r' },
		{ "seconds", required_argument, NULL, 't' },
		{ "mkdir", required_argument, NULL, 'm' },
		{ "step", required_argument, NULL, 's' },
		{ "latency", required_argument, NULL, 'l' },
		{ "protect", no_argument, NULL, 'p' },
		{ "instructions", no_argument, NULL, 'i' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	int c;

	while ((c = getopt_long(argc, argv, "n:d:k:w:r:t:m:s:l:pih", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			opt.memcgs = parse("--memcgs", optarg, 1, 60000);
			break;
		case 'd':
			opt.dying = parse("--dying", optarg, 0, 60000);
			break;
		case 'k':
			opt.kib = parse("--kib", optarg, 0, 1024 * 1024);
			break;
		case 'w':
			opt.writers = parse("--writers", optarg, 1, 1024);
			break;
		case 'r':
			opt.requests = parse("--requests", optarg, 1, MAX_SAMPLES);
			break;
		case 't':
			opt.seconds = parse("--seconds", optarg, 1, 86400);
			break;
		case 'm':
			opt.mkdirs = parse("--mkdir", optarg, 1, 60000);
			break;
		case 's':
			opt.step = parse("--step", optarg, 1, 60000);
			break;
		case 'l':
			opt.latency = parse("--latency", optarg, 1, 86400);
			break;
		case 'p':
			opt.protect = true;
			break;
		case 'i':
			opt.need_instructions = true;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			fputs("error: see memcg_lru_bench --help\n", stderr);
			exit(EXIT_FAILURE);
		}
	}
	if (optind < argc)
		die("'%s' is not an option, see --help", argv[optind]);
	if (!!opt.requests + !!opt.seconds + !!opt.mkdirs + !!opt.latency != 1)
		die("give one of --requests, --seconds, --mkdir and --latency, see --help");
	if (opt.mkdirs % opt.step)
		die("--mkdir %lu is not a multiple of --step %lu", opt.mkdirs, opt.step);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_signal };	/* no SA_RESTART */

	main_pid = getpid();
	parse_options(argc, argv);
	if (geteuid())
		skip("this needs root");
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	find_cgroup_root();
	find_instruction_clock();
	if (opt.need_instructions && !ticks_per_instruction)
		die("instructions cannot be counted here: takes QEMU with -icount and one CPU");
	make_parent();
	/* The program itself must not be what reclaim finds */
	if (mlockall(MCL_CURRENT))
		fprintf(stderr, "# mlockall: %s\n", strerror(errno));
	if (opt.mkdirs)
		measure_mkdir();
	else if (opt.latency)
		measure_latency();
	else
		measure_requests();
	cleanup();
	if (fflush(stdout))
		die("cannot write the result: %s", strerror(errno));
	return 0;
}
