// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests for the memcg LRU.
 *
 * This file is included at the end of mm/vmscan.c, where what it tests is
 * static. It uses a made-up node and made-up lruvecs only, so nothing that the
 * running system depends on is touched.
 */
#include <kunit/test.h>

#include <linux/bitmap.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/lockdep.h>
#include <linux/prandom.h>
#include <linux/sort.h>
#include <linux/timex.h>

#define LRU_TEST_MEMCGS		64
/* the bin that directed cases work in, any will do */
#define LRU_TEST_BIN		3
/* to start from: every remainder by MEMCG_NR_GENS, and more than once */
#define LRU_TEST_SEQS		(2 * MEMCG_NR_GENS)
#define LRU_TEST_SECONDS	20

/* What the memcg LRU should look like, in the plainest form. */
struct lru_model {
	unsigned long seq;
	struct {
		int nr;
		u8 memcgs[LRU_TEST_MEMCGS];
	} bins[MEMCG_NR_GENS][MEMCG_NR_BINS];
	struct {
		bool listed;
		u8 gen;
		u8 bin;
		u8 seg;
	} memcgs[LRU_TEST_MEMCGS];
};

struct lru_test {
	struct kunit *test;
	struct pglist_data *pgdat;
	struct lruvec *lruvecs;
	struct lru_model model;
	/* the latest step, for messages */
	unsigned long step;
	const char *op;
	int memcg;
	char setting[64];
	char buf[160];
};

/* a class of its own keeps the real locks out of what lockdep learns here */
static struct lock_class_key lru_test_lock_key;

KUNIT_DEFINE_ACTION_WRAPPER(lru_test_kvfree, kvfree, const void *);

static void *lru_test_alloc(struct kunit *test, size_t nr, size_t size)
{
	void *p = kvcalloc(nr, size, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, p);
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, lru_test_kvfree, p));

	return p;
}

/* Empties the node, and takes all memcgs for never listed. */
static void lru_test_reset(struct lru_test *lru, unsigned long seq)
{
	struct lru_gen_memcg *memcg_lru = &lru->pgdat->memcg_lru;
	int i;

	memset(memcg_lru, 0, sizeof(*memcg_lru));
	lru_gen_init_pgdat(lru->pgdat);
	lockdep_set_class(&memcg_lru->lock, &lru_test_lock_key);
	memcg_lru->seq = seq;

	for (i = 0; i < LRU_TEST_MEMCGS; i++) {
		struct lru_gen_folio *lrugen = &lru->lruvecs[i].lrugen;

		lru->lruvecs[i].pgdat = lru->pgdat;
		lrugen->list.next = NULL;
		lrugen->list.pprev = NULL;
		lrugen->gen = MEMCG_LRU_NO_GEN;
		lrugen->bin = 0;
		lrugen->seg = 0;
	}

	memset(&lru->model, 0, sizeof(lru->model));
	lru->model.seq = seq;
}

static int memcg_lru_test_init(struct kunit *test)
{
	struct lru_test *lru = lru_test_alloc(test, 1, sizeof(*lru));

	lru->test = test;
	lru->pgdat = lru_test_alloc(test, 1, sizeof(*lru->pgdat));
	lru->lruvecs = lru_test_alloc(test, LRU_TEST_MEMCGS,
				      sizeof(*lru->lruvecs));
	lru_test_reset(lru, 0);
	test->priv = lru;

	return 0;
}

static struct hlist_nulls_node *lru_test_node(struct lru_test *lru, int i)
{
	return &lru->lruvecs[i].lrugen.list;
}

static int lru_test_index(struct lru_test *lru, struct hlist_nulls_node *pos)
{
	return container_of(pos, struct lruvec, lrugen.list) - lru->lruvecs;
}

static void lru_test_step(struct lru_test *lru, const char *op, int memcg)
{
	lru->step++;
	lru->op = op;
	lru->memcg = memcg;
}

/* Evaluated for messages only, that is on failure. */
static const char *lru_test_where(struct lru_test *lru, int gen, int bin)
{
	snprintf(lru->buf, sizeof(lru->buf),
		 "after step %lu (%s of memcg %d)%s, gen %d bin %d",
		 lru->step, lru->op, lru->memcg, lru->setting, gen, bin);
	return lru->buf;
}

/*
 * What has to hold in every bin, whatever has been done before: the links and
 * the nulls value, the cached last node, and what each node records about
 * itself. Returns the number of nodes.
 */
static unsigned long lru_test_check_bin(struct lru_test *lru, int gen, int bin,
					unsigned long *found)
{
	struct lru_gen_memcg *memcg_lru = &lru->pgdat->memcg_lru;
	struct hlist_nulls_node **pprev = &memcg_lru->fifo[gen][bin].first;
	struct hlist_nulls_node *pos, *last = NULL;
	struct kunit *test = lru->test;
	unsigned long nr = 0;

	for (pos = *pprev; !is_a_nulls(pos); pos = pos->next) {
		int i = lru_test_index(lru, pos);
		struct lru_gen_folio *lrugen;

		KUNIT_ASSERT_TRUE_MSG(test, i >= 0 && i < LRU_TEST_MEMCGS,
				      "%s: not a node",
				      lru_test_where(lru, gen, bin));
		/* also ends the walk of a list that has become a loop */
		KUNIT_ASSERT_FALSE_MSG(test, __test_and_set_bit(i, found),
				       "%s: memcg %d found twice",
				       lru_test_where(lru, gen, bin), i);
		KUNIT_ASSERT_PTR_EQ_MSG(test, pos->pprev, pprev,
					"%s: back link of memcg %d",
					lru_test_where(lru, gen, bin), i);

		lrugen = &lru->lruvecs[i].lrugen;
		KUNIT_ASSERT_EQ_MSG(test, lrugen->gen, gen,
				    "%s: generation of memcg %d",
				    lru_test_where(lru, gen, bin), i);
		KUNIT_ASSERT_EQ_MSG(test, lrugen->bin, bin,
				    "%s: bin of memcg %d",
				    lru_test_where(lru, gen, bin), i);

		pprev = &pos->next;
		last = pos;
		nr++;
	}

	KUNIT_ASSERT_EQ_MSG(test, get_nulls_value(pos), gen, "%s: nulls value",
			    lru_test_where(lru, gen, bin));
	KUNIT_ASSERT_PTR_EQ_MSG(test, memcg_lru->tails[gen][bin], last,
				"%s: cached last node",
				lru_test_where(lru, gen, bin));

	return nr;
}

static void lru_test_check_invariants(struct lru_test *lru)
{
	struct lru_gen_memcg *memcg_lru = &lru->pgdat->memcg_lru;
	DECLARE_BITMAP(found, LRU_TEST_MEMCGS);
	struct kunit *test = lru->test;
	int gen, bin, i;

	bitmap_zero(found, LRU_TEST_MEMCGS);

	for (gen = 0; gen < MEMCG_NR_GENS; gen++) {
		unsigned long nr = 0;

		for (bin = 0; bin < MEMCG_NR_BINS; bin++)
			nr += lru_test_check_bin(lru, gen, bin, found);

		KUNIT_ASSERT_EQ_MSG(test, memcg_lru->nr_memcgs[gen], nr,
				    "%s: number of memcgs",
				    lru_test_where(lru, gen, -1));
	}

	for (i = 0; i < LRU_TEST_MEMCGS; i++) {
		bool listed = !hlist_nulls_unhashed(lru_test_node(lru, i));

		KUNIT_ASSERT_EQ_MSG(test, listed, test_bit(i, found),
				    "%s: memcg %d listed or not",
				    lru_test_where(lru, -1, -1), i);
	}
}

static void lru_test_check_model(struct lru_test *lru)
{
	struct lru_gen_memcg *memcg_lru = &lru->pgdat->memcg_lru;
	struct lru_model *model = &lru->model;
	struct kunit *test = lru->test;
	int gen, bin, i;

	KUNIT_ASSERT_EQ_MSG(test, memcg_lru->seq, model->seq, "%s: seq",
			    lru_test_where(lru, -1, -1));

	for (gen = 0; gen < MEMCG_NR_GENS; gen++) {
		for (bin = 0; bin < MEMCG_NR_BINS; bin++) {
			struct hlist_nulls_node *pos;

			pos = memcg_lru->fifo[gen][bin].first;
			for (i = 0; i < model->bins[gen][bin].nr; i++) {
				u8 memcg = model->bins[gen][bin].memcgs[i];

				KUNIT_ASSERT_PTR_EQ_MSG(test, pos,
							lru_test_node(lru, memcg),
							"%s: place %d",
							lru_test_where(lru, gen, bin),
							i);
				pos = pos->next;
			}
			KUNIT_ASSERT_TRUE_MSG(test, is_a_nulls(pos),
					      "%s: more than %d memcgs",
					      lru_test_where(lru, gen, bin), i);
		}
	}

	for (i = 0; i < LRU_TEST_MEMCGS; i++) {
		if (!model->memcgs[i].listed)
			continue;
		KUNIT_ASSERT_EQ_MSG(test, lru->lruvecs[i].lrugen.seg,
				    model->memcgs[i].seg, "%s: segment of memcg %d",
				    lru_test_where(lru, -1, -1), i);
	}
}

static void lru_test_check(struct lru_test *lru)
{
	lru_test_check_invariants(lru);
	lru_test_check_model(lru);
}

static int lru_test_old(struct lru_test *lru)
{
	return get_memcg_gen(lru->model.seq);
}

static int lru_test_young(struct lru_test *lru)
{
	return get_memcg_gen(lru->model.seq + 1);
}

static int lru_test_nr(struct lru_test *lru, int gen)
{
	int bin, nr = 0;

	for (bin = 0; bin < MEMCG_NR_BINS; bin++)
		nr += lru->model.bins[gen][bin].nr;

	return nr;
}

static void lru_test_model_add(struct lru_test *lru, int memcg, int gen, int bin,
			       int seg)
{
	u8 *memcgs = lru->model.bins[gen][bin].memcgs;
	int nr = lru->model.bins[gen][bin].nr++;

	memcgs[nr] = memcg;

	lru->model.memcgs[memcg].listed = true;
	lru->model.memcgs[memcg].gen = gen;
	lru->model.memcgs[memcg].bin = bin;
	lru->model.memcgs[memcg].seg = seg;
}

static void lru_test_model_del(struct lru_test *lru, int memcg)
{
	int gen = lru->model.memcgs[memcg].gen;
	int bin = lru->model.memcgs[memcg].bin;
	u8 *memcgs = lru->model.bins[gen][bin].memcgs;
	int nr = --lru->model.bins[gen][bin].nr;
	int i = 0;

	while (memcgs[i] != memcg)
		i++;
	memmove(memcgs + i, memcgs + i + 1, nr - i);

	lru->model.memcgs[memcg].listed = false;
}

/* A memcg has left @gen. */
static void lru_test_model_advance(struct lru_test *lru, int gen)
{
	if (gen == lru_test_old(lru) && !lru_test_nr(lru, gen))
		lru->model.seq++;
}

/*
 * The steps. Each does the same to the memcg LRU and to the model, and then
 * compares them.
 */
static void lru_test_add(struct lru_test *lru, int memcg, int gen, int bin, int seg)
{
	lru_test_step(lru, "add", memcg);

	spin_lock(&lru->pgdat->memcg_lru.lock);
	memcg_lru_add(&lru->lruvecs[memcg], gen, bin, seg);
	spin_unlock(&lru->pgdat->memcg_lru.lock);

	lru_test_model_add(lru, memcg, gen, bin, seg);
	lru_test_check(lru);
}

static void lru_test_del(struct lru_test *lru, int memcg)
{
	lru_test_step(lru, "del", memcg);

	spin_lock(&lru->pgdat->memcg_lru.lock);
	memcg_lru_del(&lru->lruvecs[memcg]);
	spin_unlock(&lru->pgdat->memcg_lru.lock);

	lru_test_model_del(lru, memcg);
	lru_test_check(lru);
}

static void lru_test_online(struct lru_test *lru, int memcg, int bin)
{
	lru_test_step(lru, "online", memcg);

	memcg_lru_online(&lru->lruvecs[memcg], bin);

	lru_test_model_add(lru, memcg, lru_test_old(lru), bin, 0);
	lru_test_check(lru);
}

static void lru_test_offline(struct lru_test *lru, int memcg)
{
	lru_test_step(lru, "offline", memcg);

	memcg_lru_offline(&lru->lruvecs[memcg]);

	lru_test_model_del(lru, memcg);
	lru_test_model_advance(lru, lru->model.memcgs[memcg].gen);
	lru_test_check(lru);
	KUNIT_ASSERT_EQ_MSG(lru->test, lru->lruvecs[memcg].lrugen.gen, MEMCG_LRU_NO_GEN,
			    "%s: generation", lru_test_where(lru, -1, -1));
}

/* all operations, and all segments, that the base has */
static const int lru_ops[] = { MEMCG_LRU_TAIL, MEMCG_LRU_YOUNG };
static const int lru_segs[] = { 0, MEMCG_LRU_TAIL };

static const char *lru_test_op_name(int op)
{
	return op == MEMCG_LRU_TAIL ? "rotation TAIL" : "rotation YOUNG";
}

/* A YOUNG rotation that would only draw lots for another bin. */
static bool lru_test_is_redundant(struct lru_test *lru, int memcg, int op)
{
	return op == MEMCG_LRU_YOUNG && !lru->model.memcgs[memcg].seg &&
	       lru->model.memcgs[memcg].gen == lru_test_young(lru);
}

static void lru_test_rotate(struct lru_test *lru, int memcg, int op)
{
	bool ignored = !lru->model.memcgs[memcg].listed ||
		       lru_test_is_redundant(lru, memcg, op);
	int old = lru->model.memcgs[memcg].gen;
	int gen = old, seg = 0, bin;

	lru_test_step(lru, lru_test_op_name(op), memcg);

	if (op == MEMCG_LRU_TAIL)
		seg = MEMCG_LRU_TAIL;
	else
		gen = lru_test_young(lru);

	lru_gen_rotate_memcg(&lru->lruvecs[memcg], op);

	if (!ignored) {
		/* drawn at random, so the model has to be told */
		bin = lru->lruvecs[memcg].lrugen.bin;
		KUNIT_ASSERT_LT_MSG(lru->test, bin, MEMCG_NR_BINS, "%s",
				    lru_test_where(lru, gen, bin));
		lru_test_model_del(lru, memcg);
		lru_test_model_add(lru, memcg, gen, bin, seg);
		lru_test_model_advance(lru, old);
	}
	lru_test_check(lru);
}

/* Adds @nr memcgs, numbered from *@memcg on, to one bin. */
static void lru_test_fill_bin(struct lru_test *lru, int *memcg, int nr, int gen, int bin)
{
	while (nr--)
		lru_test_add(lru, (*memcg)++, gen, bin, 0);
}

/* What an operation can find a memcg as. */
struct lru_state {
	const char *desc;
	bool young;
	int seg;
};

static const struct lru_state lru_states[] = {
	{ "old generation, default segment", false, 0 },
	{ "old generation, tail segment", false, MEMCG_LRU_TAIL },
	{ "young generation, default segment", true, 0 },
	{ "young generation, tail segment", true, MEMCG_LRU_TAIL },
};

KUNIT_ARRAY_PARAM_DESC(lru_states, lru_states, desc);

/*
 * Brings memcg 0 into @state, with @before and @behind as its neighbours in the
 * bin. Whatever bin is drawn for it next, @others are there already, for they
 * are in every other bin of both generations.
 */
static void lru_test_enter_state(struct lru_test *lru, const struct lru_state *state,
				 unsigned long seq, int before, int behind, int others)
{
	int memcg = 1;
	int gen, bin;

	lru_test_reset(lru, seq);
	snprintf(lru->setting, sizeof(lru->setting),
		 ", seq %lu, neighbours %d and %d, others %d", seq, before,
		 behind, others);

	/* memcgs are never in the young generation alone */
	if (state->young && !others)
		lru_test_fill_bin(lru, &memcg, 1, lru_test_old(lru), LRU_TEST_BIN);

	gen = state->young ? lru_test_young(lru) : lru_test_old(lru);
	for (bin = 0; bin < MEMCG_NR_BINS; bin++) {
		if (bin != LRU_TEST_BIN || gen != lru_test_old(lru))
			lru_test_fill_bin(lru, &memcg, others, lru_test_old(lru), bin);
		if (bin != LRU_TEST_BIN || gen != lru_test_young(lru))
			lru_test_fill_bin(lru, &memcg, others, lru_test_young(lru), bin);
	}

	lru_test_fill_bin(lru, &memcg, before, gen, LRU_TEST_BIN);
	lru_test_add(lru, 0, gen, LRU_TEST_BIN, state->seg);
	lru_test_fill_bin(lru, &memcg, behind, gen, LRU_TEST_BIN);
}

/* Calls @fn in every setting of @test's state. */
static void lru_test_in_each_setting(struct kunit *test, void (*fn)(struct lru_test *lru))
{
	static const struct {
		int before;
		int behind;
	} places[] = { { 0, 0 }, { 0, 2 }, { 1, 1 }, { 2, 0 } };
	static const int others[] = { 0, 1, 3 };
	struct lru_test *lru = test->priv;
	unsigned long seq;
	int i, j;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		for (i = 0; i < ARRAY_SIZE(places); i++) {
			for (j = 0; j < ARRAY_SIZE(others); j++) {
				lru_test_enter_state(lru, test->param_value, seq,
						     places[i].before, places[i].behind,
						     others[j]);
				fn(lru);
			}
		}
		cond_resched();
	}
}

static void lru_test_expect_at_head(struct lru_test *lru, int memcg)
{
	struct lru_gen_folio *lrugen = &lru->lruvecs[memcg].lrugen;
	struct lru_gen_memcg *memcg_lru = &lru->pgdat->memcg_lru;

	KUNIT_EXPECT_PTR_EQ_MSG(lru->test, &lrugen->list,
				memcg_lru->fifo[lrugen->gen][lrugen->bin].first,
				"%s: head", lru_test_where(lru, lrugen->gen, lrugen->bin));
}

static void lru_test_expect_at_tail(struct lru_test *lru, int memcg)
{
	struct lru_gen_folio *lrugen = &lru->lruvecs[memcg].lrugen;
	struct lru_gen_memcg *memcg_lru = &lru->pgdat->memcg_lru;

	KUNIT_EXPECT_PTR_EQ_MSG(lru->test, &lrugen->list,
				memcg_lru->tails[lrugen->gen][lrugen->bin],
				"%s: tail", lru_test_where(lru, lrugen->gen, lrugen->bin));
	KUNIT_EXPECT_TRUE_MSG(lru->test, is_a_nulls(lrugen->list.next),
			      "%s: tail", lru_test_where(lru, lrugen->gen, lrugen->bin));
}

static void lru_test_expect_place(struct lru_test *lru, int memcg, int gen, int seg)
{
	struct lru_gen_folio *lrugen = &lru->lruvecs[memcg].lrugen;

	KUNIT_EXPECT_EQ_MSG(lru->test, lrugen->gen, gen, "%s: generation",
			    lru_test_where(lru, gen, -1));
	KUNIT_EXPECT_EQ_MSG(lru->test, lrugen->seg, seg, "%s: segment",
			    lru_test_where(lru, gen, -1));
}

static void init_makes_all_bins_empty(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	struct lru_gen_memcg *memcg_lru = &lru->pgdat->memcg_lru;
	int gen, bin;

	/* zeroed memory would look empty in part without any initialization */
	memset(memcg_lru, 0xff, sizeof(*memcg_lru));
	lru_gen_init_pgdat(lru->pgdat);
	lockdep_set_class(&memcg_lru->lock, &lru_test_lock_key);

	for (gen = 0; gen < MEMCG_NR_GENS; gen++) {
		for (bin = 0; bin < MEMCG_NR_BINS; bin++) {
			struct hlist_nulls_node *first = memcg_lru->fifo[gen][bin].first;

			KUNIT_EXPECT_TRUE(test, is_a_nulls(first));
			KUNIT_EXPECT_EQ(test, get_nulls_value(first), gen);
			KUNIT_EXPECT_NULL(test, memcg_lru->tails[gen][bin]);
		}
	}

	/* the counters come zeroed with the node, and are not what is tested */
	memcg_lru->seq = 0;
	memset(memcg_lru->nr_memcgs, 0, sizeof(memcg_lru->nr_memcgs));

	lru_test_step(lru, "init", -1);
	lru_test_check(lru);
}

static void add_at_tail_of_empty_bin_sets_tail(struct kunit *test)
{
	struct lru_test *lru = test->priv;

	lru_test_add(lru, 0, 0, LRU_TEST_BIN, 0);
	lru_test_expect_at_head(lru, 0);
	lru_test_expect_at_tail(lru, 0);
}

static void add_at_tail_moves_tail(struct kunit *test)
{
	struct lru_test *lru = test->priv;

	lru_test_add(lru, 0, 0, LRU_TEST_BIN, 0);
	lru_test_add(lru, 1, 0, LRU_TEST_BIN, 0);
	lru_test_add(lru, 2, 0, LRU_TEST_BIN, 0);
	lru_test_expect_at_head(lru, 0);
	lru_test_expect_at_tail(lru, 2);
}

static void add_records_place_in_memcg(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	struct lru_gen_folio *lrugen = &lru->lruvecs[0].lrugen;
	int gen, bin;

	for (gen = 0; gen < MEMCG_NR_GENS; gen++) {
		for (bin = 0; bin < MEMCG_NR_BINS; bin++) {
			int seg = bin % 2 ? MEMCG_LRU_TAIL : 0;

			lru_test_add(lru, 0, gen, bin, seg);
			KUNIT_EXPECT_EQ(test, lrugen->gen, gen);
			KUNIT_EXPECT_EQ(test, lrugen->bin, bin);
			KUNIT_EXPECT_EQ(test, lrugen->seg, seg);
			lru_test_del(lru, 0);
		}
	}
}

static void del_of_only_node_clears_tail(struct kunit *test)
{
	struct lru_test *lru = test->priv;

	lru_test_add(lru, 0, 0, LRU_TEST_BIN, 0);
	lru_test_del(lru, 0);
	KUNIT_EXPECT_NULL(test, lru->pgdat->memcg_lru.tails[0][LRU_TEST_BIN]);
}

static void del_of_first_node_keeps_tail(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	int memcg = 0;

	lru_test_fill_bin(lru, &memcg, 3, 0, LRU_TEST_BIN);
	lru_test_del(lru, 0);
	lru_test_expect_at_head(lru, 1);
	lru_test_expect_at_tail(lru, 2);
}

static void del_of_middle_node_keeps_tail(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	int memcg = 0;

	lru_test_fill_bin(lru, &memcg, 3, 0, LRU_TEST_BIN);
	lru_test_del(lru, 1);
	lru_test_expect_at_head(lru, 0);
	lru_test_expect_at_tail(lru, 2);
}

static void del_of_last_node_moves_tail_back(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	int memcg = 0;

	lru_test_fill_bin(lru, &memcg, 3, 0, LRU_TEST_BIN);
	lru_test_del(lru, 2);
	lru_test_expect_at_tail(lru, 1);
	lru_test_del(lru, 1);
	lru_test_expect_at_tail(lru, 0);
}

static void add_after_del_of_last_node_links_behind_rest(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	int memcg = 0;

	lru_test_fill_bin(lru, &memcg, 3, 0, LRU_TEST_BIN);
	lru_test_del(lru, 2);
	lru_test_add(lru, 3, 0, LRU_TEST_BIN, 0);
	KUNIT_EXPECT_PTR_EQ(test, lru_test_node(lru, 1)->next,
			    lru_test_node(lru, 3));
}

static void del_leaves_seq_to_callers(struct kunit *test)
{
	struct lru_test *lru = test->priv;

	lru_test_add(lru, 0, lru_test_old(lru), LRU_TEST_BIN, 0);
	lru_test_del(lru, 0);
	KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, 0);
}

static void online_adds_at_tail_of_old_generation(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;
	int nr, bin;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		/* into an empty bin, one with a single memcg, one with many */
		for (nr = 0; nr <= 3; nr++) {
			int memcg = 1;

			lru_test_reset(lru, seq);
			for (bin = 0; bin < MEMCG_NR_BINS; bin++)
				lru_test_fill_bin(lru, &memcg, nr, lru_test_old(lru), bin);
			for (bin = 0; bin < MEMCG_NR_BINS; bin++) {
				lru_test_online(lru, memcg, bin);
				KUNIT_EXPECT_EQ(test, lru->lruvecs[memcg].lrugen.gen,
						get_memcg_gen(seq));
				KUNIT_EXPECT_EQ(test, lru->lruvecs[memcg].lrugen.bin,
						bin);
				lru_test_expect_at_tail(lru, memcg);
				memcg++;
			}
		}
	}
}

/* A memcg can be on the LRU, leave it and come back in the default segment. */
static void online_resets_segment(struct kunit *test)
{
	struct lru_test *lru = test->priv;

	lru_test_add(lru, 0, lru_test_old(lru), LRU_TEST_BIN, MEMCG_LRU_TAIL);
	lru_test_add(lru, 1, lru_test_old(lru), LRU_TEST_BIN, 0);
	lru_test_offline(lru, 0);
	lru_test_online(lru, 0, LRU_TEST_BIN);
	KUNIT_EXPECT_EQ(test, lru->lruvecs[0].lrugen.seg, 0);
}

static void lru_test_rotate_tail(struct lru_test *lru)
{
	unsigned long seq = lru->model.seq;
	int gen = lru->lruvecs[0].lrugen.gen;

	lru_test_rotate(lru, 0, MEMCG_LRU_TAIL);
	lru_test_expect_place(lru, 0, gen, MEMCG_LRU_TAIL);
	lru_test_expect_at_tail(lru, 0);
	KUNIT_EXPECT_EQ(lru->test, lru->pgdat->memcg_lru.seq, seq);
}

static void tail_rotation_moves_to_tail_of_same_generation(struct kunit *test)
{
	lru_test_in_each_setting(test, lru_test_rotate_tail);
}

static void lru_test_rotate_young(struct lru_test *lru)
{
	bool redundant = lru_test_is_redundant(lru, 0, MEMCG_LRU_YOUNG);
	unsigned long seq = lru->model.seq;

	lru_test_rotate(lru, 0, MEMCG_LRU_YOUNG);
	lru_test_expect_place(lru, 0, get_memcg_gen(seq + 1), 0);
	/* it can be anywhere in the bin if it is young already */
	if (!redundant)
		lru_test_expect_at_tail(lru, 0);
}

static void young_rotation_moves_to_tail_of_young_generation(struct kunit *test)
{
	lru_test_in_each_setting(test, lru_test_rotate_young);
}

static void lru_test_take_off(struct lru_test *lru)
{
	lru_test_offline(lru, 0);
	KUNIT_EXPECT_TRUE(lru->test, hlist_nulls_unhashed(lru_test_node(lru, 0)));
}

static void offline_takes_off_any_place(struct kunit *test)
{
	lru_test_in_each_setting(test, lru_test_take_off);
}

/* Whoever has found a memcg may come to rotate it when it is offline. */
static void rotation_of_offlined_memcg_changes_nothing(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	int op;

	lru_test_online(lru, 0, LRU_TEST_BIN);
	lru_test_online(lru, 1, LRU_TEST_BIN);
	lru_test_offline(lru, 0);
	for (op = 0; op < ARRAY_SIZE(lru_ops); op++)
		lru_test_rotate(lru, 0, lru_ops[op]);
	KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, 0);
}

static void rotation_uses_every_bin(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	int i, op;

	for (op = 0; op < ARRAY_SIZE(lru_ops); op++) {
		unsigned long bins = 0;

		lru_test_reset(lru, 0);
		lru_test_online(lru, 0, LRU_TEST_BIN);

		/* to miss one of 8 bins 1000 times has a chance of 1e-57 */
		for (i = 0; i < 1000; i++) {
			lru_test_rotate(lru, 0, lru_ops[op]);
			bins |= BIT(lru->lruvecs[0].lrugen.bin);
		}
		KUNIT_EXPECT_EQ_MSG(test, bins, BIT(MEMCG_NR_BINS) - 1, "%s",
				    lru_test_op_name(lru_ops[op]));
	}
}

static void last_rotation_out_of_old_generation_advances_seq(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		lru_test_reset(lru, seq);
		lru_test_online(lru, 0, 0);
		lru_test_online(lru, 1, 1);
		lru_test_rotate(lru, 0, MEMCG_LRU_YOUNG);
		KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq);
		lru_test_rotate(lru, 1, MEMCG_LRU_YOUNG);
		KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq + 1);
	}
}

static void rotation_of_only_memcg_in_old_generation_keeps_seq(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		lru_test_reset(lru, seq);
		lru_test_online(lru, 0, LRU_TEST_BIN);
		lru_test_rotate(lru, 0, MEMCG_LRU_TAIL);
		KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq);
	}
}

static void offline_of_last_old_memcg_advances_seq(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		lru_test_reset(lru, seq);
		lru_test_online(lru, 0, 0);
		lru_test_online(lru, 1, 1);
		lru_test_online(lru, 2, 2);
		lru_test_rotate(lru, 0, MEMCG_LRU_YOUNG);
		lru_test_offline(lru, 1);
		KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq);
		lru_test_offline(lru, 2);
		KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq + 1);
	}
}

static void offline_of_last_young_memcg_keeps_seq(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		lru_test_reset(lru, seq);
		lru_test_online(lru, 0, 0);
		lru_test_online(lru, 1, 1);
		lru_test_rotate(lru, 0, MEMCG_LRU_YOUNG);
		lru_test_offline(lru, 0);
		KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq);
	}
}

/*
 * Generations are numbered modulo three. ULONG_MAX is a multiple of three, so
 * that the numbering has a seam where seq wraps around. It takes centuries to
 * get there, and this starts only somewhat below.
 */
static const unsigned long lru_roll_overs[] = {
	0, 1, 2, 1000000, ULONG_MAX - 100
};

static void lru_roll_over_desc(const unsigned long *seq, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "from %lu", *seq);
}

KUNIT_ARRAY_PARAM(lru_roll_over, lru_roll_overs, lru_roll_over_desc);

static void young_generation_becomes_old_in_turn(struct kunit *test)
{
	const unsigned long *start = test->param_value;
	struct lru_test *lru = test->priv;
	unsigned long seq;
	int i;

	lru_test_reset(lru, *start);
	for (i = 0; i < 10; i++)
		lru_test_online(lru, i, i % MEMCG_NR_BINS);

	for (seq = *start; seq < *start + 3 * MEMCG_NR_GENS; seq++) {
		for (i = 0; i < 10; i++) {
			KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq);
			KUNIT_EXPECT_EQ(test, lru->lruvecs[i].lrugen.gen,
					get_memcg_gen(seq));
			lru_test_rotate(lru, i, MEMCG_LRU_YOUNG);
		}
		KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq + 1);
	}
}

/*
 * For the skip rule. The memcg under test is in the middle of its bin, so that
 * no rotation can leave it between the same neighbours.
 */
static void lru_test_enter_skip_state(struct lru_test *lru, unsigned long seq,
				      int gen, int seg)
{
	int memcg = 1;

	lru_test_reset(lru, seq);
	/* keeps seq as it is */
	lru_test_fill_bin(lru, &memcg, 2, get_memcg_gen(seq), LRU_TEST_BIN + 1);
	lru_test_fill_bin(lru, &memcg, 1, gen, LRU_TEST_BIN);
	lru_test_add(lru, 0, gen, LRU_TEST_BIN, seg);
	lru_test_fill_bin(lru, &memcg, 1, gen, LRU_TEST_BIN);
}

static bool lru_test_has_moved(struct lru_test *lru, struct hlist_nulls_node *next,
			       struct hlist_nulls_node **pprev)
{
	struct hlist_nulls_node *node = lru_test_node(lru, 0);

	return node->next != next || node->pprev != pprev;
}

static void young_rotation_of_young_default_changes_nothing(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		struct hlist_nulls_node *next, **pprev;

		lru_test_enter_skip_state(lru, seq, get_memcg_gen(seq + 1), 0);
		next = lru_test_node(lru, 0)->next;
		pprev = lru_test_node(lru, 0)->pprev;

		lru_test_rotate(lru, 0, MEMCG_LRU_YOUNG);
		KUNIT_EXPECT_FALSE(test, lru_test_has_moved(lru, next, pprev));
		KUNIT_EXPECT_EQ(test, lru->pgdat->memcg_lru.seq, seq);
	}
}

/*
 * Every generation, including the one that is neither old nor young, with every
 * segment and operation: all rotations but one kind must be carried out.
 */
static void no_other_rotation_is_skipped(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;
	int gen, seg, op;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		for (gen = 0; gen < MEMCG_NR_GENS; gen++) {
			for (seg = 0; seg < ARRAY_SIZE(lru_segs); seg++) {
				for (op = 0; op < ARRAY_SIZE(lru_ops); op++) {
					struct hlist_nulls_node *next, **pprev;

					lru_test_enter_skip_state(lru, seq, gen, lru_segs[seg]);
					if (lru_test_is_redundant(lru, 0, lru_ops[op]))
						continue;
					next = lru_test_node(lru, 0)->next;
					pprev = lru_test_node(lru, 0)->pprev;

					lru_test_rotate(lru, 0, lru_ops[op]);
					KUNIT_EXPECT_TRUE_MSG(test,
							      lru_test_has_moved(lru, next, pprev),
							      "%s, seq %lu, gen %d, seg %d",
							      lru_test_op_name(lru_ops[op]), seq,
							      gen, lru_segs[seg]);
				}
			}
		}
	}
}

/*
 * Binds the case to its CPU, and returns another one. The thread is the case's
 * own, so there is nothing to restore.
 */
static int lru_test_other_cpu(struct kunit *test)
{
	int cpu = raw_smp_processor_id();

	if (num_online_cpus() < 2)
		kunit_skip(test, "needs a second CPU");
	KUNIT_ASSERT_EQ(test, 0, set_cpus_allowed_ptr(current, cpumask_of(cpu)));

	return cpumask_any_but(cpu_online_mask, cpu);
}

struct lru_rotator {
	struct lruvec *lruvec;
	struct completion ready;
	bool go;
	bool done;
};

static int lru_test_rotator(void *data)
{
	struct lru_rotator *rotator = data;

	complete(&rotator->ready);
	/*
	 * Awake already when it counts, so that only a lock can hold it up.
	 * Whoever says go has the lock.
	 */
	while (!smp_load_acquire(&rotator->go))
		cond_resched();

	lru_gen_rotate_memcg(rotator->lruvec, MEMCG_LRU_YOUNG);
	/* whatever the rotation has changed is seen with this */
	smp_store_release(&rotator->done, true);

	return 0;
}

/* The lock is held here while the rotation is done on another CPU. */
static void young_rotation_of_young_default_takes_no_lock(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	spinlock_t *lock = &lru->pgdat->memcg_lru.lock;
	struct lru_rotator *rot;
	struct task_struct *task;
	bool ready, done;
	u64 deadline;
	int cpu = lru_test_other_cpu(test);

	lru_test_enter_skip_state(lru, 0, get_memcg_gen(1), 0);

	rot = kunit_kzalloc(test, sizeof(*rot), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, rot);
	rot->lruvec = &lru->lruvecs[0];
	init_completion(&rot->ready);

	task = kthread_create_on_cpu(lru_test_rotator, rot, cpu, "lru_rotator/%u");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task));
	/* it may have ended by the time that it is stopped */
	get_task_struct(task);
	wake_up_process(task);

	ready = wait_for_completion_timeout(&rot->ready, LRU_TEST_SECONDS * HZ);

	spin_lock(lock);
	/* after the lock has been taken */
	smp_store_release(&rot->go, true);
	deadline = ktime_get_mono_fast_ns() + NSEC_PER_SEC;
	do {
		/* before anything is looked at */
		done = smp_load_acquire(&rot->done);
		cpu_relax();
	} while (!done && ktime_get_mono_fast_ns() < deadline);
	spin_unlock(lock);

	kthread_stop_put(task);

	KUNIT_EXPECT_TRUE(test, ready);
	KUNIT_EXPECT_TRUE_MSG(test, done, "the rotation has waited for the lock");
}

/*
 * Where a reader ends that stands on @memcg while the node leaves the bin, or
 * moves. Its own place is all that a reader has.
 */
static unsigned long lru_test_walk_on_from(struct lru_test *lru, int memcg)
{
	struct hlist_nulls_node *pos = lru_test_node(lru, memcg);
	int steps = 0;

	while (!is_a_nulls(pos)) {
		/* cannot happen to a reader that comes by each memcg once */
		KUNIT_ASSERT_LT(lru->test, steps++, LRU_TEST_MEMCGS);
		pos = pos->next;
	}

	return get_nulls_value(pos);
}

static void reader_strays_to_young_generation_with_nulls(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		int memcg = 0;

		lru_test_reset(lru, seq);
		lru_test_fill_bin(lru, &memcg, 3, get_memcg_gen(seq), LRU_TEST_BIN);
		KUNIT_EXPECT_EQ(test, lru_test_walk_on_from(lru, 1), get_memcg_gen(seq));
		lru_test_rotate(lru, 1, MEMCG_LRU_YOUNG);
		KUNIT_EXPECT_EQ(test, lru_test_walk_on_from(lru, 1), get_memcg_gen(seq + 1));
	}
}

static void reader_stays_in_generation_over_tail_rotation(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	unsigned long seq;

	for (seq = 0; seq < LRU_TEST_SEQS; seq++) {
		int memcg = 0;

		lru_test_reset(lru, seq);
		lru_test_fill_bin(lru, &memcg, 3, get_memcg_gen(seq), LRU_TEST_BIN);
		lru_test_rotate(lru, 1, MEMCG_LRU_TAIL);
		KUNIT_EXPECT_EQ(test, lru_test_walk_on_from(lru, 1), get_memcg_gen(seq));
	}
}

/* Within one RCU section a walk can go on from a memcg that has left the lists. */
static void reader_goes_on_from_offlined_memcg(struct kunit *test)
{
	struct lru_test *lru = test->priv;
	int memcg = 0;

	lru_test_fill_bin(lru, &memcg, 3, 0, LRU_TEST_BIN);
	lru_test_offline(lru, 1);
	KUNIT_EXPECT_PTR_EQ(test, lru_test_node(lru, 1)->next, lru_test_node(lru, 2));
	KUNIT_EXPECT_EQ(test, lru_test_walk_on_from(lru, 1), 0);
}

/*
 * A seed makes for the same operations on the same memcgs in every run. The bins
 * that rotations draw are not seeded (get_random_u32_below()), so what a bin has
 * in it differs from run to run.
 */
#define LRU_RANDOM_STEPS	20000
/* steps of one kind before the other kind has its turn */
#define LRU_RANDOM_PERIOD	256

struct lru_random {
	u64 seed;
	/* with few, the generations run empty all the time */
	int nr_memcgs;
};

static const struct lru_random lru_randoms[] = {
	{ 1, 3 }, { 20261130, 12 }, { 0xdeadbeefcafe, 32 },
};

static void lru_random_desc(const struct lru_random *random, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%d memcgs, seed %llu",
		 random->nr_memcgs, random->seed);
}

KUNIT_ARRAY_PARAM(lru_random, lru_randoms, lru_random_desc);

/* Takes a memcg out and puts it anywhere in the two generations. */
static void lru_test_random_move(struct lru_test *lru, struct rnd_state *rnd, int memcg)
{
	u32 random = prandom_u32_state(rnd);
	int gen = random & 1 ? lru_test_old(lru) : lru_test_young(lru);
	int seg = random & 2 ? MEMCG_LRU_TAIL : 0;

	lru_test_del(lru, memcg);
	/* memcgs are never in the young generation alone */
	if (!lru_test_nr(lru, lru_test_old(lru)))
		gen = lru_test_old(lru);
	lru_test_add(lru, memcg, gen, get_memcg_bin(random >> 8), seg);
}

/* As if on its way to the next generation: seldom back, never a new one. */
static void lru_test_random_step_onwards(struct lru_test *lru, struct rnd_state *rnd,
					 int memcg)
{
	switch (prandom_u32_state(rnd) % 32) {
	case 0:
		if (lru->model.memcgs[memcg].listed)
			lru_test_offline(lru, memcg);
		break;
	case 1 ... 7:
		lru_test_rotate(lru, memcg, MEMCG_LRU_TAIL);
		break;
	default:
		lru_test_rotate(lru, memcg, MEMCG_LRU_YOUNG);
		break;
	}
}

static void lru_test_random_step_any(struct lru_test *lru, struct rnd_state *rnd,
				     int memcg)
{
	u32 random = prandom_u32_state(rnd);

	if (!lru->model.memcgs[memcg].listed) {
		lru_test_online(lru, memcg, get_memcg_bin(random));
		return;
	}

	switch (random % 8) {
	case 0:
		lru_test_offline(lru, memcg);
		break;
	case 1:
	case 2:
		lru_test_random_move(lru, rnd, memcg);
		break;
	case 3:
	case 4:
		lru_test_rotate(lru, memcg, MEMCG_LRU_TAIL);
		break;
	default:
		lru_test_rotate(lru, memcg, MEMCG_LRU_YOUNG);
		break;
	}
}

static void random_operations_match_model(struct kunit *test)
{
	const struct lru_random *random = test->param_value;
	struct lru_test *lru = test->priv;
	struct rnd_state rnd;

	prandom_seed_state(&rnd, random->seed);

	while (lru->step < LRU_RANDOM_STEPS) {
		int memcg = prandom_u32_state(&rnd) % random->nr_memcgs;

		if (lru->step / LRU_RANDOM_PERIOD % 2)
			lru_test_random_step_onwards(lru, &rnd, memcg);
		else
			lru_test_random_step_any(lru, &rnd, memcg);
		cond_resched();
	}

	kunit_info(test, "%d memcgs, seed %llu, %lu steps, seq %lu\n",
		   random->nr_memcgs, random->seed, lru->step, lru->model.seq);
	/* or the run has not been through what it is for */
	KUNIT_EXPECT_GT(test, lru->model.seq, 3 * MEMCG_NR_GENS);
}

/*
 * Readers beside a writer. It moves all memcgs from the old to the young
 * generation, one by one, and then all over again: one phase for each seq. Each
 * goes to the tail segment before that. So within a phase no memcg leaves the
 * young generation, and each of them changes its place twice.
 */
#define LRU_RACE_MEMCGS		32
#define LRU_RACE_ROTATIONS	100000
/*
 * Only a walk with a rotation in the midst of it can find anything. The writer
 * goes on for as many as this, but not for long: a virtual machine may run its
 * CPUs by turns, and then there is one a turn.
 */
#define LRU_RACE_ENOUGH		1000000
#define LRU_RACE_SECONDS	3

struct lru_race {
	struct lru_test *lru;
	struct task_struct *reader;
	struct completion first_walk;
	/* seq, but changed ahead of the first move of a phase */
	unsigned long phase;
	unsigned long rotations;
	unsigned long walks;
	unsigned long raced;
	unsigned long strays;
	/* what must not happen */
	unsigned long bad_gen;
	unsigned long bad_seg;
	unsigned long bad_nulls;
	unsigned long endless;
};

static void lru_test_count(unsigned long *counter)
{
	WRITE_ONCE(*counter, *counter + 1);
}

/* To be asked when something has been seen that @phase does not allow. */
static bool lru_test_phase_is_over(struct lru_race *race, unsigned long phase)
{
	/* pairs with smp_wmb() in lru_test_set_phase() */
	smp_rmb();
	return READ_ONCE(race->phase) != phase;
}

static void lru_test_set_phase(struct lru_race *race, unsigned long phase)
{
	/*
	 * Who sees the phase sees all moves of those before: pairs with
	 * smp_load_acquire() in lru_test_read_all_bins().
	 */
	smp_store_release(&race->phase, phase);
	/*
	 * Who sees a move of this phase sees the phase: pairs with smp_rmb() in
	 * lru_test_phase_is_over().
	 */
	smp_wmb();
}

/*
 * A memcg found in the young generation has been put there in this phase, and
 * stays for the rest of it. So it must have been told where it is before. (Its
 * bin is none of a reader's business.)
 */
static void lru_test_read_young_bin(struct lru_race *race, unsigned long phase, int bin)
{
	struct lru_gen_memcg *memcg_lru = &race->lru->pgdat->memcg_lru;
	int gen = get_memcg_gen(phase + 1);
	struct lru_gen_folio *lrugen;
	struct hlist_nulls_node *pos;
	int steps = 0;

	hlist_nulls_for_each_entry_rcu(lrugen, pos, &memcg_lru->fifo[gen][bin], list) {
		int found = READ_ONCE(lrugen->gen);
		int seg = READ_ONCE(lrugen->seg);

		if (found != gen || seg) {
			if (!lru_test_phase_is_over(race, phase))
				lru_test_count(found != gen ? &race->bad_gen : &race->bad_seg);
			return;
		}
		if (++steps > LRU_RACE_MEMCGS) {
			if (!lru_test_phase_is_over(race, phase))
				lru_test_count(&race->endless);
			return;
		}
	}

	if (get_nulls_value(pos) != gen && !lru_test_phase_is_over(race, phase))
		lru_test_count(&race->bad_nulls);
}

/*
 * A reader of the old generation may be carried along to the young one. Its
 * walk ends nevertheless, and the nulls value says where.
 */
static void lru_test_read_old_bin(struct lru_race *race, unsigned long phase, int bin)
{
	struct lru_gen_memcg *memcg_lru = &race->lru->pgdat->memcg_lru;
	int gen = get_memcg_gen(phase);
	int young = get_memcg_gen(phase + 1);
	struct lru_gen_folio *lrugen;
	struct hlist_nulls_node *pos;
	int steps = 0;

	hlist_nulls_for_each_entry_rcu(lrugen, pos, &memcg_lru->fifo[gen][bin], list) {
		int found = READ_ONCE(lrugen->gen);

		if (found != gen && found != young) {
			if (!lru_test_phase_is_over(race, phase))
				lru_test_count(&race->bad_gen);
			return;
		}
		/* each memcg at most once at each of its three places */
		if (++steps > 3 * LRU_RACE_MEMCGS) {
			if (!lru_test_phase_is_over(race, phase))
				lru_test_count(&race->endless);
			return;
		}
	}

	if (get_nulls_value(pos) == young)
		lru_test_count(&race->strays);
	else if (get_nulls_value(pos) != gen && !lru_test_phase_is_over(race, phase))
		lru_test_count(&race->bad_nulls);
}

static void lru_test_read_all_bins(struct lru_race *race,
				   void (*read_bin)(struct lru_race *race,
						    unsigned long phase, int bin))
{
	int bin;

	for (bin = 0; bin < MEMCG_NR_BINS; bin++) {
		unsigned long rotations = READ_ONCE(race->rotations);

		rcu_read_lock();
		/*
		 * All moves of the phases before are seen from here on: pairs
		 * with smp_store_release() in lru_test_set_phase().
		 */
		read_bin(race, smp_load_acquire(&race->phase), bin);
		rcu_read_unlock();

		if (READ_ONCE(race->rotations) != rotations)
			lru_test_count(&race->raced);
	}

	lru_test_count(&race->walks);
	if (race->walks == 1)
		complete(&race->first_walk);
	cond_resched();
}

static int lru_test_young_reader(void *data)
{
	while (!kthread_should_stop())
		lru_test_read_all_bins(data, lru_test_read_young_bin);

	return 0;
}

static int lru_test_old_reader(void *data)
{
	while (!kthread_should_stop())
		lru_test_read_all_bins(data, lru_test_read_old_bin);

	return 0;
}

static void lru_test_race_rotate(struct lru_race *race)
{
	unsigned long deadline = jiffies + LRU_RACE_SECONDS * HZ;
	struct lru_test *lru = race->lru;
	int i;

	while (race->rotations < LRU_RACE_ROTATIONS ||
	       (READ_ONCE(race->raced) < LRU_RACE_ENOUGH &&
		time_before(jiffies, deadline))) {
		lru_test_set_phase(race, lru->pgdat->memcg_lru.seq);
		for (i = 0; i < LRU_RACE_MEMCGS; i++) {
			lru_gen_rotate_memcg(&lru->lruvecs[i], MEMCG_LRU_TAIL);
			lru_test_count(&race->rotations);
			lru_gen_rotate_memcg(&lru->lruvecs[i], MEMCG_LRU_YOUNG);
			lru_test_count(&race->rotations);
		}
		cond_resched();
	}
}

static void lru_test_race_with(struct kunit *test, int (*reader)(void *data))
{
	struct lru_test *lru = test->priv;
	struct lru_race *race;
	int cpu = lru_test_other_cpu(test);
	bool started;
	int i;

	race = kunit_kzalloc(test, sizeof(*race), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, race);
	race->lru = lru;
	init_completion(&race->first_walk);

	for (i = 0; i < LRU_RACE_MEMCGS; i++)
		lru_test_online(lru, i, i % MEMCG_NR_BINS);

	race->reader = kthread_run_on_cpu(reader, race, cpu, "lru_reader/%u");
	KUNIT_ASSERT_FALSE(test, IS_ERR(race->reader));
	/* nothing may end the case before the reader has been stopped */
	started = wait_for_completion_timeout(&race->first_walk,
					      LRU_TEST_SECONDS * HZ);
	lru_test_race_rotate(race);
	kthread_stop(race->reader);

	kunit_info(test, "%lu rotations, %lu walks of all bins, %lu bins raced, %lu strays\n",
		   race->rotations, race->walks, race->raced, race->strays);
	KUNIT_EXPECT_TRUE(test, started);
	KUNIT_EXPECT_GT_MSG(test, race->raced, 0,
			    "the reader has only walked while nothing moved");
	KUNIT_EXPECT_EQ(test, race->bad_gen, 0);
	KUNIT_EXPECT_EQ(test, race->bad_seg, 0);
	KUNIT_EXPECT_EQ(test, race->bad_nulls, 0);
	KUNIT_EXPECT_EQ(test, race->endless, 0);

	lru_test_step(lru, "race", -1);
	lru_test_check_invariants(lru);
}

static void reader_finds_place_recorded_before_link(struct kunit *test)
{
	lru_test_race_with(test, lru_test_young_reader);
}

static void stray_reader_ends_with_nulls_of_either_generation(struct kunit *test)
{
	lru_test_race_with(test, lru_test_old_reader);
}

static struct kunit_case memcg_lru_test_cases[] = {
	KUNIT_CASE(init_makes_all_bins_empty),
	KUNIT_CASE(add_at_tail_of_empty_bin_sets_tail),
	KUNIT_CASE(add_at_tail_moves_tail),
	KUNIT_CASE(add_records_place_in_memcg),
	KUNIT_CASE(del_of_only_node_clears_tail),
	KUNIT_CASE(del_of_first_node_keeps_tail),
	KUNIT_CASE(del_of_middle_node_keeps_tail),
	KUNIT_CASE(del_of_last_node_moves_tail_back),
	KUNIT_CASE(add_after_del_of_last_node_links_behind_rest),
	KUNIT_CASE(del_leaves_seq_to_callers),
	KUNIT_CASE(online_adds_at_tail_of_old_generation),
	KUNIT_CASE(online_resets_segment),
	KUNIT_CASE_PARAM(tail_rotation_moves_to_tail_of_same_generation,
			 lru_states_gen_params),
	KUNIT_CASE_PARAM(young_rotation_moves_to_tail_of_young_generation,
			 lru_states_gen_params),
	KUNIT_CASE_PARAM(offline_takes_off_any_place, lru_states_gen_params),
	KUNIT_CASE(rotation_of_offlined_memcg_changes_nothing),
	KUNIT_CASE(rotation_uses_every_bin),
	KUNIT_CASE(last_rotation_out_of_old_generation_advances_seq),
	KUNIT_CASE(rotation_of_only_memcg_in_old_generation_keeps_seq),
	KUNIT_CASE(offline_of_last_old_memcg_advances_seq),
	KUNIT_CASE(offline_of_last_young_memcg_keeps_seq),
	KUNIT_CASE_PARAM(young_generation_becomes_old_in_turn,
			 lru_roll_over_gen_params),
	KUNIT_CASE(young_rotation_of_young_default_changes_nothing),
	KUNIT_CASE(no_other_rotation_is_skipped),
	KUNIT_CASE(young_rotation_of_young_default_takes_no_lock),
	KUNIT_CASE(reader_strays_to_young_generation_with_nulls),
	KUNIT_CASE(reader_stays_in_generation_over_tail_rotation),
	KUNIT_CASE(reader_goes_on_from_offlined_memcg),
	KUNIT_CASE_PARAM_ATTR(random_operations_match_model,
			      lru_random_gen_params, {.speed = KUNIT_SPEED_SLOW}),
	KUNIT_CASE_SLOW(reader_finds_place_recorded_before_link),
	KUNIT_CASE_SLOW(stray_reader_ends_with_nulls_of_either_generation),
	{}
};

static struct kunit_suite memcg_lru_test_suite = {
	.name = "memcg_lru",
	.init = memcg_lru_test_init,
	.test_cases = memcg_lru_test_cases,
};

/*
 * Costs are reported, not judged: what is too much depends on the machine. For
 * counts that repeat, run this in a virtual machine whose cycle counter counts
 * instructions.
 */
#define LRU_COST_SAMPLES	101

struct lru_cost_test {
	struct pglist_data *pgdat;
	struct lruvec *lruvecs;
	int nr_lruvecs;
	u64 samples[LRU_COST_SAMPLES];
};

static struct lru_cost_test *lru_test_cost_prepare(struct kunit *test, int nr_lruvecs)
{
	struct lru_cost_test *cost = lru_test_alloc(test, 1, sizeof(*cost));
	int i;

	cost->pgdat = lru_test_alloc(test, 1, sizeof(*cost->pgdat));
	lru_gen_init_pgdat(cost->pgdat);
	lockdep_set_class(&cost->pgdat->memcg_lru.lock, &lru_test_lock_key);

	/*
	 * About 2 KB each. A test machine that has not as much to spare is to
	 * skip the case, and not to kill anything for it.
	 */
	cost->lruvecs = kvcalloc(nr_lruvecs, sizeof(*cost->lruvecs),
				 GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY);
	if (!cost->lruvecs)
		kunit_skip(test, "not enough memory for %d lruvecs", nr_lruvecs);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, lru_test_kvfree,
							   cost->lruvecs));

	cost->nr_lruvecs = nr_lruvecs;
	for (i = 0; i < nr_lruvecs; i++)
		cost->lruvecs[i].pgdat = cost->pgdat;

	return cost;
}

static int lru_test_cost_cmp(const void *a, const void *b)
{
	const u64 *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static u64 lru_test_cost_median(struct lru_cost_test *cost)
{
	sort(cost->samples, LRU_COST_SAMPLES, sizeof(u64), lru_test_cost_cmp, NULL);
	return cost->samples[LRU_COST_SAMPLES / 2];
}

static u64 lru_test_cost_max(struct lru_cost_test *cost)
{
	u64 max = 0;
	int i;

	for (i = 0; i < LRU_COST_SAMPLES; i++)
		max = max(max, cost->samples[i]);
	return max;
}

/* No interrupt within a sample, where locks allow that. */
static cycles_t lru_test_cost_begin(unsigned long *flags)
{
	*flags = 0;
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		local_irq_save(*flags);
	return get_cycles();
}

static u64 lru_test_cost_end(cycles_t start, unsigned long flags)
{
	cycles_t end = get_cycles();

	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		local_irq_restore(flags);
	return end - start;
}

static void lru_test_append_in_old_way(struct lruvec *lruvec, int gen, int bin)
{
	hlist_nulls_add_tail_rcu(&lruvec->lrugen.list,
				 &lruvec_pgdat(lruvec)->memcg_lru.fifo[gen][bin]);
}

/* One memcg more in a bin of @nr, over and over. */
static void lru_test_append_cost_at(struct kunit *test, struct lru_cost_test *cost, int nr)
{
	struct lruvec *lruvec = &cost->lruvecs[nr];
	spinlock_t *lock = &cost->pgdat->memcg_lru.lock;
	u64 none, new, old;
	unsigned long flags;
	cycles_t start;
	int i;

	for (i = 0; i < LRU_COST_SAMPLES; i++) {
		start = lru_test_cost_begin(&flags);
		cost->samples[i] = lru_test_cost_end(start, flags);
	}
	none = lru_test_cost_median(cost);

	for (i = 0; i < LRU_COST_SAMPLES; i++) {
		spin_lock(lock);
		start = lru_test_cost_begin(&flags);
		memcg_lru_add(lruvec, 0, LRU_TEST_BIN, 0);
		cost->samples[i] = lru_test_cost_end(start, flags);
		memcg_lru_del(lruvec);
		spin_unlock(lock);
	}
	new = lru_test_cost_median(cost) - none;

	/* the cached tail is right again once the memcg is gone */
	for (i = 0; i < LRU_COST_SAMPLES; i++) {
		spin_lock(lock);
		start = lru_test_cost_begin(&flags);
		lru_test_append_in_old_way(lruvec, 0, LRU_TEST_BIN);
		cost->samples[i] = lru_test_cost_end(start, flags);
		hlist_nulls_del_init_rcu(&lruvec->lrugen.list);
		spin_unlock(lock);
		cond_resched();
	}
	old = lru_test_cost_median(cost) - none;

	kunit_info(test, "append nodes=%d new=%llu old=%llu cycles\n", nr, new, old);
}

static void append_cost(struct kunit *test)
{
	static const int sizes[] = { 10, 1000, 50000 };
	struct lru_cost_test *cost = lru_test_cost_prepare(test, 50001);
	int i, nr = 0;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (; nr < sizes[i]; nr++) {
			spin_lock(&cost->pgdat->memcg_lru.lock);
			memcg_lru_add(&cost->lruvecs[nr], 0, LRU_TEST_BIN, 0);
			spin_unlock(&cost->pgdat->memcg_lru.lock);
			cond_resched();
		}
		lru_test_append_cost_at(test, cost, nr);
	}
}

static void lru_test_rotate_in_old_way(struct lruvec *lruvec)
{
	int bin = get_random_u32_below(MEMCG_NR_BINS);
	struct pglist_data *pgdat = lruvec_pgdat(lruvec);

	spin_lock(&pgdat->memcg_lru.lock);
	hlist_nulls_del_rcu(&lruvec->lrugen.list);
	lru_test_append_in_old_way(lruvec, 0, bin);
	spin_unlock(&pgdat->memcg_lru.lock);
}

static void lru_test_rotate_in_new_way(struct lruvec *lruvec)
{
	lru_gen_rotate_memcg(lruvec, MEMCG_LRU_TAIL);
}

/*
 * The whole call is measured, since the lock is held for nearly all of it. What
 * is not under the lock is the draw of a bin: of two calls in a row the shorter
 * one counts, as the other one may have had to make random numbers for many.
 */
static void lru_test_rotation_samples(struct lru_cost_test *cost,
				      void (*rotate)(struct lruvec *lruvec))
{
	unsigned long flags;
	cycles_t start;
	int i, call;

	for (i = 0; i < LRU_COST_SAMPLES; i++) {
		cost->samples[i] = U64_MAX;
		for (call = 0; call < 2; call++) {
			struct lruvec *lruvec;

			lruvec = &cost->lruvecs[(2 * i + call) % cost->nr_lruvecs];
			start = lru_test_cost_begin(&flags);
			rotate(lruvec);
			cost->samples[i] = min(cost->samples[i],
					       lru_test_cost_end(start, flags));
		}
		cond_resched();
	}
}

static void lru_test_rotation_cost(struct kunit *test, int nr)
{
	struct lru_cost_test *cost = lru_test_cost_prepare(test, nr);
	u64 new, new_max, old, old_max;
	int i;

	for (i = 0; i < nr; i++) {
		memcg_lru_online(&cost->lruvecs[i], i % MEMCG_NR_BINS);
		cond_resched();
	}

	lru_test_rotation_samples(cost, lru_test_rotate_in_new_way);
	new_max = lru_test_cost_max(cost);
	new = lru_test_cost_median(cost);

	/* last, since it leaves the cached tails behind */
	lru_test_rotation_samples(cost, lru_test_rotate_in_old_way);
	old_max = lru_test_cost_max(cost);
	old = lru_test_cost_median(cost);

	kunit_info(test, "rotate memcgs=%d new=%llu max=%llu old=%llu max=%llu cycles\n",
		   nr, new, new_max, old, old_max);
}

static void rotation_cost_100_memcgs(struct kunit *test)
{
	lru_test_rotation_cost(test, 100);
}

static void rotation_cost_10000_memcgs(struct kunit *test)
{
	lru_test_rotation_cost(test, 10000);
}

static void rotation_cost_50000_memcgs(struct kunit *test)
{
	lru_test_rotation_cost(test, 50000);
}

static struct kunit_case memcg_lru_cost_cases[] = {
	KUNIT_CASE_SLOW(append_cost),
	KUNIT_CASE_SLOW(rotation_cost_100_memcgs),
	KUNIT_CASE_SLOW(rotation_cost_10000_memcgs),
	KUNIT_CASE_SLOW(rotation_cost_50000_memcgs),
	{}
};

static struct kunit_suite memcg_lru_cost_suite = {
	.name = "memcg_lru_cost",
	.test_cases = memcg_lru_cost_cases,
};

kunit_test_suites(&memcg_lru_test_suite, &memcg_lru_cost_suite);
