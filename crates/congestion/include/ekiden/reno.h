/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Reno: RFC 5681, section 3.1, counting segments that were acknowledged (RFC 3465 without a limit, as Linux does). */
#ifndef EKIDEN_RENO_H
#define EKIDEN_RENO_H

#include "types.h"

/* Slow start. Returns how many of the acknowledged segments are left for congestion avoidance. */
EK_FN ek_u32 ek_slow_start(struct ek_window *window, ek_u32 acked)
{
	ek_u32 room, taken;

	if (window->cwnd >= window->ssthresh)
		return acked;
	room = window->ssthresh - window->cwnd;
	taken = ek_min(acked, room);
	window->cwnd = ek_min(window->cwnd + taken, window->clamp);
	return acked - taken;
}

EK_FN void ek_reno_acked(struct ek_window *window, ek_u32 acked)
{
	acked = ek_slow_start(window, acked);
	if (acked)
		ek_grow(window, acked, EK_SEGMENT);
}

EK_FN ek_u32 ek_reno_ssthresh(ek_u32 cwnd) { return ek_decreased(cwnd, EK_ONE / 2); }

#endif
