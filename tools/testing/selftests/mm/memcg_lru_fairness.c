// SPDX-License-Identifier: GPL-2.0
/*
 * memcg_lru_fairness - from whom global reclaim takes, and what it is like meanwhile
 *
 * In each of N memcgs a task keeps writing to random pages of its own anonymous
 * memory and reading random pages of its own part of a file. Once each has done
 * so for a while, memory is taken from them all in one of two ways:
 *   --steal S    by writes of --chunk MiB to memory.reclaim of the cgroup above
 *                them, one after the other, until they have lost S MiB
 *   --seconds T  by what the tasks want themselves: --ballast MiB of memory are
 *                locked, so that there is not enough for all, for T seconds
 *
 * A fair reclaim takes about as much from each memcg, since all do the same. It
 * is not all that counts: a reclaim that scans little for what it takes, and
 * takes what is not needed again soon, is worth more to the tasks.
 *
 * The result is one JSON object on one line of stdout: pages asked for, scanned
 * and taken by memory.stat of the memcgs, what was taken from each, refaults, CPU
 * time of all kswapds, and the rounds of the tasks, of which each is TOUCHES
 * pages written and READS pages read.
 *
 * It is a measuring tool, not a test. The memcgs are made in CGROUP, which has the
 * memory controller for its children, and are removed at the end; for global
 * reclaim CGROUP is where cgroup v2 is mounted. There must be enough swap, and the
 * file must not be in memory only.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/sched.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TOUCHES		16	/* in a round: pages written, ... */
#define READS		4	/* ... and pages read */
#define WARMUP_ROUNDS	2	/* of as many pages as a task has */
#define WAIT_SECONDS	300	/* bound of the warm-up, and of taking S MiB */
#define MAX_MEMCGS	1024

static struct {
	long memcgs, anon, file, chunk, steal, seconds, ballast;
	const char *path, *cgroup;
} opt = { .memcgs = 32, .anon = 16, .file = 8, .chunk = 16 };

/* In memory shared with the tasks */
static struct task {
	unsigned long rounds;
	bool ready;
} *tasks;

static pid_t pids[MAX_MEMCGS], main_pid;
static long nr_made, page_size;
static int interrupted;	/* the signal, set by its handler */

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void on_signal(int sig)
{
	__atomic_store_n(&interrupted, sig, __ATOMIC_RELAXED);
}

static void check_interrupted(void)
{
	int sig = __atomic_load_n(&interrupted, __ATOMIC_RELAXED);

	if (sig)
		errx(1, "interrupted by signal %d", sig);
}

/* Lets others run; ends the program after the deadline */
static void nap(double deadline, const char *what)
{
	check_interrupted();
	if (now() > deadline)
		errx(1, "%s took more than %d s", what, WAIT_SECONDS);
	usleep(10000);
}

/* ---- the tasks ---- */

/* xorshift64, by George Marsaglia: the same numbers in each run */
static unsigned long next_random(unsigned long *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void work(long nr, int file)
{
	long anon_pages = (opt.anon << 20) / page_size;
	long file_pages = (opt.file << 20) / page_size;
	unsigned long seed = nr + 1;
	char *anon, buf[64];
	long i;

	anon = mmap(NULL, opt.anon << 20, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (anon == MAP_FAILED)
		err(1, "mmap");
	/* fails without THP, which is as good */
	madvise(anon, opt.anon << 20, MADV_NOHUGEPAGE);
	/* No two pages are the same, nor is a page the same all over */
	for (i = 0; i < anon_pages; i++)
		*(unsigned long *)(anon + i * page_size) = next_random(&seed);
	for (;;) {
		for (i = 0; i < TOUCHES; i++)
			anon[next_random(&seed) % anon_pages * page_size + 8]++;
		for (i = 0; file_pages && i < READS; i++) {
			off_t page = nr * file_pages + next_random(&seed) % file_pages;

			if (pread(file, buf, sizeof(buf), page * page_size) != sizeof(buf))
				err(1, "reading %s", opt.path);
		}
		__atomic_store_n(&tasks[nr].rounds, tasks[nr].rounds + 1, __ATOMIC_RELAXED);
	}
}

static void memcg_path(char *path, size_t size, long nr, const char *name)
{
	if ((size_t)snprintf(path, size, "%s/fairness.%ld%s", opt.cgroup, nr, name) >= size)
		errx(1, "the path %s is too long", opt.cgroup);
}

static void cleanup(void)
{
	double deadline = now() + WAIT_SECONDS;
	char path[PATH_MAX];
	long i;

	if (getpid() != main_pid)
		return;
	for (i = 0; i < nr_made; i++) {
		if (pids[i] > 0 && !kill(pids[i], SIGKILL))
			waitpid(pids[i], NULL, 0);
	}
	while (nr_made) {
		memcg_path(path, sizeof(path), nr_made - 1, "");
		/* A task leaves its cgroup a little after it could be waited for */
		if (!rmdir(path) || errno != EBUSY || now() > deadline)
			nr_made--;
		else
			usleep(1000);
	}
}

/* A task that is born in a memcg of its own, and ends with us */
static void start_task(int file)
{
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
	};
	char path[PATH_MAX];
	int fd;

	memcg_path(path, sizeof(path), nr_made, "");
	if (mkdir(path, 0755))
		err(1, "cannot make %s", path);
	nr_made++;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		err(1, "%s", path);
	args.cgroup = fd;
	pids[nr_made - 1] = syscall(SYS_clone3, &args, sizeof(args));
	if (pids[nr_made - 1] < 0)
		err(1, "cannot start a task in %s", path);
	if (!pids[nr_made - 1]) {
		signal(SIGINT, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != main_pid)
			_exit(1);
		work(nr_made - 1, file);
	}
	close(fd);
}

/* Ends the program if a task has ended */
static void check_tasks(void)
{
	long i;

	check_interrupted();
	for (i = 0; i < nr_made; i++) {
		if (waitpid(pids[i], NULL, WNOHANG)) {
			pids[i] = 0;
			errx(1, "the task of memcg %ld has ended", i);
		}
	}
}

static unsigned long sum_rounds(void)
{
	unsigned long sum = 0;
	long i;

	for (i = 0; i < opt.memcgs; i++)
		sum += __atomic_load_n(&tasks[i].rounds, __ATOMIC_RELAXED);
	return sum;
}

static void start_tasks(int file)
{
	unsigned long pages = ((opt.anon + opt.file) << 20) / page_size;
	unsigned long enough = WARMUP_ROUNDS * pages / (TOUCHES + READS) + 1;
	double deadline = now() + WAIT_SECONDS;
	long i;

	while (nr_made < opt.memcgs)
		start_task(file);
	for (i = 0; i < opt.memcgs; i++) {
		while (__atomic_load_n(&tasks[i].rounds, __ATOMIC_RELAXED) < enough) {
			check_tasks();
			nap(deadline, "the warm-up");
		}
	}
}

/* ---- what is counted ---- */

struct counts {
	unsigned long scan, steal, refault_anon, refault_file;
	unsigned long stolen[MAX_MEMCGS];
	unsigned long rounds;
	unsigned long kswapd_ms;
	double time;
};

static void read_memcg(long nr, struct counts *c)
{
	char path[PATH_MAX], line[128];
	unsigned long value;
	bool found = false;
	FILE *f;

	memcg_path(path, sizeof(path), nr, "/memory.stat");
	f = fopen(path, "re");
	if (!f)
		err(1, "%s", path);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "pgscan %lu", &value) == 1) {
			c->scan += value;
		} else if (sscanf(line, "pgsteal %lu", &value) == 1) {
			c->steal += value;
			c->stolen[nr] = value;
			found = true;
		} else if (sscanf(line, "workingset_refault_anon %lu", &value) == 1) {
			c->refault_anon += value;
		} else if (sscanf(line, "workingset_refault_file %lu", &value) == 1) {
			c->refault_file += value;
		}
	}
	fclose(f);
	if (!found)
		errx(1, "no pgsteal in %s", path);
}

/* User and system time of all kswapds: fields 14 and 15 of proc_pid_stat(5) */
static unsigned long kswapd_ms(void)
{
	unsigned long user, sys, ticks = 0;
	struct dirent *de;
	char path[64], line[512], *at;
	DIR *proc = opendir("/proc");
	FILE *f;

	if (!proc)
		err(1, "/proc");
	while ((de = readdir(proc))) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.16s/stat", de->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;	/* it has ended */
		at = fgets(line, sizeof(line), f) ? strstr(line, "(kswapd") : NULL;
		fclose(f);
		if (at && sscanf(at, "%*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				 &user, &sys) == 2)
			ticks += user + sys;
	}
	closedir(proc);
	return ticks * 1000 / sysconf(_SC_CLK_TCK);
}

static void read_counts(struct counts *c)
{
	long i;

	memset(c, 0, sizeof(*c));
	c->time = now();
	c->rounds = sum_rounds();
	c->kswapd_ms = kswapd_ms();
	for (i = 0; i < opt.memcgs; i++)
		read_memcg(i, c);
}

/* ---- taking memory ---- */

struct requests {
	unsigned long written, failed;
};

/* Until the memcgs have lost enough since @before; the last counts in @after */
static void take_by_requests(struct requests *r, const struct counts *before,
			     struct counts *after)
{
	unsigned long enough = (opt.steal << 20) / page_size;
	double deadline = now() + WAIT_SECONDS;
	char path[PATH_MAX], text[32];
	int fd, len = snprintf(text, sizeof(text), "%ldM", opt.chunk);

	if ((size_t)snprintf(path, sizeof(path), "%s/memory.reclaim", opt.cgroup) >= sizeof(path))
		errx(1, "the path %s is too long", opt.cgroup);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		err(1, "%s", path);
	do {
		if (pwrite(fd, text, len, 0) != len) {
			check_interrupted();
			if (errno != EAGAIN)
				err(1, "writing %s to %s", text, path);
			r->failed++;
		}
		r->written++;
		check_tasks();
		read_counts(after);
		if (now() > deadline)
			errx(1, "only %lu pages were taken in %d s",
			     after->steal - before->steal, WAIT_SECONDS);
	} while (after->steal - before->steal < enough);
	close(fd);
}

static void take_by_ballast(struct counts *before, struct counts *after)
{
	double end, deadline = now() + WAIT_SECONDS;
	unsigned long pages = opt.memcgs * ((opt.anon + opt.file) << 20) / page_size;
	unsigned long enough;
	void *ballast = mmap(NULL, opt.ballast << 20, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (ballast == MAP_FAILED || mlock(ballast, opt.ballast << 20))
		err(1, "cannot lock %ld MiB of memory", opt.ballast);
	/* What the ballast took is not to be counted: begin when all have gone on for a while */
	enough = sum_rounds() + pages / (TOUCHES + READS);
	while (sum_rounds() < enough) {
		check_tasks();
		nap(deadline, "getting used to the ballast");
	}
	read_counts(before);
	end = now() + opt.seconds;
	while (now() < end)
		nap(end + 1, "measuring");
	check_tasks();
	read_counts(after);
	if (after->steal == before->steal)
		errx(1, "nothing was reclaimed: the ballast of %ld MiB is too small", opt.ballast);
}

static void measure(void)
{
	struct counts *before = malloc(sizeof(*before)), *after = malloc(sizeof(*after));
	struct requests r = { };
	long i;

	if (!before || !after)
		err(1, "malloc");
	read_counts(before);
	if (opt.steal)
		take_by_requests(&r, before, after);
	else
		take_by_ballast(before, after);

	printf("{\"program\":\"memcg_lru_fairness\",\"mode\":\"%s\"",
	       opt.steal ? "steal" : "ballast");
	printf(",\"memcgs\":%ld,\"anon_mib\":%ld,\"file_mib\":%ld",
	       opt.memcgs, opt.anon, opt.file);
	printf(",\"writes\":%lu,\"failed\":%lu,\"asked\":%lu", r.written, r.failed,
	       r.written * (opt.chunk << 20) / page_size);
	printf(",\"scan\":%lu,\"steal\":%lu",
	       after->scan - before->scan, after->steal - before->steal);
	printf(",\"refault_anon\":%lu,\"refault_file\":%lu",
	       after->refault_anon - before->refault_anon,
	       after->refault_file - before->refault_file);
	printf(",\"kswapd_ms\":%lu,\"seconds\":%.3f,\"rounds\":%lu,\"stolen\":[",
	       after->kswapd_ms - before->kswapd_ms, after->time - before->time,
	       after->rounds - before->rounds);
	for (i = 0; i < opt.memcgs; i++)
		printf("%s%lu", i ? "," : "", after->stolen[i] - before->stolen[i]);
	puts("]}");
	free(before);
	free(after);
}

/* ---- options ---- */

static const char usage[] =
"usage: memcg_lru_fairness [options] --steal S | --seconds T  CGROUP\n"
"Measures from which of many busy memcgs in CGROUP reclaim takes memory, and at\n"
"what cost (cgroup v2, needs root).\n"
"  -n, --memcgs N   memcgs to make (32)\n"
"  -a, --anon A     MiB of anonymous memory of each (16)\n"
"  -f, --file F     MiB of page cache of each (8; 0 without --path)\n"
"  -p, --path P     a file or block device of N * F MiB, not in memory only\n"
"  -s, --steal S    write to CGROUP/memory.reclaim until S MiB have been taken\n"
"  -c, --chunk C    ... this many MiB at a time (16)\n"
"  -t, --seconds T  measure for T seconds what happens by itself when ...\n"
"  -b, --ballast B  ... B MiB of memory are locked\n"
"  -h, --help       this text\n"
"The result is one JSON object on one line of stdout.\n";

static long parse(const char *what, const char *text, long min, long max)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < min || n > max)
		errx(1, "%s '%s' is not a number from %ld to %ld", what, text, min, max);
	return n;
}

static void parse_options(int argc, char **argv)
{
	static const struct option options[] = {
		{ "memcgs", required_argument, NULL, 'n' },
		{ "anon", required_argument, NULL, 'a' },
		{ "file", required_argument, NULL, 'f' },
		{ "path", required_argument, NULL, 'p' },
		{ "steal", required_argument, NULL, 's' },
		{ "chunk", required_argument, NULL, 'c' },
		{ "seconds", required_argument, NULL, 't' },
		{ "ballast", required_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	int c;

	while ((c = getopt_long(argc, argv, "n:a:f:p:s:c:t:b:h", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			opt.memcgs = parse("--memcgs", optarg, 1, MAX_MEMCGS);
			break;
		case 'a':
			opt.anon = parse("--anon", optarg, 1, 65536);
			break;
		case 'f':
			opt.file = parse("--file", optarg, 0, 65536);
			break;
		case 'p':
			opt.path = optarg;
			break;
		case 's':
			opt.steal = parse("--steal", optarg, 1, 1 << 20);
			break;
		case 'c':
			opt.chunk = parse("--chunk", optarg, 1, 65536);
			break;
		case 't':
			opt.seconds = parse("--seconds", optarg, 1, 86400);
			break;
		case 'b':
			opt.ballast = parse("--ballast", optarg, 1, 1 << 20);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			fputs(usage, stderr);
			exit(1);
		}
	}
	if (optind != argc - 1 || !opt.steal == !opt.seconds || !opt.seconds != !opt.ballast) {
		fputs(usage, stderr);
		exit(1);
	}
	opt.cgroup = argv[optind];
	if (!opt.path)
		opt.file = 0;
}

int main(int argc, char **argv)
{
	int file = -1;

	parse_options(argc, argv);
	page_size = sysconf(_SC_PAGESIZE);
	main_pid = getpid();
	tasks = mmap(NULL, opt.memcgs * sizeof(*tasks), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tasks == MAP_FAILED)
		err(1, "mmap");
	if (opt.path) {
		file = open(opt.path, O_RDONLY | O_CLOEXEC);
		if (file < 0)
			err(1, "%s", opt.path);
		if (lseek(file, 0, SEEK_END) < (off_t)opt.memcgs * opt.file << 20)
			errx(1, "%s is smaller than %ld MiB", opt.path, opt.memcgs * opt.file);
		/* Only what is asked for, so that all memcgs read the same */
		if (posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM))
			errx(1, "cannot turn off readahead of %s", opt.path);
	}
	atexit(cleanup);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	start_tasks(file);
	/* Else we had the share of one task, and took memory as slowly */
	if (setpriority(PRIO_PROCESS, 0, -20))
		err(1, "setpriority");
	measure();
	return 0;
}
