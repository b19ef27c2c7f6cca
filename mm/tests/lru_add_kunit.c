// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests for draining the add batch.
 *
 * This file is included at the end of the file that has folio_batch_move_lru(),
 * where what it tests is static. The drain and all that it calls is the real
 * thing; what the folios are charged to, and with it their LRU lists and
 * counters, is a memcg that nobody else can get at.
 *
 * Once a page is free, it may be somebody else's before a test can look at it.
 * So tracepoints tell what becomes of each folio, at the moment it happens.
 */
#include <kunit/test.h>

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/page_counter.h>
#include <linux/panic.h>
#include <linux/percpu-refcount.h>
#include <linux/prandom.h>
#include <linux/sched/mm.h>
#include <linux/sort.h>
#include <linux/timex.h>
#include <linux/vmstat.h>

#undef CREATE_TRACE_POINTS
#include <trace/events/kmem.h>

/* folios that a batch has room for */
#define LRU_ADD_TEST_BATCH \
	(sizeof_field(struct folio_batch, folios) / sizeof(struct folio *))
#define LRU_ADD_TEST_SECONDS	20
#define LRU_ADD_TEST_ROUNDS	5000

struct lru_add_test_folio {
	struct folio *folio;
	/* read after the folio is gone, too */
	long nr_pages;
	/* the test holds a reference of its own, so the folio survives a drain */
	bool live;
	bool unevictable;
	bool mlocked;
	/* references that the test has to drop */
	int held;
	/* what the tracepoints saw: how often, and when, by lru_add_test.clock */
	atomic_t inserted;
	atomic_t freed;
	int inserted_at;
	int freed_at;
	/* what was wrong with the folio when it was freed */
	const char *wrong;
	/* calls of lru_add_test_move() */
	int moved;
};

struct lru_add_test {
	struct kunit *test;
	struct mem_cgroup *memcg;
	struct lruvec *lruvec;
	int nid;
	bool watching;
	bool tainted;
	unsigned long nr_mlock;
	/* the task that drains, while it does */
	struct task_struct *drainer;
	struct task_struct *hammer;
	bool hammering;
	unsigned long hits;
	atomic_t clock;
	move_fn_t move_fn;
	struct folio_batch fbatch;
	int nr;
	struct lru_add_test_folio folios[LRU_ADD_TEST_BATCH];
};

static struct lru_add_test_folio *lru_add_test_find(struct lru_add_test *lru,
						    struct folio *folio)
{
	int i;

	for (i = 0; i < lru->nr; i++) {
		if (lru->folios[i].folio == folio)
			return &lru->folios[i];
	}

	return NULL;
}

static void lru_add_test_inserted(void *data, struct folio *folio)
{
	struct lru_add_test *lru = data;
	struct lru_add_test_folio *tf = lru_add_test_find(lru, folio);

	if (!tf || folio->private != lru)
		return;

	tf->inserted_at = atomic_inc_return(&lru->clock);
	atomic_inc(&tf->inserted);
}

/* Whether a folio may go to the page allocator; it comes before any cleanup there. */
static const char *lru_add_test_wrong(struct folio *folio)
{
	/* the one flag that the page allocator takes care of */
	unsigned long flags = PAGE_FLAGS_CHECK_AT_FREE & ~__PG_MLOCKED;

	if (folio_ref_count(folio))
		return "referenced";
	if (folio->memcg_data)
		return "charged";
	if (folio_test_active(folio))
		return "active";
	if (folio_test_unevictable(folio))
		return "unevictable";
	if (*folio_flags(folio, 0) & flags)
		return "flags that free pages may not have";
	if (folio_test_large_rmappable(folio) && folio_order(folio) > 1 &&
	    !list_empty(&folio->_deferred_list))
		return "on a deferred split queue";

	return NULL;
}

static void lru_add_test_freed(void *data, struct page *page, unsigned int order)
{
	struct lru_add_test *lru = data;
	struct folio *folio = (struct folio *)page;
	struct lru_add_test_folio *tf = lru_add_test_find(lru, folio);

	if (!tf)
		return;

	/*
	 * Freeing clears ->private, so whoever has the page next is told from
	 * its first life. A drain frees nothing but folios of the batch.
	 */
	if (folio->private == lru)
		tf->wrong = lru_add_test_wrong(folio);
	else if (READ_ONCE(lru->drainer) != current || !in_task())
		return;

	tf->freed_at = atomic_inc_return(&lru->clock);
	atomic_inc(&tf->freed);
}

static void lru_add_test_unwatch(struct lru_add_test *lru)
{
	unregister_trace_mm_page_free(lru_add_test_freed, lru);
	unregister_trace_mm_lru_insertion(lru_add_test_inserted, lru);
	tracepoint_synchronize_unregister();
	lru->watching = false;
}

static void lru_add_test_watch(struct lru_add_test *lru)
{
	struct kunit *test = lru->test;

	if (!IS_ENABLED(CONFIG_TRACEPOINTS))
		kunit_skip(test, "needs tracepoints");

	KUNIT_ASSERT_EQ(test, register_trace_mm_lru_insertion(lru_add_test_inserted, lru), 0);
	lru->watching = true;
	KUNIT_ASSERT_EQ(test, register_trace_mm_page_free(lru_add_test_freed, lru), 0);
}

/*
 * A subsystem without ->css_rstat_flush() keeps the memcg out of the flushing of
 * statistics, which would have to find it in the hierarchy. All they count here
 * is back at zero when a test ends.
 */
static struct cgroup_subsys lru_add_test_subsys;

static DECLARE_COMPLETION(lru_add_test_released);

static void lru_add_test_css_release(struct percpu_ref *ref)
{
	complete(&lru_add_test_released);
}

/*
 * Makes a memcg as cgroup_mkdir() would, but does not link it into the
 * hierarchy: no walk over memcgs and no user finds it. It is dying from the
 * start, so that nobody misses the list_lrus it does not have: their users take
 * those of its parent, the root, in this case.
 */
static int lru_add_test_make_memcg(struct lru_add_test *lru)
{
	struct cgroup_subsys_state *root = &root_mem_cgroup->css;
	struct cgroup_subsys_state *css;
	int ret;

	reinit_completion(&lru_add_test_released);

	cgroup_lock();
	css = memory_cgrp_subsys.css_alloc(root);
	if (IS_ERR(css)) {
		ret = PTR_ERR(css);
		goto unlock;
	}

	css->cgroup = root->cgroup;
	css->ss = &lru_add_test_subsys;
	css->parent = root;
	INIT_LIST_HEAD(&css->sibling);
	INIT_LIST_HEAD(&css->children);

	ret = percpu_ref_init(&css->refcnt, lru_add_test_css_release, 0, GFP_KERNEL);
	if (ret)
		goto free;
	ret = memory_cgrp_subsys.css_online(css);
	if (ret)
		goto exit_ref;

	/* being online holds another reference */
	css->flags |= CSS_DYING;
	percpu_ref_kill(&css->refcnt);
	lru->memcg = mem_cgroup_from_css(css);
	lru->lruvec = mem_cgroup_lruvec(lru->memcg, NODE_DATA(lru->nid));
	goto unlock;

exit_ref:
	percpu_ref_exit(&css->refcnt);
free:
	memory_cgrp_subsys.css_free(css);
unlock:
	cgroup_unlock();
	return ret;
}

static void lru_add_test_free_memcg(struct lru_add_test *lru)
{
	struct cgroup_subsys_state *css = &lru->memcg->css;

	cgroup_lock();
	memory_cgrp_subsys.css_offline(css);
	cgroup_unlock();

	/* a folio that still is charged keeps it, and then it must not be freed */
	if (!wait_for_completion_timeout(&lru_add_test_released,
					 LRU_ADD_TEST_SECONDS * HZ)) {
		KUNIT_FAIL(lru->test, "the memcg still has users");
		return;
	}

	cgroup_lock();
	memory_cgrp_subsys.css_released(css);
	cgroup_unlock();

	synchronize_rcu();
	percpu_ref_exit(&css->refcnt);
	memory_cgrp_subsys.css_free(css);
}

static unsigned long lru_add_test_nr_mlock(struct lru_add_test *lru)
{
	struct zone *zones = NODE_DATA(lru->nid)->node_zones;
	unsigned long nr = 0;
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++) {
		if (populated_zone(&zones[i]))
			nr += zone_page_state_snapshot(&zones[i], NR_MLOCK);
	}

	return nr;
}

/* Warnings and bad pages that no counter shows; they can be told only once. */
static bool lru_add_test_tainted(void)
{
	return test_taint(TAINT_WARN) || test_taint(TAINT_BAD_PAGE);
}

static int lru_add_test_init_unwatched(struct kunit *test)
{
	struct lru_add_test *lru;

	if (mem_cgroup_disabled())
		kunit_skip(test, "needs memory cgroups");

	lru = kunit_kzalloc(test, sizeof(*lru), GFP_KERNEL);
	if (!lru)
		return -ENOMEM;

	lru->test = test;
	lru->nid = numa_mem_id();
	lru->tainted = lru_add_test_tainted();
	lru->nr_mlock = lru_add_test_nr_mlock(lru);
	lru->move_fn = lru_add;
	folio_batch_init(&lru->fbatch);
	test->priv = lru;

	return lru_add_test_make_memcg(lru);
}

static int lru_add_test_init(struct kunit *test)
{
	int ret = lru_add_test_init_unwatched(test);

	if (!ret)
		lru_add_test_watch(test->priv);

	return ret;
}

static void lru_add_test_exit(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	int i;

	if (!lru)
		return;

	/* only a failed test leaves these behind */
	if (lru->hammer)
		kthread_stop(lru->hammer);
	for (i = 0; i < lru->nr; i++) {
		while (lru->folios[i].held && !atomic_read(&lru->folios[i].freed)) {
			lru->folios[i].held--;
			folio_put(lru->folios[i].folio);
		}
	}

	if (lru->watching)
		lru_add_test_unwatch(lru);
	if (lru->memcg)
		lru_add_test_free_memcg(lru);
}

/* Forgets the folios of the batch before. */
static void lru_add_test_begin(struct lru_add_test *lru)
{
	lru->nr = 0;
	memset(lru->folios, 0, sizeof(lru->folios));
	folio_batch_init(&lru->fbatch);
}

static int lru_add_test_charge(struct lru_add_test *lru, struct folio *folio)
{
	struct page_counter *memory = &lru->memcg->memory;
	struct mem_cgroup *old;
	int ret;

	/* no room to charge some in advance, so that the counter is exact */
	page_counter_set_max(memory, page_counter_read(memory) + folio_nr_pages(folio));

	old = set_active_memcg(lru->memcg);
	ret = mem_cgroup_charge(folio, NULL, GFP_KERNEL);
	set_active_memcg(old);

	return ret;
}

/* A new folio for the next batch, or NULL. The test has the only reference. */
static struct lru_add_test_folio *lru_add_test_new(struct lru_add_test *lru,
						   unsigned int order, bool live)
{
	struct lru_add_test_folio *tf = &lru->folios[lru->nr];
	struct folio *folio;

	folio = __folio_alloc_node(GFP_HIGHUSER_MOVABLE | __GFP_THISNODE | __GFP_NOWARN,
				   order, lru->nid);
	if (!folio)
		return NULL;

	if (lru_add_test_charge(lru, folio)) {
		folio_put(folio);
		return NULL;
	}

	/* anonymous memory, which is not reclaimed from without swap */
	__folio_set_swapbacked(folio);
	folio->private = lru;

	tf->folio = folio;
	tf->nr_pages = folio_nr_pages(folio);
	tf->live = live;
	tf->held = 1;
	lru->nr++;

	return tf;
}

static struct lru_add_test_folio *lru_add_test_must_new(struct lru_add_test *lru,
							unsigned int order, bool live)
{
	struct lru_add_test_folio *tf = lru_add_test_new(lru, order, live);

	if (!tf)
		kunit_skip(lru->test, "no memory for a folio of order %u", order);

	return tf;
}

/* One small folio for each of @nr low bits of @mask; a set bit is a live one. */
static void lru_add_test_new_mix(struct lru_add_test *lru, int nr, unsigned long mask)
{
	int i;

	for (i = 0; i < nr; i++)
		lru_add_test_must_new(lru, 0, mask & BIT(i));
}

/* Hands the batch a reference to each folio: that of the test, if it is to die. */
static void lru_add_test_fill(struct lru_add_test *lru)
{
	int i;

	for (i = 0; i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];

		if (tf->live)
			folio_get(tf->folio);
		else
			tf->held--;
		folio_batch_add(&lru->fbatch, tf->folio);
	}
}

static void lru_add_test_drain(struct lru_add_test *lru)
{
	WRITE_ONCE(lru->drainer, current);
	/* as all callers do */
	local_lock(&cpu_fbatches.lock);
	folio_batch_move_lru(&lru->fbatch, lru->move_fn);
	local_unlock(&cpu_fbatches.lock);
	WRITE_ONCE(lru->drainer, NULL);
}

struct lru_add_test_walk {
	int nr;
	int strangers;
	int disorder;
};

/* A list has the folio that was added last first. */
static void lru_add_test_walk_list(struct lru_add_test *lru, struct list_head *head,
				   struct lru_add_test_walk *walk)
{
	struct lru_add_test_folio *tf, *last = NULL;
	struct folio *folio;

	list_for_each_entry_reverse(folio, head, lru) {
		tf = lru_add_test_find(lru, folio);
		walk->nr++;
		/* also ends the walk of a list that has become a loop */
		if (!tf || walk->nr > lru->nr) {
			walk->strangers++;
			break;
		}
		if (tf <= last)
			walk->disorder++;
		last = tf;
	}
}

/*
 * All lists of the memcg, whichever LRU is in use. Returns how many pages they
 * have by its counters.
 */
static unsigned long lru_add_test_walk_lists(struct lru_add_test *lru,
					     struct lru_add_test_walk *walk)
{
	struct lruvec *lruvec = lru->lruvec;
	unsigned long nr_pages = 0;
	enum lru_list list;
	int zone;
#ifdef CONFIG_LRU_GEN
	struct lru_gen_folio *lrugen = &lruvec->lrugen;
	int gen, type;
#endif

	memset(walk, 0, sizeof(*walk));

	spin_lock_irq(&lruvec->lru_lock);
	for_each_evictable_lru(list) {
		lru_add_test_walk_list(lru, &lruvec->lists[list], walk);
		for (zone = 0; zone < MAX_NR_ZONES; zone++)
			nr_pages += mem_cgroup_get_zone_lru_size(lruvec, list, zone);
	}
#ifdef CONFIG_LRU_GEN
	for (gen = 0; gen < MAX_NR_GENS; gen++) {
		for (type = 0; type < ANON_AND_FILE; type++) {
			for (zone = 0; zone < MAX_NR_ZONES; zone++) {
				lru_add_test_walk_list(lru, &lrugen->folios[gen][type][zone],
						       walk);
				nr_pages += lrugen->nr_pages[gen][type][zone];
			}
		}
	}
#endif
	spin_unlock_irq(&lruvec->lru_lock);

	return nr_pages;
}

static unsigned long lru_add_test_unevictable(struct lru_add_test *lru)
{
	unsigned long nr_pages = 0;
	int zone;

	for (zone = 0; zone < MAX_NR_ZONES; zone++)
		nr_pages += mem_cgroup_get_zone_lru_size(lru->lruvec, LRU_UNEVICTABLE, zone);

	return nr_pages;
}

/* The counters and lists of the memcg, when these folios are all it has. */
static void lru_add_test_expect_memcg(struct lru_add_test *lru, bool drained)
{
	unsigned long charged = 0, evictable = 0, unevictable = 0, mlocked = 0;
	struct kunit *test = lru->test;
	struct lru_add_test_walk walk;
	unsigned long listed_pages;
	int i, listed = 0;

	for (i = 0; drained && i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];

		if (!tf->live)
			continue;
		charged += tf->nr_pages;
		if (tf->mlocked)
			mlocked += tf->nr_pages;
		if (tf->unevictable) {
			/* these are counted, but not on a list */
			unevictable += tf->nr_pages;
		} else {
			evictable += tf->nr_pages;
			listed++;
		}
	}

	listed_pages = lru_add_test_walk_lists(lru, &walk);
	KUNIT_EXPECT_EQ(test, listed_pages, evictable);
	KUNIT_EXPECT_EQ(test, walk.strangers, 0);
	KUNIT_EXPECT_EQ(test, walk.disorder, 0);
	KUNIT_EXPECT_EQ(test, walk.nr, listed);
	KUNIT_EXPECT_EQ(test, lru_add_test_unevictable(lru), unevictable);
	KUNIT_EXPECT_EQ(test, page_counter_read(&lru->memcg->memory), charged);
	KUNIT_EXPECT_EQ(test, lru_add_test_nr_mlock(lru), lru->nr_mlock + mlocked);
	if (!lru->tainted)
		KUNIT_EXPECT_FALSE_MSG(test, lru_add_test_tainted(), "there was a warning");
}

/* What a drain does to each folio. */
static void lru_add_test_expect_drained(struct lru_add_test *lru)
{
	struct kunit *test = lru->test;
	int i;

	KUNIT_EXPECT_EQ(test, folio_batch_count(&lru->fbatch), 0);

	for (i = 0; i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];
		struct mem_cgroup *memcg;

		if (!tf->live) {
			KUNIT_EXPECT_EQ_MSG(test, atomic_read(&tf->freed), 1,
					    "dead folio %d of %d", i, lru->nr);
			KUNIT_EXPECT_EQ_MSG(test, atomic_read(&tf->inserted), 0,
					    "dead folio %d of %d was on the LRU", i, lru->nr);
			KUNIT_EXPECT_NULL_MSG(test, tf->wrong, "dead folio %d of %d is %s",
					      i, lru->nr, tf->wrong);
			continue;
		}

		KUNIT_EXPECT_EQ_MSG(test, atomic_read(&tf->freed), 0,
				    "live folio %d of %d", i, lru->nr);
		if (atomic_read(&tf->freed))
			continue;
		KUNIT_EXPECT_EQ_MSG(test, atomic_read(&tf->inserted), 1,
				    "live folio %d of %d", i, lru->nr);
		KUNIT_EXPECT_EQ_MSG(test, folio_ref_count(tf->folio), tf->held,
				    "live folio %d of %d", i, lru->nr);
		KUNIT_EXPECT_TRUE_MSG(test, folio_test_lru(tf->folio),
				      "live folio %d of %d", i, lru->nr);
		KUNIT_EXPECT_EQ_MSG(test, folio_test_unevictable(tf->folio), tf->unevictable,
				    "live folio %d of %d", i, lru->nr);
		rcu_read_lock();
		memcg = folio_memcg(tf->folio);
		rcu_read_unlock();
		KUNIT_EXPECT_PTR_EQ_MSG(test, memcg, lru->memcg,
					"live folio %d of %d", i, lru->nr);
	}

	lru_add_test_expect_memcg(lru, true);
}

/* Frees the live folios, too, and expects all of them to be gone for good. */
static void lru_add_test_finish(struct lru_add_test *lru)
{
	struct kunit *test = lru->test;
	int i;

	for (i = 0; i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];

		while (tf->held && !atomic_read(&tf->freed)) {
			tf->held--;
			folio_put(tf->folio);
		}
		KUNIT_EXPECT_EQ_MSG(test, atomic_read(&tf->freed), 1,
				    "folio %d of %d in the end", i, lru->nr);
		KUNIT_EXPECT_NULL_MSG(test, tf->wrong, "folio %d of %d is %s in the end",
				      i, lru->nr, tf->wrong);
	}

	lru_add_test_expect_memcg(lru, false);
	lru_add_test_begin(lru);
}

/* From a batch with the new folios to an empty memcg. */
static void lru_add_test_run(struct lru_add_test *lru)
{
	lru_add_test_fill(lru);
	lru_add_test_drain(lru);
	lru_add_test_expect_drained(lru);
	lru_add_test_finish(lru);
}

struct lru_add_mix {
	const char *desc;
	int nr;
	unsigned long live;
};

#define LRU_ADD_FULL	(BIT(LRU_ADD_TEST_BATCH) - 1)
#define LRU_ADD_MIDDLE	BIT(LRU_ADD_TEST_BATCH / 2)
#define LRU_ADD_LAST	BIT(LRU_ADD_TEST_BATCH - 1)

static const struct lru_add_mix lru_add_mixes[] = {
	{ "one live", 1, 1 },
	{ "one dead", 1, 0 },
	{ "full, all live", LRU_ADD_TEST_BATCH, LRU_ADD_FULL },
	{ "full, all dead", LRU_ADD_TEST_BATCH, 0 },
	{ "full, alternating, live first", LRU_ADD_TEST_BATCH, LRU_ADD_FULL & 0x55555555 },
	{ "full, alternating, dead first", LRU_ADD_TEST_BATCH, LRU_ADD_FULL & 0xaaaaaaaa },
	{ "full, one dead, first", LRU_ADD_TEST_BATCH, LRU_ADD_FULL & ~BIT(0) },
	{ "full, one dead, in the middle", LRU_ADD_TEST_BATCH, LRU_ADD_FULL & ~LRU_ADD_MIDDLE },
	{ "full, one dead, last", LRU_ADD_TEST_BATCH, LRU_ADD_FULL & ~LRU_ADD_LAST },
	{ "full, one live, first", LRU_ADD_TEST_BATCH, BIT(0) },
	{ "full, one live, in the middle", LRU_ADD_TEST_BATCH, LRU_ADD_MIDDLE },
	{ "full, one live, last", LRU_ADD_TEST_BATCH, LRU_ADD_LAST },
	{ "full, first half dead", LRU_ADD_TEST_BATCH, LRU_ADD_FULL & ~(LRU_ADD_MIDDLE - 1) },
	{ "full, second half dead", LRU_ADD_TEST_BATCH, LRU_ADD_MIDDLE - 1 },
};

KUNIT_ARRAY_PARAM_DESC(lru_add_mixes, lru_add_mixes, desc);

static void drain_frees_dead_and_adds_live(struct kunit *test)
{
	const struct lru_add_mix *mix = test->param_value;
	struct lru_add_test *lru = test->priv;

	/* all of them are to fit a mask */
	BUILD_BUG_ON(LRU_ADD_TEST_BATCH >= 32);

	lru_add_test_new_mix(lru, mix->nr, mix->live);
	lru_add_test_run(lru);
}

static void drain_of_empty_batch_does_nothing(struct kunit *test)
{
	lru_add_test_run(test->priv);
}

static void drain_of_every_mix_of_up_to_six(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	unsigned long live;
	int nr;

	for (nr = 1; nr <= 6; nr++) {
		for (live = 0; live < BIT(nr); live++) {
			lru_add_test_new_mix(lru, nr, live);
			lru_add_test_run(lru);
		}
	}
}

static void dead_folios_are_freed_before_live_ones_are_added(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	int i, last_freed = 0, first_inserted = INT_MAX;

	lru_add_test_new_mix(lru, 8, 0x55);
	lru_add_test_fill(lru);
	lru_add_test_drain(lru);
	for (i = 0; i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];

		if (tf->live)
			first_inserted = min(first_inserted, tf->inserted_at);
		else
			last_freed = max(last_freed, tf->freed_at);
	}
	/* that is, without an LRU lock */
	KUNIT_EXPECT_LT(test, last_freed, first_inserted);
	lru_add_test_expect_drained(lru);
	lru_add_test_finish(lru);
}

static void second_reference_makes_folio_live(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	struct lru_add_test_folio *tf;

	lru_add_test_new_mix(lru, 5, 0);
	lru_add_test_fill(lru);
	/* somebody finds it while it is in the batch */
	tf = &lru->folios[2];
	KUNIT_ASSERT_TRUE(test, folio_try_get(tf->folio));
	tf->live = true;
	tf->held++;

	lru_add_test_drain(lru);
	lru_add_test_expect_drained(lru);
	lru_add_test_finish(lru);
}

static void third_reference_makes_folio_live(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	struct lru_add_test_folio *tf;

	lru_add_test_new_mix(lru, 5, BIT(2));
	lru_add_test_fill(lru);
	tf = &lru->folios[2];
	folio_get(tf->folio);
	tf->held++;

	lru_add_test_drain(lru);
	lru_add_test_expect_drained(lru);
	lru_add_test_finish(lru);
}

static void last_put_in_batch_makes_folio_dead(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	struct lru_add_test_folio *tf;

	lru_add_test_new_mix(lru, 5, 0x1f);
	lru_add_test_fill(lru);
	tf = &lru->folios[2];
	tf->live = false;
	tf->held--;
	folio_put(tf->folio);

	lru_add_test_drain(lru);
	lru_add_test_expect_drained(lru);
	lru_add_test_finish(lru);
}

static void active_folios(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	int i;

	lru_add_test_new_mix(lru, 8, 0x5a);
	for (i = 0; i < lru->nr; i++)
		folio_set_active(lru->folios[i].folio);
	lru_add_test_fill(lru);
	lru_add_test_drain(lru);
	lru_add_test_expect_drained(lru);
	/* the multi-gen LRU clears it, too, and puts these into a young generation */
	for (i = 0; i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];

		if (tf->live && !atomic_read(&tf->freed))
			KUNIT_EXPECT_EQ(test, folio_test_active(tf->folio),
					!lru_gen_enabled());
	}
	lru_add_test_finish(lru);
}

/* Such folios come back from isolation; what made them unevictable is gone. */
static void unevictable_folios(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	int i;

	lru_add_test_new_mix(lru, 8, 0x5a);
	for (i = 0; i < lru->nr; i++)
		folio_set_unevictable(lru->folios[i].folio);
	lru_add_test_run(lru);
}

static void lru_add_test_mlock(struct lru_add_test_folio *tf)
{
	folio_set_mlocked(tf->folio);
	zone_stat_mod_folio(tf->folio, NR_MLOCK, tf->nr_pages);
	tf->mlocked = true;
	/* what becomes of it on the LRU */
	tf->unevictable = true;
}

static void mlocked_folios(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	int i;

	lru_add_test_new_mix(lru, 8, 0x5a);
	/* dead and live ones, and others between them */
	for (i = 0; i < lru->nr; i += 3)
		lru_add_test_mlock(&lru->folios[i]);
	lru_add_test_run(lru);
}

static void mlocked_unevictable_folios(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	int i;

	lru_add_test_new_mix(lru, 8, 0x5a);
	for (i = 0; i < lru->nr; i++) {
		lru_add_test_mlock(&lru->folios[i]);
		folio_set_unevictable(lru->folios[i].folio);
	}
	lru_add_test_run(lru);
}

struct lru_add_large {
	const char *desc;
	unsigned int order;
	bool partially_mapped;
};

static const struct lru_add_large lru_add_orders[] = {
	{ "order 2", 2 },
	{ "PMD order", PMD_ORDER },
};

KUNIT_ARRAY_PARAM_DESC(lru_add_orders, lru_add_orders, desc);

static void large_folios(struct kunit *test)
{
	const struct lru_add_large *large = test->param_value;
	struct lru_add_test *lru = test->priv;
	int i;

	if (large->order > MAX_PAGE_ORDER)
		kunit_skip(test, "no folios of order %u", large->order);

	/* large and small, dead and live, flags that free pages may not have */
	for (i = 0; i < 8; i++) {
		struct lru_add_test_folio *tf;

		tf = lru_add_test_must_new(lru, i & 1 ? 0 : large->order, i & 2);
		if (i & 4)
			folio_set_active(tf->folio);
	}
	lru_add_test_mlock(&lru->folios[0]);
	lru_add_test_mlock(&lru->folios[2]);
	lru_add_test_run(lru);
}

static const struct lru_add_large lru_add_deferred[] = {
	{ "order 2", 2, false },
	{ "order 2, partially mapped", 2, true },
	{ "PMD order", PMD_ORDER, false },
	{ "PMD order, partially mapped", PMD_ORDER, true },
};

KUNIT_ARRAY_PARAM_DESC(lru_add_deferred, lru_add_deferred, desc);

static void dead_folio_leaves_deferred_split_queue(struct kunit *test)
{
	const struct lru_add_large *large = test->param_value;
	struct lru_add_test *lru = test->priv;
	struct folio *live;
	int i;

	if (!IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE) || large->order > MAX_PAGE_ORDER)
		kunit_skip(test, "no folios of order %u are split", large->order);

	lru_add_test_must_new(lru, large->order, false);
	lru_add_test_must_new(lru, 0, true);
	live = lru_add_test_must_new(lru, large->order, true)->folio;
	for (i = 0; i < lru->nr; i += 2) {
		struct folio *folio = lru->folios[i].folio;

		deferred_split_folio(folio, large->partially_mapped);
		KUNIT_EXPECT_FALSE(test, list_empty(&folio->_deferred_list));
	}

	lru_add_test_fill(lru);
	lru_add_test_drain(lru);
	lru_add_test_expect_drained(lru);
	if (!atomic_read(&lru->folios[2].freed))
		KUNIT_EXPECT_FALSE(test, list_empty(&live->_deferred_list));
	lru_add_test_finish(lru);
}

/*
 * Through folio_add_lru() and this CPU's own batch. Nobody else on the CPU may
 * drain it before a folio is dead, so preemption is off.
 */
static void lru_add_test_run_percpu(struct lru_add_test *lru, bool drain)
{
	int i, left;

	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		kunit_skip(lru->test, "local locks sleep");
	if (lru_cache_disabled())
		kunit_skip(lru->test, "somebody keeps all batches empty");

	preempt_disable();
	lru_add_drain();
	WRITE_ONCE(lru->drainer, current);
	for (i = 0; i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];

		folio_add_lru(tf->folio);
		if (!tf->live) {
			tf->held--;
			folio_put(tf->folio);
		}
	}
	if (drain)
		lru_add_drain();
	left = folio_batch_count(this_cpu_ptr(&cpu_fbatches.lru_add));
	WRITE_ONCE(lru->drainer, NULL);
	preempt_enable();

	KUNIT_EXPECT_EQ(lru->test, left, 0);
	lru_add_test_expect_drained(lru);
	lru_add_test_finish(lru);
}

static void lru_add_drain_frees_dead_folios(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;

	lru_add_test_new_mix(lru, 7, 0x2c);
	lru_add_test_run_percpu(lru, true);
}

static void full_percpu_batch_frees_dead_folios(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;

	/* whoever adds the last one still holds it */
	lru_add_test_new_mix(lru, LRU_ADD_TEST_BATCH, LRU_ADD_LAST | 0x1234);
	lru_add_test_run_percpu(lru, false);
}

static void large_folio_drains_percpu_batch(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;

	lru_add_test_new_mix(lru, 5, 0x0a);
	lru_add_test_must_new(lru, 2, true);
	lru_add_test_run_percpu(lru, false);
}

struct lru_add_other {
	const char *desc;
	move_fn_t move_fn;
};

static const struct lru_add_other lru_add_others[] = {
	{ "activate", lru_activate },
	{ "deactivate", lru_deactivate },
	{ "deactivate_file", lru_deactivate_file },
	{ "lazyfree", lru_lazyfree },
	{ "move_tail", lru_move_tail },
};

KUNIT_ARRAY_PARAM_DESC(lru_add_others, lru_add_others, desc);

static void lru_add_test_move(struct lruvec *lruvec, struct folio *folio)
{
	struct lru_add_test *lru = folio->private;
	const struct lru_add_other *other = lru->test->param_value;

	lru_add_test_find(lru, folio)->moved++;
	other->move_fn(lruvec, folio);
}

/* A folio that is on the LRU is moved there, and then freed by folios_put(). */
static void other_batches_move_dead_folios(struct kunit *test)
{
	const struct lru_add_other *other = test->param_value;
	struct lru_add_test *lru = test->priv;
	struct lru_add_test_walk walk;
	int spy, i;

	for (spy = 0; spy < 2; spy++) {
		lru_add_test_new_mix(lru, 8, 0xff);
		lru_add_test_fill(lru);
		lru_add_test_drain(lru);
		lru_add_test_expect_drained(lru);

		for (i = 0; i < lru->nr; i++) {
			struct lru_add_test_folio *tf = &lru->folios[i];

			tf->live = i & 1;
			if (tf->live)
				folio_get(tf->folio);
			else
				tf->held--;
			folio_batch_add(&lru->fbatch, tf->folio);
		}
		lru->move_fn = spy ? lru_add_test_move : other->move_fn;
		lru_add_test_drain(lru);
		lru->move_fn = lru_add;

		KUNIT_EXPECT_EQ(test, folio_batch_count(&lru->fbatch), 0);
		for (i = 0; i < lru->nr; i++) {
			struct lru_add_test_folio *tf = &lru->folios[i];

			KUNIT_EXPECT_EQ(test, tf->moved, spy);
			KUNIT_EXPECT_EQ(test, atomic_read(&tf->freed), !tf->live);
			KUNIT_EXPECT_EQ(test, atomic_read(&tf->inserted), 1);
			KUNIT_EXPECT_NULL(test, tf->wrong);
		}
		/* in what order, is the business of these functions */
		KUNIT_EXPECT_EQ(test, lru_add_test_walk_lists(lru, &walk), 4);
		KUNIT_EXPECT_EQ(test, walk.nr, 4);
		KUNIT_EXPECT_EQ(test, walk.strangers, 0);
		KUNIT_EXPECT_EQ(test, page_counter_read(&lru->memcg->memory), 4);
		lru_add_test_finish(lru);
	}
}

/* Takes and drops references to whatever folios are being drained. */
static int lru_add_test_hammer(void *data)
{
	struct lru_add_test *lru = data;
	int i;

	while (!kthread_should_stop()) {
		for (i = 0; i < LRU_ADD_TEST_BATCH && READ_ONCE(lru->hammering); i++) {
			struct folio *folio = READ_ONCE(lru->folios[i].folio);

			if (!folio || !folio_try_get(folio))
				continue;
			lru->hits++;
			folio_put(folio);
		}
		cond_resched();
	}

	return 0;
}

/* Waits for those that the hammer has made live and now has to free. */
static bool lru_add_test_wait_freed(struct lru_add_test *lru, bool live)
{
	unsigned long end = jiffies + LRU_ADD_TEST_SECONDS * HZ;
	int i;

	for (i = 0; i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];

		while (tf->live == live && !atomic_read_acquire(&tf->freed)) {
			if (time_after(jiffies, end))
				return false;
			cond_resched();
		}
	}

	return true;
}

static bool lru_add_test_hammer_round(struct lru_add_test *lru, unsigned long live,
				      unsigned long *revived)
{
	bool ok;
	int i;

	for (i = 0; i < LRU_ADD_TEST_BATCH; i++) {
		if (!lru_add_test_new(lru, 0, live & BIT(i)))
			return false;
	}

	WRITE_ONCE(lru->hammering, true);
	lru_add_test_fill(lru);
	lru_add_test_drain(lru);
	ok = !folio_batch_count(&lru->fbatch) && lru_add_test_wait_freed(lru, false);

	for (i = 0; ok && i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];
		int inserted = atomic_read(&tf->inserted);

		if (!tf->live) {
			*revived += inserted;
			continue;
		}
		ok = inserted == 1 && !atomic_read(&tf->freed);
		if (ok) {
			tf->held--;
			folio_put(tf->folio);
		}
	}
	ok = ok && lru_add_test_wait_freed(lru, true);
	WRITE_ONCE(lru->hammering, false);

	for (i = 0; ok && i < lru->nr; i++) {
		struct lru_add_test_folio *tf = &lru->folios[i];

		ok = atomic_read(&tf->freed) == 1 && atomic_read(&tf->inserted) <= 1 &&
		     !tf->wrong;
	}

	return ok;
}

static void references_taken_while_draining(struct kunit *test)
{
	struct lru_add_test *lru = test->priv;
	unsigned long revived = 0;
	struct rnd_state rnd;
	unsigned int cpu;
	bool ok = true;
	int round;

	cpu = cpumask_any_but(cpu_online_mask, raw_smp_processor_id());
	if (cpu >= nr_cpu_ids)
		kunit_skip(test, "needs two CPUs");

	lru->hammer = kthread_create(lru_add_test_hammer, lru, "lru_add_hammer");
	if (IS_ERR(lru->hammer)) {
		lru->hammer = NULL;
		KUNIT_FAIL_AND_ABORT(test, "no kthread");
	}
	kthread_bind(lru->hammer, cpu);
	wake_up_process(lru->hammer);

	prandom_seed_state(&rnd, 1);
	for (round = 0; ok && round < LRU_ADD_TEST_ROUNDS; round++) {
		ok = lru_add_test_hammer_round(lru, prandom_u32_state(&rnd), &revived);
		if (!ok)
			break;
		lru_add_test_expect_memcg(lru, false);
		lru_add_test_begin(lru);
		cond_resched();
	}
	WRITE_ONCE(lru->hammering, false);
	kthread_stop(lru->hammer);
	lru->hammer = NULL;

	KUNIT_EXPECT_TRUE_MSG(test, ok, "in round %d", round);
	/* says where */
	lru_add_test_finish(lru);
	kunit_info(test, "%d rounds, %lu references taken, %lu folios kept from being dead\n",
		   round, lru->hits, revived);
}

static struct kunit_case lru_add_test_cases[] = {
	KUNIT_CASE_PARAM(drain_frees_dead_and_adds_live, lru_add_mixes_gen_params),
	KUNIT_CASE(drain_of_empty_batch_does_nothing),
	KUNIT_CASE(drain_of_every_mix_of_up_to_six),
	KUNIT_CASE(dead_folios_are_freed_before_live_ones_are_added),
	KUNIT_CASE(second_reference_makes_folio_live),
	KUNIT_CASE(third_reference_makes_folio_live),
	KUNIT_CASE(last_put_in_batch_makes_folio_dead),
	KUNIT_CASE(active_folios),
	KUNIT_CASE(unevictable_folios),
	KUNIT_CASE(mlocked_folios),
	KUNIT_CASE(mlocked_unevictable_folios),
	KUNIT_CASE_PARAM(large_folios, lru_add_orders_gen_params),
	KUNIT_CASE_PARAM(dead_folio_leaves_deferred_split_queue,
			 lru_add_deferred_gen_params),
	KUNIT_CASE(lru_add_drain_frees_dead_folios),
	KUNIT_CASE(full_percpu_batch_frees_dead_folios),
	KUNIT_CASE(large_folio_drains_percpu_batch),
	KUNIT_CASE_PARAM(other_batches_move_dead_folios, lru_add_others_gen_params),
	KUNIT_CASE_SLOW(references_taken_while_draining),
	{}
};

static struct kunit_suite lru_add_test_suite = {
	.name = "lru_add",
	.init = lru_add_test_init,
	.exit = lru_add_test_exit,
	.test_cases = lru_add_test_cases,
};

/*
 * Costs are reported, not judged: what is too much depends on the machine. For
 * counts that repeat, run this in a virtual machine whose cycle counter counts
 * instructions. Nothing is attached to the tracepoints here.
 */
#define LRU_ADD_COST_SAMPLES	101

struct lru_add_cost {
	const char *desc;
	bool drain;
	bool live;
};

static const struct lru_add_cost lru_add_costs[] = {
	{ "drain of live folios", true, true },
	{ "drain of dead folios", true, false },
	{ "folios_put() of live folios", false, true },
	{ "folios_put() of dead folios", false, false },
};

KUNIT_ARRAY_PARAM_DESC(lru_add_costs, lru_add_costs, desc);

static int lru_add_cost_cmp(const void *a, const void *b)
{
	const u64 *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* No interrupt within a sample, where locks allow that. */
static u64 lru_add_cost_sample(struct lru_add_test *lru, const struct lru_add_cost *cost)
{
	unsigned long flags = 0;
	cycles_t start, end;

	lru_add_test_fill(lru);

	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		local_irq_save(flags);
	start = get_cycles();
	if (cost && cost->drain)
		folio_batch_move_lru(&lru->fbatch, lru_add);
	else if (cost)
		folios_put(&lru->fbatch);
	end = get_cycles();
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		local_irq_restore(flags);

	return end - start;
}

static u64 lru_add_cost_median(struct lru_add_test *lru, const struct lru_add_cost *cost)
{
	static u64 samples[LRU_ADD_COST_SAMPLES];
	int i, j;

	for (i = 0; i < LRU_ADD_COST_SAMPLES; i++) {
		if (cost)
			lru_add_test_new_mix(lru, LRU_ADD_TEST_BATCH,
					     cost->live ? LRU_ADD_FULL : 0);
		samples[i] = lru_add_cost_sample(lru, cost);
		for (j = 0; j < lru->nr; j++) {
			if (lru->folios[j].held)
				folio_put(lru->folios[j].folio);
		}
		lru_add_test_begin(lru);
		cond_resched();
	}

	sort(samples, LRU_ADD_COST_SAMPLES, sizeof(u64), lru_add_cost_cmp, NULL);
	return samples[LRU_ADD_COST_SAMPLES / 2];
}

static void cost_per_folio(struct kunit *test)
{
	const struct lru_add_cost *cost = test->param_value;
	struct lru_add_test *lru = test->priv;
	u64 none, some, tenths;
	u32 rest;

	none = lru_add_cost_median(lru, NULL);
	some = lru_add_cost_median(lru, cost);
	tenths = div_u64((some - min(none, some)) * 10, LRU_ADD_TEST_BATCH);
	tenths = div_u64_rem(tenths, 10, &rest);

	kunit_info(test, "%s: %llu.%u cycles per folio\n", cost->desc, tenths, rest);
}

static struct kunit_case lru_add_cost_cases[] = {
	KUNIT_CASE_PARAM_ATTR(cost_per_folio, lru_add_costs_gen_params,
			      {.speed = KUNIT_SPEED_SLOW}),
	{}
};

static struct kunit_suite lru_add_cost_suite = {
	.name = "lru_add_cost",
	.init = lru_add_test_init_unwatched,
	.exit = lru_add_test_exit,
	.test_cases = lru_add_cost_cases,
};

kunit_test_suites(&lru_add_test_suite, &lru_add_cost_suite);
