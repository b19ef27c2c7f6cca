// SPDX-License-Identifier: GPL-2.0
/*
 * What it costs to put folios on the LRU and to free them, in three workloads:
 *
 *   anon   a thread faults in small folios and unmaps them: no folio is dead when
 *          an add batch is drained, since unmapping drains the batch first
 *   file   a thread reads a file into the page cache and drops it from there: as
 *          above
 *   short  one thread faults folios in, another one on another CPU discards them
 *          while the add batch of the first CPU holds them: most are dead when
 *          that batch is drained
 *
 * Prints one line of JSON: the pages used, nanoseconds per page and, where the
 * kernel has CONFIG_LOCK_STAT, how often an LRU lock was taken meanwhile. In a
 * virtual machine with one CPU under QEMU's "-icount shift=4", the clock goes on
 * by 16 ns for each instruction, whatever the host does.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* pages faulted in or read before they are given back */
#define ROUND_PAGES	512
/* for "short": less than an add batch takes, 15 (before 6.10) or 31 folios */
#define SHORT_PAGES	14

static long page_size;

static long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static char *map_small_pages(size_t size)
{
	char *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		err(1, "mmap");
	/* fails without THP, which is as good */
	madvise(map, size, MADV_NOHUGEPAGE);
	return map;
}

static void touch(char *map, int pages)
{
	int i;

	for (i = 0; i < pages; i++)
		map[i * page_size] = 1;
}

static long run_anon(long pages)
{
	long done;

	for (done = 0; done < pages; done += ROUND_PAGES) {
		char *map = map_small_pages(ROUND_PAGES * page_size);

		touch(map, ROUND_PAGES);
		if (munmap(map, ROUND_PAGES * page_size))
			err(1, "munmap");
	}
	return done;
}

static long run_file(long pages, const char *path)
{
	size_t size = ROUND_PAGES * page_size;
	char *buf = malloc(size);
	long done;
	int fd;

	if (!buf)
		err(1, "malloc");
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, size))
		err(1, "%s", path);

	for (done = 0; done < pages; done += ROUND_PAGES) {
		if (pread(fd, buf, size, 0) != (ssize_t)size)
			err(1, "reading %s", path);
		errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (errno)
			err(1, "posix_fadvise");
	}

	close(fd);
	unlink(path);
	free(buf);
	return done;
}

/* Who may touch the mapping: the thread that faults (0) or the one that discards (1) */
static atomic_int turn;
static atomic_bool over;

static void pin(int nr)
{
	cpu_set_t allowed, one;
	int cpu;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		err(1, "sched_getaffinity");
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && !nr--)
			break;
	if (cpu == CPU_SETSIZE)
		errx(1, "\"short\" takes two CPUs");
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (pthread_setaffinity_np(pthread_self(), sizeof(one), &one))
		errx(1, "cannot bind a thread to CPU %d", cpu);
}

static bool wait_turn(int who)
{
	while (atomic_load(&turn) != who) {
		if (atomic_load(&over))
			return false;
		/* the other virtual CPU may not have a real one now */
		sched_yield();
	}
	return true;
}

static void *discard(void *map)
{
	pin(1);
	while (wait_turn(1)) {
		if (madvise(map, SHORT_PAGES * page_size, MADV_DONTNEED))
			err(1, "madvise");
		atomic_store(&turn, 0);
	}
	return NULL;
}

static long run_short(long pages)
{
	char *map = map_small_pages(SHORT_PAGES * page_size);
	pthread_t thread;
	long done;

	/* the thread inherits what CPUs are allowed, so it is made before this one is bound */
	if (pthread_create(&thread, NULL, discard, map))
		errx(1, "pthread_create");
	pin(0);

	for (done = 0; done < pages; done += SHORT_PAGES) {
		touch(map, SHORT_PAGES);
		atomic_store(&turn, 1);
		wait_turn(0);
	}

	atomic_store(&over, true);
	pthread_join(thread, NULL);
	munmap(map, SHORT_PAGES * page_size);
	return done;
}

/*
 * How often locks of the class of lruvec->lru_lock were taken, -1 if unknown.
 * Documentation/locking/lockstat.rst has the columns of /proc/lock_stat: two counts
 * and four times of contention, the bounces of acquisitions, then their number.
 */
static long long lru_lock_acquisitions(void)
{
	long long sum = -1, nr;
	char line[1024];
	FILE *f = fopen("/proc/lock_stat", "r");

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		char *end, *name = strstr(line, "lru_lock");

		/* the lines of those who contended for it repeat the name */
		if (!name || !strchr(line, ':') || strchr(line, '['))
			continue;
		end = strchr(name, ':');
		if (!end || sscanf(end + 1, " %*s %*s %*s %*s %*s %*s %*s %lld", &nr) != 1)
			continue;
		sum = (sum < 0 ? 0 : sum) + nr;
	}
	fclose(f);
	return sum;
}

int main(int argc, char **argv)
{
	long long from, ns, locks = -1, locks_before;
	long pages, done;
	char *end;

	if (argc < 3)
		errx(2, "usage: lru_add_bench anon|short PAGES, lru_add_bench file PAGES PATH");
	pages = strtol(argv[2], &end, 10);
	if (*end || pages <= 0)
		errx(2, "%s: not a number of pages", argv[2]);
	page_size = sysconf(_SC_PAGESIZE);

	locks_before = lru_lock_acquisitions();
	from = now_ns();
	if (!strcmp(argv[1], "anon"))
		done = run_anon(pages);
	else if (!strcmp(argv[1], "short"))
		done = run_short(pages);
	else if (!strcmp(argv[1], "file") && argc == 4)
		done = run_file(pages, argv[3]);
	else
		errx(2, "unknown workload %s, or no file", argv[1]);
	ns = now_ns() - from;
	if (locks_before >= 0)
		locks = lru_lock_acquisitions() - locks_before;

	printf("{\"workload\":\"%s\",\"pages\":%ld,\"ns_per_page\":%.2f", argv[1], done,
	       (double)ns / done);
	if (locks >= 0)
		printf(",\"lru_locks\":%lld,\"lru_locks_per_million\":%.0f", locks,
		       locks * 1e6 / done);
	printf("}\n");
	return 0;
}
