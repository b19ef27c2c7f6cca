/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM memcg_lru

#if !defined(_TRACE_MEMCG_LRU_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_MEMCG_LRU_H

#include <linux/memcontrol.h>
#include <linux/mmzone.h>
#include <linux/tracepoint.h>

TRACE_DEFINE_ENUM(MEMCG_LRU_TAIL);
TRACE_DEFINE_ENUM(MEMCG_LRU_YOUNG);

#define show_memcg_lru_op(op)						\
	__print_symbolic(op,						\
			 { MEMCG_LRU_TAIL,	"TAIL" },		\
			 { MEMCG_LRU_YOUNG,	"YOUNG" })

/* A memcg has moved; generations are numbers modulo MEMCG_NR_GENS */
TRACE_EVENT(memcg_lru_rotate,

	TP_PROTO(struct lruvec *lruvec, int op, int old_gen),

	TP_ARGS(lruvec, op, old_gen),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(u64, memcg_id)
		__field(int, op)
		__field(int, old_gen)
		__field(int, new_gen)
		__field(int, bin)
	),

	TP_fast_assign(
		__entry->nid = lruvec_pgdat(lruvec)->node_id;
		__entry->memcg_id = mem_cgroup_id(lruvec_memcg(lruvec));
		__entry->op = op;
		__entry->old_gen = old_gen;
		__entry->new_gen = lruvec->lrugen.gen;
		__entry->bin = lruvec->lrugen.bin;
	),

	TP_printk("nid=%d memcg_id=%llu op=%s old_gen=%d new_gen=%d bin=%d",
		  __entry->nid, __entry->memcg_id, show_memcg_lru_op(__entry->op),
		  __entry->old_gen, __entry->new_gen, __entry->bin)
);

/* A rotation would have changed nothing and has not been carried out */
TRACE_EVENT(memcg_lru_skip,

	TP_PROTO(struct lruvec *lruvec, int op),

	TP_ARGS(lruvec, op),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(u64, memcg_id)
		__field(int, op)
		__field(int, gen)
	),

	TP_fast_assign(
		__entry->nid = lruvec_pgdat(lruvec)->node_id;
		__entry->memcg_id = mem_cgroup_id(lruvec_memcg(lruvec));
		__entry->op = op;
		__entry->gen = READ_ONCE(lruvec->lrugen.gen);
	),

	TP_printk("nid=%d memcg_id=%llu op=%s gen=%d",
		  __entry->nid, __entry->memcg_id, show_memcg_lru_op(__entry->op),
		  __entry->gen)
);

/* A walk over a bin begins anew, since it has lost its way */
TRACE_EVENT(memcg_lru_restart,

	TP_PROTO(int nid, int gen, int bin, bool offlined),

	TP_ARGS(nid, gen, bin, offlined),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(int, gen)
		__field(int, bin)
		__field(bool, offlined)
	),

	TP_fast_assign(
		__entry->nid = nid;
		__entry->gen = gen;
		__entry->bin = bin;
		__entry->offlined = offlined;
	),

	TP_printk("nid=%d gen=%d bin=%d reason=%s",
		  __entry->nid, __entry->gen, __entry->bin,
		  __entry->offlined ? "offlined" : "rotated")
);

#endif /* _TRACE_MEMCG_LRU_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
