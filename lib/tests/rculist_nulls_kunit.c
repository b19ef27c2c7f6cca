// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests for the RCU-protected nulls lists.
 *
 * The first group of cases looks at every link after each change made by a
 * single thread. The second one lets a reader on another CPU walk a list while
 * it is being changed.
 */
#include <kunit/test.h>

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/prandom.h>
#include <linux/rculist_nulls.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

struct nulls_item {
	struct hlist_nulls_node node;
	/* the place among the items that a test looks for, or -1 */
	int id;
};

/*
 * The list must consist of exactly the items named by @order, a letter each,
 * be linked both ways, and end with the nulls value it was initialised with.
 */
static void expect_list(struct kunit *test, struct hlist_nulls_head *head,
			unsigned long nulls, const char *order)
{
	struct hlist_nulls_node **pprev = &head->first;
	struct hlist_nulls_node *pos;
	const char *name = order;

	for (pos = head->first; !is_a_nulls(pos); pos = pos->next) {
		struct nulls_item *item;

		item = hlist_nulls_entry(pos, struct nulls_item, node);
		/* also ends the walk if the list has been tied into a loop */
		KUNIT_ASSERT_EQ_MSG(test, 'a' + item->id, *name,
				    "item %zd of \"%s\"", name - order, order);
		KUNIT_EXPECT_PTR_EQ_MSG(test, pos->pprev, pprev,
					"back link of item %c in \"%s\"",
					'a' + item->id, order);
		pprev = &pos->next;
		name++;
	}

	KUNIT_EXPECT_EQ_MSG(test, *name, '\0', "\"%s\" ends too early", order);
	KUNIT_EXPECT_EQ_MSG(test, get_nulls_value(pos), nulls,
			    "nulls value of \"%s\"", order);
}

#define NR_ITEMS 5

struct nulls_list {
	struct hlist_nulls_head head;
	struct nulls_item items[NR_ITEMS];
	unsigned long nulls;
};

/* 2^31 different values are guaranteed to work on every architecture */
static const unsigned long nulls_values[] = { 0, 1, 2, 0x12345, 0x7fffffff };

static void nulls_value_desc(const unsigned long *value, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "nulls value %#lx", *value);
}

KUNIT_ARRAY_PARAM(nulls_values, nulls_values, nulls_value_desc);

/* Starts each case with the first @nr items on a list, in order. */
static struct nulls_list *nulls_list_of(struct kunit *test, int nr)
{
	const unsigned long *nulls = test->param_value;
	struct nulls_list *list;
	int i;

	list = kunit_kzalloc(test, sizeof(*list), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, list);

	list->nulls = *nulls;
	INIT_HLIST_NULLS_HEAD(&list->head, list->nulls);

	for (i = 0; i < NR_ITEMS; i++)
		list->items[i].id = i;
	/* head insertion is not what is tested, and so serves to build lists */
	for (i = nr - 1; i >= 0; i--)
		hlist_nulls_add_head_rcu(&list->items[i].node, &list->head);

	return list;
}

static void add_behind_only_node(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 1);

	hlist_nulls_add_behind_rcu(&list->items[1].node, &list->items[0].node);
	expect_list(test, &list->head, list->nulls, "ab");
}

static void add_behind_first_node(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 3);

	hlist_nulls_add_behind_rcu(&list->items[3].node, &list->items[0].node);
	expect_list(test, &list->head, list->nulls, "adbc");
}

static void add_behind_middle_node(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 3);

	hlist_nulls_add_behind_rcu(&list->items[3].node, &list->items[1].node);
	expect_list(test, &list->head, list->nulls, "abdc");
}

static void add_behind_last_node(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 3);

	hlist_nulls_add_behind_rcu(&list->items[3].node, &list->items[2].node);
	expect_list(test, &list->head, list->nulls, "abcd");
}

static void add_behind_added_node(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 2);

	hlist_nulls_add_behind_rcu(&list->items[2].node, &list->items[0].node);
	hlist_nulls_add_behind_rcu(&list->items[3].node, &list->items[2].node);
	expect_list(test, &list->head, list->nulls, "acdb");
}

static void add_tail_to_empty_list(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 0);

	hlist_nulls_add_tail_rcu(&list->items[0].node, &list->head);
	expect_list(test, &list->head, list->nulls, "a");
}

static void add_tail_to_one_node(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 1);

	hlist_nulls_add_tail_rcu(&list->items[1].node, &list->head);
	expect_list(test, &list->head, list->nulls, "ab");
}

static void add_tail_to_many_nodes(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 3);

	hlist_nulls_add_tail_rcu(&list->items[3].node, &list->head);
	expect_list(test, &list->head, list->nulls, "abcd");
}

static void add_head_before_added_nodes(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 0);

	hlist_nulls_add_tail_rcu(&list->items[0].node, &list->head);
	hlist_nulls_add_behind_rcu(&list->items[1].node, &list->items[0].node);
	hlist_nulls_add_head_rcu(&list->items[2].node, &list->head);
	expect_list(test, &list->head, list->nulls, "cab");
}

/* A deletion goes by the back links that the insertions have left. */
static void del_after_add_behind(struct kunit *test)
{
	static const char * const orders[] = { "bcde", "acde", "abde", "abce",
					       "abcd" };
	int i;

	for (i = 0; i < NR_ITEMS; i++) {
		struct nulls_list *list = nulls_list_of(test, 1);
		struct nulls_item *item = list->items;

		/* in an order that makes each kind of neighbour occur */
		hlist_nulls_add_behind_rcu(&item[4].node, &item[0].node);
		hlist_nulls_add_behind_rcu(&item[2].node, &item[0].node);
		hlist_nulls_add_behind_rcu(&item[3].node, &item[2].node);
		hlist_nulls_add_behind_rcu(&item[1].node, &item[0].node);
		expect_list(test, &list->head, list->nulls, "abcde");

		hlist_nulls_del_rcu(&item[i].node);
		expect_list(test, &list->head, list->nulls, orders[i]);
	}
}

static void del_of_all_nodes_empties_list(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 1);

	hlist_nulls_add_behind_rcu(&list->items[1].node, &list->items[0].node);
	hlist_nulls_add_tail_rcu(&list->items[2].node, &list->head);

	hlist_nulls_del_init_rcu(&list->items[1].node);
	expect_list(test, &list->head, list->nulls, "ac");
	hlist_nulls_del_init_rcu(&list->items[2].node);
	expect_list(test, &list->head, list->nulls, "a");
	hlist_nulls_del_init_rcu(&list->items[0].node);
	expect_list(test, &list->head, list->nulls, "");
}

/* A reader that stands on a deleted node has to find its way on. */
static void del_keeps_forward_link(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 2);

	hlist_nulls_add_behind_rcu(&list->items[2].node, &list->items[0].node);
	hlist_nulls_del_init_rcu(&list->items[2].node);

	KUNIT_EXPECT_TRUE(test, hlist_nulls_unhashed(&list->items[2].node));
	KUNIT_EXPECT_PTR_EQ(test, list->items[2].node.next,
			    &list->items[1].node);
}

static void add_behind_of_deleted_node_again(struct kunit *test)
{
	struct nulls_list *list = nulls_list_of(test, 3);

	hlist_nulls_del_init_rcu(&list->items[0].node);
	hlist_nulls_add_behind_rcu(&list->items[0].node, &list->items[2].node);
	expect_list(test, &list->head, list->nulls, "bca");
	hlist_nulls_del_init_rcu(&list->items[0].node);
	hlist_nulls_add_behind_rcu(&list->items[0].node, &list->items[1].node);
	expect_list(test, &list->head, list->nulls, "bac");
}

/*
 * A reader beside a writer.
 *
 * Permanent items stay where they are throughout, so whatever happens to the
 * transient items between them, a complete walk has to come by every one, once
 * and in order.
 */
#define NR_PERMANENT	8
/* this many can be added and removed before a grace period has to be waited for */
#define NR_TRANSIENT	16384
/* transient items on a list at any one time */
#define NR_LISTED	6
/* an insertion and the removal that goes with it count as one change */
#define NR_CHANGES	100000
/*
 * Only a walk with a change in the midst of it can find anything. The writer
 * goes on for as many as this, but not for long: a virtual machine may run its
 * CPUs by turns, and then there is one a turn.
 */
#define ENOUGH_RACED	1000000
#define RACE_SECONDS	3
/* for a reader to start */
#define MAX_SECONDS	20

struct nulls_race {
	/* taken for every change, as the lists require of their writers */
	spinlock_t lock;
	/* the reader walks the first list, and may stray to the second one */
	struct hlist_nulls_head heads[2];
	struct nulls_item permanent[2][NR_PERMANENT];
	struct nulls_item *transient;
	/* where an item points to until its insertion; never to be seen */
	struct nulls_item trap;
	/* no walk can be longer, unless items move without a grace period */
	unsigned long max_steps;
	bool may_stray;

	struct task_struct *reader;
	struct completion first_walk;
	/* the writer's account, read by the reader while it runs */
	unsigned long changes;
	/* the reader's account, read by the writer while it runs */
	unsigned long raced;
	unsigned long walks;
	unsigned long restarts;
	unsigned long misses;
	unsigned long trapped;
	unsigned long endless;
	unsigned long strays;
};

/* heads[0] ends with 1 and so on: 0 would be what forgotten memory has */
static unsigned long race_nulls(int list)
{
	return list + 1;
}

static void count(unsigned long *counter)
{
	WRITE_ONCE(*counter, *counter + 1);
}

/* Walks the first list once, from its head to its own end. */
static void race_walk(struct nulls_race *race)
{
	struct hlist_nulls_node *pos;
	struct nulls_item *item;
	unsigned long steps = 0;
	int next = 0;

	hlist_nulls_for_each_entry_rcu(item, pos, &race->heads[0], node) {
		if (item == &race->trap) {
			count(&race->trapped);
			return;
		}
		/* even a walk that goes astray has them in order until then */
		if (item->id >= 0 && item->id != next++) {
			count(&race->misses);
			return;
		}
		if (++steps > race->max_steps) {
			count(&race->endless);
			return;
		}
	}

	if (get_nulls_value(pos) != race_nulls(0)) {
		if (race->may_stray)
			count(&race->restarts);
		else
			count(&race->strays);
		return;
	}

	if (next != NR_PERMANENT)
		count(&race->misses);
	count(&race->walks);
}

static int race_reader(void *data)
{
	struct nulls_race *race = data;

	while (!kthread_should_stop()) {
		unsigned long changes = READ_ONCE(race->changes);
		unsigned long walks = race->walks;

		rcu_read_lock();
		race_walk(race);
		rcu_read_unlock();

		if (READ_ONCE(race->changes) != changes)
			count(&race->raced);
		if (!walks && race->walks)
			complete(&race->first_walk);
		cond_resched();
	}

	return 0;
}

KUNIT_DEFINE_ACTION_WRAPPER(race_kvfree, kvfree, const void *);

static struct nulls_race *race_prepare(struct kunit *test)
{
	struct nulls_race *race;
	int i, list;

	if (num_online_cpus() < 2)
		kunit_skip(test, "the reader needs a CPU of its own");

	race = kunit_kzalloc(test, sizeof(*race), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, race);
	race->transient = kvcalloc(NR_TRANSIENT, sizeof(*race->transient),
				   GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, race->transient);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, race_kvfree,
							   race->transient));

	spin_lock_init(&race->lock);
	init_completion(&race->first_walk);

	for (i = 0; i < NR_TRANSIENT; i++)
		race->transient[i].id = -1;

	for (list = 0; list < 2; list++) {
		INIT_HLIST_NULLS_HEAD(&race->heads[list], race_nulls(list));
		for (i = 0; i < NR_PERMANENT; i++) {
			/* the second list's items are not looked for */
			race->permanent[list][i].id = list ? -1 : i;
			hlist_nulls_add_tail_rcu(&race->permanent[list][i].node,
						 &race->heads[list]);
		}
	}

	return race;
}

/*
 * Puts reader and writer on different CPUs. From here to race_end() nothing may
 * end the test, or the reader would go on with memory that has been freed.
 */
static bool race_begin(struct kunit *test, struct nulls_race *race)
{
	int writer_cpu = raw_smp_processor_id();
	int reader_cpu = cpumask_any_but(cpu_online_mask, writer_cpu);

	/* the thread is this case's own, so there is nothing to restore */
	KUNIT_ASSERT_EQ(test, 0, set_cpus_allowed_ptr(current,
						      cpumask_of(writer_cpu)));

	race->reader = kthread_run_on_cpu(race_reader, race, reader_cpu,
					  "nulls_reader/%u");
	KUNIT_ASSERT_FALSE(test, IS_ERR(race->reader));

	return wait_for_completion_timeout(&race->first_walk,
					   MAX_SECONDS * HZ);
}

static void race_end(struct kunit *test, struct nulls_race *race)
{
	kthread_stop(race->reader);

	KUNIT_EXPECT_EQ_MSG(test, race->misses, 0,
			    "walks that missed an item which was there, or its turn");
	KUNIT_EXPECT_EQ_MSG(test, race->trapped, 0,
			    "walks that met an item without its forward link");
	KUNIT_EXPECT_EQ_MSG(test, race->endless, 0,
			    "walks longer than all items together");
	KUNIT_EXPECT_EQ_MSG(test, race->strays, 0,
			    "walks that ended with another list's nulls value");
}

/* The links after the race: @nr items, and the permanent ones in order. */
static void race_expect_list(struct kunit *test, struct nulls_race *race,
			     int list, int nr)
{
	struct hlist_nulls_node **pprev = &race->heads[list].first;
	struct nulls_item *next = race->permanent[list];
	struct hlist_nulls_node *pos;
	int seen = 0;

	for (pos = *pprev; !is_a_nulls(pos); pos = pos->next) {
		KUNIT_ASSERT_PTR_EQ(test, pos->pprev, pprev);
		KUNIT_ASSERT_LT(test, seen, nr);
		if (pos == &next->node)
			next++;
		pprev = &pos->next;
		seen++;
	}

	KUNIT_EXPECT_EQ(test, seen, nr);
	KUNIT_EXPECT_PTR_EQ(test, next, race->permanent[list] + NR_PERMANENT);
	KUNIT_EXPECT_EQ(test, get_nulls_value(pos), race_nulls(list));
}

/* Goes on until the reader has seen enough, within reason. */
static bool race_goes_on(struct nulls_race *race, unsigned long deadline)
{
	if (race->changes < NR_CHANGES)
		return true;

	return READ_ONCE(race->raced) < ENOUGH_RACED &&
	       time_before(jiffies, deadline);
}

static void race_report(struct kunit *test, struct nulls_race *race)
{
	kunit_info(test, "%lu changes, %lu walks, %lu of them raced, %lu restarts\n",
		   race->changes, race->walks, race->raced, race->restarts);
	KUNIT_EXPECT_GE(test, race->changes, NR_CHANGES);
	KUNIT_EXPECT_GT_MSG(test, race->raced, 0,
			    "the reader has only walked while nothing changed");
}

/* Inserts an item at the head, at the tail or behind a node on the list. */
static void race_insert(struct nulls_race *race, struct rnd_state *rnd,
			struct nulls_item *item, struct nulls_item **listed)
{
	u32 where = prandom_u32_state(rnd);
	u32 which = where >> 8;

	item->node.next = &race->trap.node;

	switch (where % 8) {
	case 0:
		hlist_nulls_add_head_rcu(&item->node, &race->heads[0]);
		return;
	case 1:
	case 2:
		hlist_nulls_add_tail_rcu(&item->node, &race->heads[0]);
		return;
	case 3:
	case 4:
		if (listed[which % NR_LISTED]) {
			hlist_nulls_add_behind_rcu(&item->node,
						   &listed[which % NR_LISTED]->node);
			return;
		}
		break;
	}

	which %= NR_PERMANENT;
	hlist_nulls_add_behind_rcu(&item->node, &race->permanent[0][which].node);
}

/*
 * Transient items come and go, and are used again only when a grace period has
 * passed: the case that plain RCU lists have, too.
 */
static void reader_sees_all_permanent_nodes(struct kunit *test)
{
	struct nulls_race *race = race_prepare(test);
	struct nulls_item *listed[NR_LISTED] = {};
	unsigned long deadline;
	struct rnd_state rnd;
	int i;

	/* within one walk an item is at one place, or at none */
	race->max_steps = NR_PERMANENT + NR_TRANSIENT;
	prandom_seed_state(&rnd, 20261);

	if (!race_begin(test, race)) {
		race_end(test, race);
		KUNIT_FAIL(test, "the reader has not made a single walk");
		return;
	}

	deadline = jiffies + RACE_SECONDS * HZ;
	while (race_goes_on(race, deadline)) {
		for (i = 0; i < NR_TRANSIENT; i++) {
			struct nulls_item **slot;

			slot = &listed[prandom_u32_state(&rnd) % NR_LISTED];

			spin_lock(&race->lock);
			if (*slot)
				hlist_nulls_del_rcu(&(*slot)->node);
			*slot = NULL;
			race_insert(race, &rnd, &race->transient[i], listed);
			*slot = &race->transient[i];
			count(&race->changes);
			spin_unlock(&race->lock);
		}
		spin_lock(&race->lock);
		for (i = 0; i < NR_LISTED; i++) {
			if (listed[i])
				hlist_nulls_del_rcu(&listed[i]->node);
			listed[i] = NULL;
		}
		spin_unlock(&race->lock);
		synchronize_rcu();
	}

	race_end(test, race);
	race_expect_list(test, race, 0, NR_PERMANENT);
	race_report(test, race);
}

/*
 * Items move to another list and back without a grace period. The reader may be
 * carried along, and only the nulls value tells.
 *
 * An item always returns behind the same permanent one. It takes the reader no
 * further on than it was then, and not back to a permanent item, so that a walk
 * with the right end is complete and in order even if the reader has been on the
 * other list meanwhile.
 */
static void reader_notices_move_to_other_list(struct kunit *test)
{
	struct nulls_race *race = race_prepare(test);
	int nr[2] = { NR_PERMANENT, NR_PERMANENT };
	unsigned long deadline;
	struct rnd_state rnd;
	int on[NR_LISTED];
	int i;

	/* a moving item can be met again and again: be generous, not endless */
	race->max_steps = 1000000;
	race->may_stray = true;
	prandom_seed_state(&rnd, 20262);

	for (i = 0; i < NR_LISTED; i++) {
		on[i] = i % 2;
		nr[on[i]]++;
		hlist_nulls_add_behind_rcu(&race->transient[i].node,
					   &race->permanent[on[i]][1].node);
	}

	if (!race_begin(test, race)) {
		race_end(test, race);
		KUNIT_FAIL(test, "the reader has not made a single walk");
		return;
	}

	deadline = jiffies + RACE_SECONDS * HZ;
	while (race_goes_on(race, deadline)) {
		i = prandom_u32_state(&rnd) % NR_LISTED;

		spin_lock(&race->lock);
		hlist_nulls_del_rcu(&race->transient[i].node);
		nr[on[i]]--;
		on[i] = !on[i];
		nr[on[i]]++;
		hlist_nulls_add_behind_rcu(&race->transient[i].node,
					   &race->permanent[on[i]][1].node);
		count(&race->changes);
		spin_unlock(&race->lock);

		cond_resched();
	}

	race_end(test, race);
	race_expect_list(test, race, 0, nr[0]);
	race_expect_list(test, race, 1, nr[1]);
	race_report(test, race);
}

static struct kunit_case rculist_nulls_cases[] = {
	KUNIT_CASE_PARAM(add_behind_only_node, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_behind_first_node, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_behind_middle_node, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_behind_last_node, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_behind_added_node, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_tail_to_empty_list, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_tail_to_one_node, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_tail_to_many_nodes, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_head_before_added_nodes, nulls_values_gen_params),
	KUNIT_CASE_PARAM(del_after_add_behind, nulls_values_gen_params),
	KUNIT_CASE_PARAM(del_of_all_nodes_empties_list,
			 nulls_values_gen_params),
	KUNIT_CASE_PARAM(del_keeps_forward_link, nulls_values_gen_params),
	KUNIT_CASE_PARAM(add_behind_of_deleted_node_again,
			 nulls_values_gen_params),
	KUNIT_CASE_SLOW(reader_sees_all_permanent_nodes),
	KUNIT_CASE_SLOW(reader_notices_move_to_other_list),
	{}
};

static struct kunit_suite rculist_nulls_suite = {
	.name = "rculist_nulls",
	.test_cases = rculist_nulls_cases,
};

kunit_test_suite(rculist_nulls_suite);

MODULE_DESCRIPTION("KUnit tests for the RCU-protected nulls lists");
MODULE_LICENSE("GPL");
