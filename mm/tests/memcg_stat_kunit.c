// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests for the statistics of dying memcgs and for the shadow budget.
 *
 * This file is included at the end of mm/memcontrol.c, where what it tests is
 * static. The memcgs are fakes with nothing but counters and a parent, and a
 * controller that is not flushed: what an update or a move does stays in the
 * CPUs' shares, where it can be told exactly, and no cgroup gets to see it.
 */
#include <kunit/test.h>

#include <linux/completion.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>

/* more than fits into an int, in pages and in bytes */
#define MEMCG_STAT_TEST_LARGE	((long)INT_MAX * 3 + 1)

#define MEMCG_STAT_TEST_ROUNDS	100

/* without a css_rstat_flush(), by which updates know that nobody flushes them */
static struct cgroup_subsys memcg_stat_test_subsys;

static void memcg_stat_test_free_percpu(void *p)
{
	free_percpu((void __percpu *)(unsigned long)p);
}

/**
 * memcg_stat_test_alloc - make a fake memcg
 * @test: the test that it lives as long as
 * @parent: its parent, or NULL for a root
 *
 * Context: may sleep.
 * Return: the memcg, alive, with all counters at zero. A failure ends the test.
 */
static struct mem_cgroup *memcg_stat_test_alloc(struct kunit *test,
						struct mem_cgroup *parent)
{
	struct memcg_vmstats_percpu *statc;
	struct mem_cgroup_per_node *pn;
	struct mem_cgroup *memcg;
	int nid, cpu;

	memcg = kunit_kzalloc(test, struct_size(memcg, nodeinfo, nr_node_ids), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, memcg);
	memcg->css.ss = &memcg_stat_test_subsys;
	memcg->css.parent = parent ? &parent->css : NULL;

	memcg->vmstats = kunit_kzalloc(test, sizeof(*memcg->vmstats), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, memcg->vmstats);
	memcg->vmstats_percpu = alloc_percpu(struct memcg_vmstats_percpu);
	KUNIT_ASSERT_TRUE(test, !!memcg->vmstats_percpu);
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, memcg_stat_test_free_percpu,
						  (void __force *)memcg->vmstats_percpu));
	for_each_possible_cpu(cpu) {
		statc = per_cpu_ptr(memcg->vmstats_percpu, cpu);
		statc->parent_pcpu = parent ? parent->vmstats_percpu : NULL;
		statc->vmstats = memcg->vmstats;
	}

	for_each_node(nid) {
		pn = kunit_kzalloc(test, sizeof(*pn), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, pn);
		pn->lruvec_stats = kunit_kzalloc(test, sizeof(*pn->lruvec_stats), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, pn->lruvec_stats);
		pn->lruvec_stats_percpu = alloc_percpu(struct lruvec_stats_percpu);
		KUNIT_ASSERT_TRUE(test, !!pn->lruvec_stats_percpu);
		KUNIT_ASSERT_EQ(test, 0,
				kunit_add_action_or_reset(test, memcg_stat_test_free_percpu,
							  (void __force *)pn->lruvec_stats_percpu));
		pn->memcg = memcg;
		pn->lruvec.pgdat = NODE_DATA(nid);
		memcg->nodeinfo[nid] = pn;
	}
	return memcg;
}

static void memcg_stat_test_kill(struct mem_cgroup *memcg)
{
	memcg->css.flags |= CSS_DYING;
}

static struct lruvec *memcg_stat_test_lruvec(struct mem_cgroup *memcg)
{
	return &memcg->nodeinfo[first_online_node]->lruvec;
}

/* What all CPUs hold back of a counter: nothing else is ever changed here */
static long memcg_stat_test_pending(struct mem_cgroup *memcg, int idx)
{
	int i = memcg_stats_index(idx), cpu;
	long sum = 0;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(memcg->vmstats_percpu, cpu)->state[i]);
	return sum;
}

static long memcg_stat_test_lruvec_pending(struct mem_cgroup *memcg, int nid, int idx)
{
	struct mem_cgroup_per_node *pn = memcg->nodeinfo[nid];
	int i = memcg_stats_index(idx), cpu;
	long sum = 0;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(pn->lruvec_stats_percpu, cpu)->state[i]);
	return sum;
}

/* As a flush would do it for the local counter of one lruvec */
static void memcg_stat_test_flush_lruvec(struct mem_cgroup *memcg, int nid, int idx)
{
	struct mem_cgroup_per_node *pn = memcg->nodeinfo[nid];
	int i = memcg_stats_index(idx), cpu;

	pn->lruvec_stats->state_local[i] += memcg_stat_test_lruvec_pending(memcg, nid, idx);
	for_each_possible_cpu(cpu)
		per_cpu_ptr(pn->lruvec_stats_percpu, cpu)->state[i] = 0;
}

static struct mem_cgroup *memcg_stat_test_owner(struct mem_cgroup *memcg)
{
	preempt_disable();
	memcg = memcg_stat_owner(memcg);
	preempt_enable();
	return memcg;
}

/* --- whose counters an update goes to -------------------------------------- */

static void memcg_stat_test_living(struct kunit *test)
{
	struct mem_cgroup *root = memcg_stat_test_alloc(test, NULL);
	struct mem_cgroup *child = memcg_stat_test_alloc(test, root);

	KUNIT_EXPECT_PTR_EQ(test, child, memcg_stat_test_owner(child));
	KUNIT_EXPECT_PTR_EQ(test, root, memcg_stat_test_owner(root));
}

/* One to three levels of dying memcgs below one that is alive */
static void memcg_stat_test_dying(struct kunit *test)
{
	struct mem_cgroup *memcg[5];
	int living, i;

	for (living = 3; living >= 0; living--) {
		memcg[0] = memcg_stat_test_alloc(test, NULL);
		for (i = 1; i < 5; i++)
			memcg[i] = memcg_stat_test_alloc(test, memcg[i - 1]);
		for (i = living + 1; i < 5; i++)
			memcg_stat_test_kill(memcg[i]);

		for (i = 0; i < 5; i++) {
			struct mem_cgroup *owner = memcg[min(i, living)];

			KUNIT_EXPECT_PTR_EQ_MSG(test, owner, memcg_stat_test_owner(memcg[i]),
						"level %d, alive down to %d", i, living);
			mod_memcg_state(memcg[i], MEMCG_KMEM, 1);
			mod_memcg_lruvec_state(memcg_stat_test_lruvec(memcg[i]), NR_FILE_PAGES, 1);
		}
		/* The owner has its own and those of all below it */
		for (i = 0; i < 5; i++) {
			long want = i < living ? 1 : i == living ? 5 - living : 0;

			KUNIT_EXPECT_EQ(test, want, memcg_stat_test_pending(memcg[i], MEMCG_KMEM));
			KUNIT_EXPECT_EQ(test, want,
					memcg_stat_test_pending(memcg[i], NR_FILE_PAGES));
			KUNIT_EXPECT_EQ(test, want,
					memcg_stat_test_lruvec_pending(memcg[i], first_online_node,
								       NR_FILE_PAGES));
		}
	}
}

/* The same node of the owner, and no other */
static void memcg_stat_test_dying_node(struct kunit *test)
{
	struct mem_cgroup *root = memcg_stat_test_alloc(test, NULL);
	struct mem_cgroup *child = memcg_stat_test_alloc(test, root);
	int nid, other;

	memcg_stat_test_kill(child);
	for_each_online_node(nid) {
		mod_memcg_lruvec_state(&child->nodeinfo[nid]->lruvec, NR_FILE_PAGES, 3);
		for_each_online_node(other)
			KUNIT_EXPECT_EQ(test, other <= nid ? 3 : 0,
					memcg_stat_test_lruvec_pending(root, other, NR_FILE_PAGES));
	}
}

struct memcg_stat_test_writer {
	struct mem_cgroup *memcg;
	struct completion running;
	bool stop;
};

static int memcg_stat_test_write(void *arg)
{
	struct memcg_stat_test_writer *w = arg;
	unsigned long i = 0;

	while (!READ_ONCE(w->stop)) {
		mod_memcg_lruvec_state(memcg_stat_test_lruvec(w->memcg), NR_FILE_PAGES, 1);
		mod_memcg_state(w->memcg, MEMCG_SWAP, 1);
		if (++i == 100)
			complete(&w->running);
		if (!(i % 1000))
			cond_resched();
	}
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

/*
 * What offlining relies on: a grace period after a memcg was marked dying, its
 * counters do not change any more, whatever updates were under way.
 */
static void memcg_stat_test_dying_is_final(struct kunit *test)
{
	struct memcg_stat_test_writer w;
	struct task_struct *task;
	struct mem_cgroup *root;
	unsigned long end;
	long lruvec, memcg;
	int round;

	for (round = 0; round < MEMCG_STAT_TEST_ROUNDS; round++) {
		root = memcg_stat_test_alloc(test, NULL);
		w = (struct memcg_stat_test_writer) {
			.memcg = memcg_stat_test_alloc(test, root),
		};
		init_completion(&w.running);
		task = kthread_run(memcg_stat_test_write, &w, "memcg_stat_test");
		KUNIT_ASSERT_FALSE(test, IS_ERR(task));
		wait_for_completion(&w.running);

		memcg_stat_test_kill(w.memcg);
		synchronize_rcu_expedited();
		lruvec = memcg_stat_test_lruvec_pending(w.memcg, first_online_node, NR_FILE_PAGES);
		memcg = memcg_stat_test_pending(w.memcg, MEMCG_SWAP);

		/* The writer goes on, for the parent now */
		end = jiffies + 60 * HZ;
		while (!memcg_stat_test_pending(root, MEMCG_SWAP) && time_before(jiffies, end))
			cond_resched();
		WRITE_ONCE(w.stop, true);
		kthread_stop(task);
		KUNIT_ASSERT_LT(test, 0, memcg_stat_test_pending(root, MEMCG_SWAP));
		KUNIT_ASSERT_EQ(test, lruvec,
				memcg_stat_test_lruvec_pending(w.memcg, first_online_node,
							       NR_FILE_PAGES));
		KUNIT_ASSERT_EQ(test, memcg, memcg_stat_test_pending(w.memcg, MEMCG_SWAP));
	}
}

/* --- moving the local counters --------------------------------------------- */

static const int memcg_stat_test_moved[] = {
	NR_INACTIVE_ANON, NR_ACTIVE_ANON, NR_INACTIVE_FILE, NR_ACTIVE_FILE, NR_UNEVICTABLE,
	NR_SLAB_RECLAIMABLE_B, NR_SLAB_UNRECLAIMABLE_B,
};

static const long memcg_stat_test_values[] = {
	0, 1, 4095, MEMCG_STAT_TEST_LARGE, -1, -MEMCG_STAT_TEST_LARGE,
};

static void memcg_stat_test_move_values(struct kunit *test)
{
	struct mem_cgroup *root = memcg_stat_test_alloc(test, NULL);
	struct mem_cgroup *parent, *child;
	int v, i, nid;

	for (v = 0; v < ARRAY_SIZE(memcg_stat_test_values); v++) {
		long value = memcg_stat_test_values[v];

		parent = memcg_stat_test_alloc(test, root);
		child = memcg_stat_test_alloc(test, parent);
		for_each_node(nid) {
			struct lruvec_stats *stats = child->nodeinfo[nid]->lruvec_stats;

			for (i = 0; i < ARRAY_SIZE(memcg_stat_test_moved); i++)
				stats->state_local[memcg_stats_index(memcg_stat_test_moved[i])] =
					value + nid;
			/* nobody reads this one locally */
			stats->state_local[memcg_stats_index(NR_KERNEL_STACK_KB)] = value;
		}

		memcg_stat_test_kill(child);
		reparent_state_local(child, parent);

		for_each_node(nid) {
			for (i = 0; i < ARRAY_SIZE(memcg_stat_test_moved); i++) {
				int idx = memcg_stat_test_moved[i];
				long left = memcg_stat_test_lruvec_pending(child, nid, idx);
				long come = memcg_stat_test_lruvec_pending(parent, nid, idx);

				KUNIT_EXPECT_EQ_MSG(test, -(value + nid), left,
						    "item %d, node %d", idx, nid);
				KUNIT_EXPECT_EQ_MSG(test, value + nid, come,
						    "item %d, node %d", idx, nid);
				KUNIT_EXPECT_EQ(test, 0,
						memcg_stat_test_lruvec_pending(root, nid, idx));
			}
			KUNIT_EXPECT_EQ(test, 0,
					memcg_stat_test_lruvec_pending(parent, nid,
								       NR_KERNEL_STACK_KB));
		}
	}
}

/*
 * All three go offline, from the bottom up. Half of what the leaf was charged is
 * freed when leaf and parent are dying already: the grandparent pays for it first.
 */
static void memcg_stat_test_move_levels(struct kunit *test)
{
	struct mem_cgroup *memcg[4];
	int nid = first_online_node;
	int i;

	memcg[0] = memcg_stat_test_alloc(test, NULL);
	for (i = 1; i < 4; i++)
		memcg[i] = memcg_stat_test_alloc(test, memcg[i - 1]);

	mod_memcg_lruvec_state(memcg_stat_test_lruvec(memcg[3]), NR_ACTIVE_FILE, 10);
	memcg_stat_test_flush_lruvec(memcg[3], nid, NR_ACTIVE_FILE);
	memcg_stat_test_kill(memcg[3]);
	memcg_stat_test_kill(memcg[2]);
	mod_memcg_lruvec_state(memcg_stat_test_lruvec(memcg[3]), NR_ACTIVE_FILE, -5);
	memcg_stat_test_flush_lruvec(memcg[1], nid, NR_ACTIVE_FILE);
	KUNIT_EXPECT_EQ(test, 0, lruvec_page_state_local(memcg_stat_test_lruvec(memcg[1]),
							 NR_ACTIVE_FILE));

	for (i = 3; i > 0; i--) {
		memcg_stat_test_kill(memcg[i]);
		reparent_state_local(memcg[i], memcg[i - 1]);
		memcg_stat_test_flush_lruvec(memcg[i], nid, NR_ACTIVE_FILE);
		memcg_stat_test_flush_lruvec(memcg[i - 1], nid, NR_ACTIVE_FILE);
		KUNIT_EXPECT_EQ(test, 0, lruvec_page_state_local(memcg_stat_test_lruvec(memcg[i]),
								 NR_ACTIVE_FILE));
	}
	KUNIT_EXPECT_EQ(test, 5, lruvec_page_state_local(memcg_stat_test_lruvec(memcg[0]),
							 NR_ACTIVE_FILE));
}

#ifdef CONFIG_MEMCG_V1
static void memcg_stat_test_move_memcg1(struct kunit *test)
{
	struct mem_cgroup *parent, *child;
	int v, i = memcg_stats_index(NR_FILE_PAGES);

	for (v = 0; v < ARRAY_SIZE(memcg_stat_test_values); v++) {
		long value = memcg_stat_test_values[v];

		parent = memcg_stat_test_alloc(test, NULL);
		child = memcg_stat_test_alloc(test, parent);
		child->vmstats->state_local[i] = value;
		reparent_memcg1_state_local(child, parent);
		KUNIT_EXPECT_EQ(test, -value, memcg_stat_test_pending(child, NR_FILE_PAGES));
		KUNIT_EXPECT_EQ(test, value, memcg_stat_test_pending(parent, NR_FILE_PAGES));
		KUNIT_EXPECT_EQ(test, 0, memcg_stat_test_pending(parent, NR_SHMEM));
	}
}
#endif

/* --- the shadow budget ----------------------------------------------------- */

/* Pages for each node that the budget has: an eighth of a node's slots */
#define MEMCG_STAT_TEST_PAGES	(1L << (XA_CHUNK_SHIFT - 3))

static void memcg_stat_test_set(struct lruvec *lruvec, int idx, long value)
{
	struct mem_cgroup_per_node *pn = container_of(lruvec, struct mem_cgroup_per_node, lruvec);

	pn->lruvec_stats->state_local[memcg_stats_index(idx)] = value;
}

static void memcg_stat_test_budget_pages(struct kunit *test)
{
	static const struct {
		long pages;
		unsigned long nodes;
	} cases[] = {
		{ 0, 0 },
		{ 1, 0 },
		{ MEMCG_STAT_TEST_PAGES - 1, 0 },
		{ MEMCG_STAT_TEST_PAGES, 1 },
		{ MEMCG_STAT_TEST_PAGES + 1, 1 },
		{ 1000 * MEMCG_STAT_TEST_PAGES - 1, 999 },
		{ LONG_MAX / PAGE_SIZE, LONG_MAX / PAGE_SIZE / MEMCG_STAT_TEST_PAGES },
		/* an estimate may be off: what is below zero counts as none */
		{ -1, 0 },
		{ LONG_MIN / 2, 0 },
	};
	struct lruvec *lruvec;
	enum lru_list lru;
	int c;

	for (c = 0; c < ARRAY_SIZE(cases); c++) {
		/* on any of the lists */
		for_each_lru(lru) {
			lruvec = memcg_stat_test_lruvec(memcg_stat_test_alloc(test, NULL));
			memcg_stat_test_set(lruvec, NR_LRU_BASE + lru, cases[c].pages);
			KUNIT_EXPECT_EQ_MSG(test, cases[c].nodes, lruvec_shadow_budget(lruvec),
					    "%ld pages on list %d", cases[c].pages, lru);
		}
	}
}

static void memcg_stat_test_budget_slab(struct kunit *test)
{
	struct lruvec *lruvec = memcg_stat_test_lruvec(memcg_stat_test_alloc(test, NULL));

	memcg_stat_test_set(lruvec, NR_SLAB_RECLAIMABLE_B, 100 * MEMCG_STAT_TEST_PAGES * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, 100, lruvec_shadow_budget(lruvec));
	memcg_stat_test_set(lruvec, NR_SLAB_UNRECLAIMABLE_B,
			    10 * MEMCG_STAT_TEST_PAGES * PAGE_SIZE - 1);
	KUNIT_EXPECT_EQ(test, 109, lruvec_shadow_budget(lruvec));
	memcg_stat_test_set(lruvec, NR_SLAB_UNRECLAIMABLE_B,
			    10 * MEMCG_STAT_TEST_PAGES * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, 110, lruvec_shadow_budget(lruvec));
}

/* Each of these once, and nothing else */
static void memcg_stat_test_budget_sum(struct kunit *test)
{
	struct lruvec *lruvec = memcg_stat_test_lruvec(memcg_stat_test_alloc(test, NULL));
	unsigned long want = 0;
	enum lru_list lru;

	memcg_stat_test_set(lruvec, NR_FILE_PAGES, 1000 * MEMCG_STAT_TEST_PAGES);
	memcg_stat_test_set(lruvec, NR_ANON_MAPPED, 1000 * MEMCG_STAT_TEST_PAGES);
	memcg_stat_test_set(lruvec, NR_KERNEL_STACK_KB, 1000 * MEMCG_STAT_TEST_PAGES);
	KUNIT_EXPECT_EQ(test, 0, lruvec_shadow_budget(lruvec));
	for_each_lru(lru) {
		memcg_stat_test_set(lruvec, NR_LRU_BASE + lru, MEMCG_STAT_TEST_PAGES << lru);
		want += 1UL << lru;
	}
	memcg_stat_test_set(lruvec, NR_SLAB_RECLAIMABLE_B, MEMCG_STAT_TEST_PAGES * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, want + 1, lruvec_shadow_budget(lruvec));
}

static struct kunit_case memcg_stat_test_cases[] = {
	KUNIT_CASE(memcg_stat_test_living),
	KUNIT_CASE(memcg_stat_test_dying),
	KUNIT_CASE(memcg_stat_test_dying_node),
	KUNIT_CASE(memcg_stat_test_dying_is_final),
	KUNIT_CASE(memcg_stat_test_move_values),
	KUNIT_CASE(memcg_stat_test_move_levels),
#ifdef CONFIG_MEMCG_V1
	KUNIT_CASE(memcg_stat_test_move_memcg1),
#endif
	KUNIT_CASE(memcg_stat_test_budget_pages),
	KUNIT_CASE(memcg_stat_test_budget_slab),
	KUNIT_CASE(memcg_stat_test_budget_sum),
	{}
};

static struct kunit_suite memcg_stat_test_suite = {
	.name = "memcg_stat",
	.test_cases = memcg_stat_test_cases,
};

kunit_test_suite(memcg_stat_test_suite);
