/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM workingset

#if !defined(_TRACE_WORKINGSET_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_WORKINGSET_H

#include <linux/memcontrol.h>
#include <linux/tracepoint.h>

/*
 * Reclaim has come to shadow nodes. Those above what is allowed are going to be
 * reclaimed, and with them what is known of the pages that were evicted.
 */
TRACE_EVENT(workingset_shadow_budget,

	TP_PROTO(int nid, struct mem_cgroup *memcg, unsigned long nodes,
		 unsigned long max_nodes),

	TP_ARGS(nid, memcg, nodes, max_nodes),

	TP_STRUCT__entry(
		__field(int, nid)
		__field(u64, memcg_id)
		__field(unsigned long, nodes)
		__field(unsigned long, max_nodes)
	),

	TP_fast_assign(
		__entry->nid = nid;
		__entry->memcg_id = mem_cgroup_id(memcg);
		__entry->nodes = nodes;
		__entry->max_nodes = max_nodes;
	),

	TP_printk("nid=%d memcg_id=%llu nodes=%lu max_nodes=%lu",
		  __entry->nid, __entry->memcg_id, __entry->nodes,
		  __entry->max_nodes)
);

#endif /* _TRACE_WORKINGSET_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
