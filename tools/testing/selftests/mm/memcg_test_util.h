/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tests with memory cgroups and page cache share.  Include it after
 * kselftest_harness.h and cgroup_util.h; the test sets page_size and timeout.
 */
#ifndef _MEMCG_TEST_UTIL_H
#define _MEMCG_TEST_UTIL_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ZRAM_CONTROL	"/sys/class/zram-control"

static long page_size;
static long timeout;		/* bound of each single wait, in seconds */

/* A positive number from the environment, or @def where there is none */
static inline long env_long(const char *name, long def)
{
	const char *val = getenv(name);
	char *end;
	long ret;

	if (!val || !*val)
		return def;
	ret = strtol(val, &end, 0);
	if (*end || ret <= 0)
		ksft_exit_fail_msg("%s=%s: want a positive number\n", name, val);
	return ret;
}

/* --- bounded waiting ------------------------------------------------------ */

static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Leave the CPU for a moment; false once the deadline has passed */
static inline bool nap(double deadline)
{
	if (now() > deadline)
		return false;
	usleep(5000);
	return true;
}

/* Evaluate @cond until it is true or the time is up; its last value */
#define wait_until(cond) ({					\
	double deadline_ = now() + timeout;			\
	bool ok_;						\
								\
	do {							\
		ok_ = (cond);					\
	} while (!ok_ && nap(deadline_));			\
	ok_;							\
})

/* --- files and memcgs ----------------------------------------------------- */

static inline __printf(3, 4) void path_fmt(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(buf, size, fmt, ap);
	va_end(ap);
	if (len < 0 || (size_t)len >= size)
		ksft_exit_fail_msg("path too long: %s\n", buf);
}

/* Write once, any length including none; 0 or -errno */
static inline int write_str(const char *dir, const char *name, const char *str)
{
	size_t len = strlen(str);
	char path[PATH_MAX];
	int fd, ret = 0;
	ssize_t done;

	path_fmt(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return -errno;
	done = write(fd, str, len);
	if (done < 0)
		ret = -errno;
	else if ((size_t)done != len)
		ret = -EIO;
	close(fd);
	return ret;
}

/*
 * A task leaves its cgroup a little after its parent could reap it, so EBUSY is
 * no news at first.
 */
static inline int remove_memcg(const char *cg)
{
	double deadline = now() + timeout;
	int ret;

	do {
		ret = rmdir(cg) ? -errno : 0;
	} while (ret == -EBUSY && nap(deadline));
	return ret;
}

/* A cgroup and its children, with whatever a failed test left in them */
static inline bool remove_tree(const char *cg)
{
	DIR *dir = opendir(cg);
	char path[PATH_MAX];
	struct dirent *de;
	bool ok = true;

	if (!dir)
		return false;
	cg_killall(cg);
	while ((de = readdir(dir))) {
		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		path_fmt(path, sizeof(path), "%s/%s", cg, de->d_name);
		if (remove_memcg(path))
			ok = false;
	}
	closedir(dir);
	return !remove_memcg(cg) && ok;
}

/* --- page cache ----------------------------------------------------------- */

static inline int zram_add(void)
{
	char buf[32];

	if (access(ZRAM_CONTROL, F_OK) && system("modprobe -q zram 2>/dev/null"))
		return -1;
	if (read_text(ZRAM_CONTROL "/hot_add", buf, sizeof(buf)) <= 0)
		return -1;
	return atoi(buf);
}

/* The device is busy while its last user exits, or udev looks at it */
static inline bool zram_remove(int id)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%d", id);
	return wait_until(!write_str(ZRAM_CONTROL, "hot_remove", buf));
}

static inline int open_zram(int id, off_t size)
{
	char dir[64], dev[64], buf[32];

	snprintf(dir, sizeof(dir), "/sys/block/zram%d", id);
	snprintf(dev, sizeof(dev), "/dev/zram%d", id);
	snprintf(buf, sizeof(buf), "%lld", (long long)size);
	if (write_str(dir, "disksize", buf))
		return -1;
	/* devtmpfs or udev make the node */
	if (!wait_until(!access(dev, R_OK)))
		return -1;
	return open(dev, O_RDONLY | O_CLOEXEC);
}

static inline int open_sparse(off_t size)
{
	struct statfs fs;
	int fd;

	/* What is in memory only can't be reclaimed without swap */
	if (statfs(".", &fs) || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
		return -1;
	fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 && ftruncate(fd, size)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* How many of @nr pages from @first on are in the page cache */
static inline long resident(int fd, long first, long nr)
{
	unsigned char *vec = malloc(nr);
	long i, ret = 0;
	void *map;

	if (!vec)
		return -1;
	map = mmap(NULL, nr * page_size, PROT_READ, MAP_SHARED, fd,
		   first * page_size);
	if (map == MAP_FAILED || mincore(map, nr * page_size, vec))
		ret = -1;
	for (i = 0; i < nr && ret >= 0; i++)
		ret += vec[i] & 1;
	if (map != MAP_FAILED)
		munmap(map, nr * page_size);
	free(vec);
	return ret;
}

struct slice {
	int fd;
	long first;
	long nr;
};

/* Runs in the memcg to be charged */
static inline int read_slice(const char *cg, void *arg)
{
	struct slice *s = arg;
	char buf[4096];
	long i;

	/* The start of each page is enough to have it read and charged */
	for (i = s->first; i < s->first + s->nr; i++) {
		if (pread(s->fd, buf, sizeof(buf), i * page_size) != sizeof(buf))
			return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}

/* Have @nr pages from @first on read by a task in @cg; false if that failed */
static inline bool fill(const char *cg, int fd, long first, long nr)
{
	struct slice s = { .fd = fd, .first = first, .nr = nr };
	int pid, status;

	pid = cg_run_nowait(cg, read_slice, &s);
	if (pid <= 0 || waitpid(pid, &status, 0) != pid)
		return false;
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

/* --- trace events --------------------------------------------------------- */

/* a trace buffer of the tests' own */
#define TRACE_INSTANCE	"/sys/kernel/tracing/instances/memcg_test"

/* Record @event, "system/name", beside those that are recorded already */
static inline bool start_trace(const char *event)
{
	char name[128];

	if (access("/sys/kernel/tracing/trace", F_OK) &&
	    system("mount -t tracefs none /sys/kernel/tracing 2>/dev/null"))
		return false;
	if (mkdir(TRACE_INSTANCE, 0700) && errno != EEXIST)
		return false;
	path_fmt(name, sizeof(name), "events/%s/enable", event);
	return !write_str(TRACE_INSTANCE, "buffer_size_kb", "4096") &&
	       !write_str(TRACE_INSTANCE, name, "1");
}

/* Forget what has been recorded */
static inline bool clear_trace(void)
{
	int fd = open(TRACE_INSTANCE "/trace", O_WRONLY | O_TRUNC | O_CLOEXEC);

	return fd >= 0 && !close(fd);
}

static inline bool end_trace(void)
{
	return !rmdir(TRACE_INSTANCE) || errno == ENOENT;
}

/* What trace events call a memcg */
static inline unsigned long long memcg_id(const char *cg)
{
	struct stat st;

	return stat(cg, &st) ? 0 : st.st_ino;
}

/* How often event @name was recorded for memcg @id; what it said last in @found */
static inline long nr_traced(const char *name, unsigned long long id, char *found, size_t size)
{
	char line[512], event[128], value[64];
	const char *at;
	long nr = 0;
	FILE *f = fopen(TRACE_INSTANCE "/trace", "re");

	if (!f)
		return -1;
	snprintf(event, sizeof(event), "%s: ", name);
	snprintf(value, sizeof(value), " memcg_id=%llu ", id);
	while (fgets(line, sizeof(line), f)) {
		at = strstr(line, event);
		if (!at || !strstr(at, value))
			continue;
		snprintf(found, size, "%s", at + strlen(event));
		nr++;
	}
	fclose(f);
	return nr;
}

#endif /* _MEMCG_TEST_UTIL_H */
