/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Taking their places from streams that have had no packets for long. */
#ifndef EKIDEN_GATEWAY_SWEEP_H
#define EKIDEN_GATEWAY_SWEEP_H

#include "gateway_streams.h"

/* The next program on the hook decides (TCX_NEXT, TC_ACT_UNSPEC). */
#define NEXT (-1)

/* Later than now: the packet passed since the sweeper looked at the clock. */
#define AHEAD 16

INLINE int is_old(const struct gateway_stream *stream, const struct gateway_sweep *sweep)
{
	u32 age = (u16)(sweep->now - stream->last);

	return age <= 0xffff - AHEAD && age > (ekb_is_open(&stream->state) ? sweep->open : sweep->opening);
}

static long sweep4(void *map, struct stream4_key *key, struct gateway_stream *stream, struct gateway_sweep **sweep)
{
	u32 index = slot4(key);

	if (is_old(stream, *sweep) && !bpf_map_delete_elem(&ekiden_streams4, key)) {
		__sync_fetch_and_add(slot(index), -1);
		(*sweep)->swept++;
	}
	return 0;
}

static long sweep6(void *map, struct stream6_key *key, struct gateway_stream *stream, struct gateway_sweep **sweep)
{
	u32 index = slot6(key);

	if (is_old(stream, *sweep) && !bpf_map_delete_elem(&ekiden_streams6, key)) {
		__sync_fetch_and_add(slot(index), -1);
		(*sweep)->swept++;
	}
	return 0;
}

/* Not attached: user space runs it from time to time. */
SEC("tc")
int ekiden_sweep(struct __sk_buff *skb)
{
	struct gateway_sweep *sweep;
	u32 zero = 0;

	sweep = bpf_map_lookup_elem(&ekiden_sweeping, &zero);
	if (!sweep)
		return NEXT;
	sweep->now = (u32)(bpf_ktime_get_coarse_ns() >> 30);
	bpf_for_each_map_elem(&ekiden_streams4, sweep4, &sweep, 0);
	bpf_for_each_map_elem(&ekiden_streams6, sweep6, &sweep, 0);
	return NEXT;
}

#endif
