/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Gentle HighSpeed TCP (Zhang, Hasegawa, Murata, MASCOTS 2004; IEICE Trans. Commun. E88-B(6), 2005): HighSpeed TCP while the
 * link has room, Reno once round-trip times rise because a queue builds up. So the window approaches a full queue slowly, and
 * Reno flows beside it keep their share. What the papers leave open is a parameter; docs/guide/congestion.md gives the reasons
 * for the defaults. */
#ifndef EKIDEN_GHSTCP_H
#define EKIDEN_GHSTCP_H

#include "hstcp.h"
#include "slow_start.h"
#include "trend.h"

enum ek_ghstcp_test {
	EK_GHSTCP_TREND = 0, /* the correlation test of 2004 */
	EK_GHSTCP_THRESHOLDS = 1, /* mean round-trip time against two thresholds, as in the refinement of 2005 */
};

enum ek_ghstcp_mode {
	EK_GHSTCP_FAST = 0, /* as HighSpeed TCP */
	EK_GHSTCP_RENO = 1,
};

struct ek_ghstcp_tunables {
	ek_u32 test; /* enum ek_ghstcp_test */
	ek_u32 span; /* a test's samples left within this many 65536ths of a round trip */
	ek_u32 samples_least; /* fewer leave the mode as it is */
	ek_u32 reno_decrease; /* what a loss takes in Reno mode, in 65536ths of the window; 0: b(w), as in HSTCP mode */
	ek_u32 low, high; /* thresholds between least and largest mean round-trip time, in 65536ths of their distance */
	ek_u32 critical[EK_TREND_MOST]; /* by degrees of freedom: see ek_trend_rises */
};

struct ek_ghstcp {
	struct ek_hystart hystart;
	ek_u8 mode; /* enum ek_ghstcp_mode */
	ek_u8 shift; /* samples are shifted down by this, so that long times fit */
	ek_u8 forgot; /* 1: a timeout has made it forget what the last three members hold */
	ek_u8 mode_forgot;
	struct ek_trend trend;
	ek_u64 start_us; /* departure of the test's first sample */
	ek_u32 span_us; /* of the test under way; 0 while there is none */
	ek_u32 next_us; /* the next sample leaves this much after the first, or later */
	ek_u32 rtt_least_us, rtt_most_us; /* of the tests' means */
	ek_u32 rtt_least_forgot_us, rtt_most_forgot_us;
};

/* Gives up the test under way. */
EK_FN void ek_ghstcp_restart(struct ek_ghstcp *state)
{
	ek_trend_clear(&state->trend);
	state->start_us = 0;
	state->span_us = 0;
	state->next_us = 0;
	state->shift = 0;
}

EK_FN void ek_ghstcp_forget(struct ek_ghstcp *state)
{
	ek_ghstcp_restart(state);
	state->mode = EK_GHSTCP_FAST;
	state->rtt_least_us = 0;
	state->rtt_most_us = 0;
}

EK_FN void ek_ghstcp_init(struct ek_ghstcp *state)
{
	ek_hystart_init(&state->hystart);
	ek_ghstcp_forget(state);
	state->forgot = 0;
}

/* After a timeout the path may be another one. */
EK_FN void ek_ghstcp_timeout(struct ek_ghstcp *state)
{
	if (!state->forgot) {
		state->mode_forgot = state->mode;
		state->rtt_least_forgot_us = state->rtt_least_us;
		state->rtt_most_forgot_us = state->rtt_most_us;
		state->forgot = 1;
	}
	ek_ghstcp_forget(state);
}

/* The last loss event was none. Only a timeout has changed anything. Returns whether the mode changed. */
EK_FN int ek_ghstcp_undo(struct ek_ghstcp *state)
{
	ek_u32 mode = state->mode;

	if (!state->forgot)
		return 0;
	state->mode = state->mode_forgot;
	state->rtt_least_us = state->rtt_least_forgot_us;
	state->rtt_most_us = state->rtt_most_forgot_us;
	state->forgot = 0;
	return state->mode != mode;
}

/* The connection was idle: its queue is gone, and a test across the pause would compare two queues. Returns whether the
 * mode changed. */
EK_FN int ek_ghstcp_idle(struct ek_ghstcp *state)
{
	ek_u32 mode = state->mode;

	ek_ghstcp_restart(state);
	state->mode = EK_GHSTCP_FAST;
	return state->mode != mode;
}

/* The mode after a test of all samples taken. */
EK_FN ek_u32 ek_ghstcp_judge(const struct ek_ghstcp_tunables *tunables, struct ek_ghstcp *state)
{
	ek_u32 n = state->trend.n, mean, above, range;

	if (n < ek_max(tunables->samples_least, 3))
		return state->mode;
	if (tunables->test == EK_GHSTCP_TREND)
		return ek_trend_rises(&state->trend, tunables->critical) ? EK_GHSTCP_RENO : EK_GHSTCP_FAST;
	mean = (state->trend.sum_t / n) << (state->shift & 31);
	if (!state->rtt_least_us || mean < state->rtt_least_us)
		state->rtt_least_us = mean;
	state->rtt_most_us = ek_max(state->rtt_most_us, mean);
	above = mean - state->rtt_least_us;
	range = state->rtt_most_us - state->rtt_least_us;
	if ((ek_u64)above << 16 > (ek_u64)range * tunables->high)
		return EK_GHSTCP_RENO;
	if ((ek_u64)above << 16 < (ek_u64)range * tunables->low || !above)
		return EK_GHSTCP_FAST;
	return state->mode;
}

/* A round-trip time was measured. Returns whether the mode changed.
 *
 * One measurement is one sample, however many segments its acknowledgement covers: the test needs pairs whose noise is
 * independent. Counted once per segment, noise would pass for a trend in 41 of 100 tests with acknowledgements of 44. */
EK_FN int ek_ghstcp_rtt(const struct ek_ghstcp_tunables *tunables, struct ek_ghstcp *state,
			const struct ek_window *window, ek_u64 now_us, ek_u32 rtt_us)
{
	ek_u64 departure = now_us - rtt_us;
	ek_u32 mode = state->mode, bits, after;
	ek_u64 span;

	if (!rtt_us || rtt_us > now_us)
		return 0;
	if (state->span_us && departure >= state->start_us + state->span_us) {
		mode = ek_ghstcp_judge(tunables, state);
		ek_ghstcp_restart(state);
	}
	if (!state->span_us) {
		/* Without a queue the thresholds would coincide: at least 1 apart. */
		span = ((ek_u64)rtt_us * tunables->span) >> 16;
		state->span_us = span > 0xffffffffu ? 0xffffffffu : ek_max((ek_u32)span, 1);
		state->start_us = departure;
		/* Round-trip times may double during the test. */
		bits = ek_bits(((ek_u64)rtt_us << 1) | state->span_us);
		state->shift = bits > EK_TREND_BITS ? bits - EK_TREND_BITS : 0;
	}
	/* One that left before the first (its acknowledgement came late) tells nothing. */
	if (departure >= state->start_us && departure - state->start_us >= state->next_us) {
		after = (ek_u32)(departure - state->start_us);
		ek_trend_add(&state->trend, after >> (state->shift & 31), rtt_us >> (state->shift & 31));
		/* A test that may have more samples than it can take spreads them evenly over its time. */
		if (((ek_u64)window->cwnd * tunables->span) >> 16 > EK_TREND_MOST)
			state->next_us = after + state->span_us / EK_TREND_MOST;
	}
	if (mode == state->mode)
		return 0;
	state->mode = mode;
	return 1;
}

/* Congestion avoidance. */
EK_FN void ek_ghstcp_avoid(const struct ek_hstcp_table *table, const struct ek_ghstcp *state,
			   struct ek_window *window, ek_u32 acked)
{
	if (state->mode == EK_GHSTCP_RENO)
		ek_reno_avoid(window, acked);
	else
		ek_hstcp_avoid(table, window, acked);
}

EK_FN ek_u32 ek_ghstcp_ssthresh(const struct ek_hstcp_table *table, const struct ek_ghstcp_tunables *tunables,
				struct ek_ghstcp *state, ek_u32 cwnd)
{
	state->forgot = 0;
	if (state->mode == EK_GHSTCP_RENO && tunables->reno_decrease)
		return ek_decreased(cwnd, ek_min(tunables->reno_decrease, EK_ONE));
	return ek_hstcp_ssthresh(table, cwnd);
}

#endif
