/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Taking their places from streams that have had no packets for long. */
#ifndef EKIDEN_GATEWAY_SWEEP_H
#define EKIDEN_GATEWAY_SWEEP_H

#include "gateway_streams.h"

/* The next program on the hook decides (TCX_NEXT, TC_ACT_UNSPEC). */
#define NEXT (-1)

/* Later than now: the packet passed since the sweeper looked at the clock. */
#define AHEAD 16

INLINE int is_old(const struct gateway_stream *stream, const struct gateway_sweep *sweep, u16 now)
{
	u32 age = (u16)(now - stream->last), most = sweep->open;

	if (!ekb_is_open(&stream->state))
		most = sweep->opening;
	else if (ekb_is_closing(&stream->state))
		most = sweep->closing;
	return age <= 0xffff - AHEAD && age > most;
}

/* Not attached: user space runs it from time to time, with the keys of streams that look old. No packet passes on this processor
 * meanwhile, so they are few. Returns how many lost their places. */
SEC("tc")
int ekiden_sweep(struct __sk_buff *skb)
{
	u16 now = (u16)(bpf_ktime_get_coarse_ns() >> 30);
	struct gateway_stream *stream;
	struct gateway_sweep *sweep;
	u32 zero = 0, swept = 0, i;
	long error;

	sweep = bpf_map_lookup_elem(&ekiden_sweeping, &zero);
	if (!sweep)
		return NEXT;
#pragma clang loop unroll(disable)
	for (i = 0; i < SWEPT_MOST; i++) {
		struct stream4_key *key4 = &sweep->keys[i].key4;
		struct stream6_key *key6 = &sweep->keys[i].key6;
		int is_4 = sweep->version == 4;

		if (i >= sweep->count)
			break;
		stream = is_4 ? bpf_map_lookup_elem(&ekiden_streams4, key4) : bpf_map_lookup_elem(&ekiden_streams6, key6);
		if (!stream || !is_old(stream, sweep, now))
			continue;
		error = is_4 ? bpf_map_delete_elem(&ekiden_streams4, key4) : bpf_map_delete_elem(&ekiden_streams6, key6);
		if (error)
			continue;
		__sync_fetch_and_add(slot(is_4 ? slot4(key4) : slot6(key6)), -1);
		swept++;
	}
	return swept;
}

#endif
