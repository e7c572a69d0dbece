/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* BIC: Xu, Harfoush, Rhee, "Binary Increase Congestion Control for Fast Long-Distance Networks", INFOCOM 2004, section III.
 *
 * After a loss the window searches half the way to where the loss was, at most s_max and at least s_min segments per
 * round trip; beyond it, it probes ever faster up to s_max. While no loss is known, it grows by s_max.
 *
 * Fast convergence compares a loss with the loss before, as the text says. The pseudo-code compares with the default maximum
 * once the window has probed beyond the old one, which every loss would then be below. Linux's BIC is another one. */
#ifndef EKIDEN_BIC_H
#define EKIDEN_BIC_H

#include "reno.h"
#include "slow_start.h"

struct ek_bic_tunables {
	ek_u32 low_window; /* Reno below */
	ek_u32 s_max, s_min; /* in 1024ths of a segment per round trip */
	ek_u32 decrease; /* beta, in 65536ths of the window */
	ek_u32 fast_convergence; /* 0 or 1 */
};

/* What BIC knows of the path. */
struct ek_bic_known {
	ek_u32 max; /* where the last loss was, or what it became by fast convergence; 0 while there was none */
	ek_u32 probe; /* increment of max probing, in 1024ths; 0 while searching */
	ek_u32 probe_until; /* the window at which it doubles */
};

struct ek_bic {
	struct ek_hystart hystart;
	struct ek_bic_known known;
	struct ek_bic_known before; /* the last loss event, which may turn out to be none */
};

/* After a timeout the path may be another one. */
EK_FN void ek_bic_timeout(struct ek_bic *state)
{
	state->known.max = 0;
	state->known.probe = 0;
	state->known.probe_until = 0;
}

EK_FN void ek_bic_init(struct ek_bic *state)
{
	ek_hystart_init(&state->hystart);
	ek_bic_timeout(state);
	state->before = state->known;
}

/* The last loss event was none. */
EK_FN void ek_bic_undo(struct ek_bic *state) { state->known = state->before; }

/* Segments per round trip, in 1024ths. */
EK_FN ek_u32 ek_bic_increment(const struct ek_bic_tunables *tunables, struct ek_bic_known *state,
			      const struct ek_window *window)
{
	ek_u32 cwnd = window->cwnd;
	ek_u64 half, grown;

	if (cwnd < tunables->low_window)
		return EK_SEGMENT;
	if (!state->max)
		return ek_max(tunables->s_max, 1);
	if (cwnd < state->max) {
		/* Binary search: target = (max + min) / 2, where min is the current window. */
		state->probe = 0;
		grown = ek_min(window->cwnd_cnt / ek_max(cwnd, 1), EK_SEGMENT);
		half = ((ek_u64)(state->max - cwnd) * EK_SEGMENT - grown) / 2;
		if (half > tunables->s_max)
			return tunables->s_max;
		return ek_max((ek_u32)half, ek_max(tunables->s_min, 1));
	}
	/* Max probing: slow start in the increment, 1, 2, 4 … segments per round trip. */
	if (!state->probe) {
		state->probe = EK_SEGMENT;
		state->probe_until = cwnd + 1;
	} else if (cwnd >= state->probe_until && state->probe < tunables->s_max) {
		state->probe *= 2;
		state->probe_until = cwnd + state->probe / EK_SEGMENT;
	}
	return ek_max(ek_min(state->probe, tunables->s_max), 1);
}

/* Congestion avoidance. */
EK_FN void ek_bic_avoid(const struct ek_bic_tunables *tunables, struct ek_bic *state, struct ek_window *window, ek_u32 acked)
{
	ek_grow(window, acked, ek_bic_increment(tunables, &state->known, window));
}

EK_FN ek_u32 ek_bic_ssthresh(const struct ek_bic_tunables *tunables, struct ek_bic *state, ek_u32 cwnd)
{
	ek_u32 part = ek_min(tunables->decrease, EK_ONE), after;

	state->before = state->known;
	if (cwnd < tunables->low_window)
		return ek_reno_ssthresh(cwnd);
	state->known.probe = 0;
	after = ek_decreased(cwnd, part);
	/* Fast convergence: a flow that lost at a smaller window than before releases more of it to new flows. */
	if (tunables->fast_convergence && cwnd < state->known.max)
		state->known.max = cwnd - (cwnd - ek_min(after, cwnd)) / 2;
	else
		state->known.max = cwnd;
	return after;
}

#endif
