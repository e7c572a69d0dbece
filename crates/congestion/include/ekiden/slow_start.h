/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Slow start, and two ways not to overshoot by half of the window: limited slow start (RFC 3742), which grows by a constant once
 * the window is large, and HyStart++ (RFC 9406), which ends when round-trip times rise.
 *
 * HyStart++ doubts what it sees: first it grows by a quarter (conservative slow start, CSS), and goes back to slow start if
 * round-trip times fall again, which were late by chance then. Left out is L, the limit of growth per acknowledgement of a sender
 * that does not pace: as Linux, these controls count all that an acknowledgement covers. */
#ifndef EKIDEN_SLOW_START_H
#define EKIDEN_SLOW_START_H

#include "types.h"

/* RFC 9406, section 4.3. */
#define EK_HYSTART_LATE_LEAST_US 4000 /* MIN_RTT_THRESH */
#define EK_HYSTART_LATE_MOST_US 16000 /* MAX_RTT_THRESH */
#define EK_HYSTART_LATE_PART 8 /* MIN_RTT_DIVISOR */
#define EK_HYSTART_SAMPLES 8 /* N_RTT_SAMPLE */
#define EK_CSS_GROWTH 4 /* CSS_GROWTH_DIVISOR */
#define EK_CSS_ROUNDS 5

#define EK_HYSTART_NONE 0xffffffffu
/* A threshold from here on is none: no loss has been seen. */
#define EK_SSTHRESH_NONE 0x3fffffffu
/* The most growth per round trip that is computed, in segments. */
#define EK_SLOW_START_MOST (1u << 21)

struct ek_slow_start_tunables {
	ek_u32 max_ssthresh; /* the window beyond which slow start is limited (RFC 3742); 0: none */
	ek_u32 hystart; /* 1: HyStart++ */
};

struct ek_hystart {
	ek_u32 last_us; /* least round-trip time of the round before; EK_HYSTART_NONE if unknown */
	ek_u32 least_us; /* that of this round, so far */
	ek_u32 baseline_us; /* that with which CSS began */
	ek_u32 left; /* segments of this round that are not acknowledged */
	ek_u8 samples; /* round-trip times of this round, up to EK_HYSTART_SAMPLES */
	ek_u8 css; /* rounds of CSS that have begun; 0: slow start */
};

EK_FN void ek_hystart_init(struct ek_hystart *state)
{
	state->last_us = EK_HYSTART_NONE;
	state->least_us = EK_HYSTART_NONE;
	state->baseline_us = EK_HYSTART_NONE;
	state->left = 0;
	state->samples = 0;
	state->css = 0;
}

/* A round-trip time was measured. */
EK_FN void ek_hystart_rtt(struct ek_hystart *state, ek_u32 rtt_us)
{
	state->least_us = ek_min(state->least_us, rtt_us);
	if (state->samples < EK_HYSTART_SAMPLES)
		state->samples += 1;
}

/* An acknowledgement of `acked` segments before the first loss, with the window before it. Returns whether slow start ends. A
 * round is what was outstanding when it began (section 4.2). */
EK_FN int ek_hystart_ends(struct ek_hystart *state, ek_u32 cwnd, ek_u32 acked)
{
	ek_u32 late;

	if (acked > state->left) {
		if (state->css >= EK_CSS_ROUNDS)
			return 1;
		if (state->css)
			state->css += 1;
		state->last_us = state->least_us;
		state->least_us = EK_HYSTART_NONE;
		state->samples = 0;
		state->left = cwnd > acked ? cwnd - acked : 0;
	} else {
		state->left -= acked;
	}
	if (state->samples < EK_HYSTART_SAMPLES || state->last_us == EK_HYSTART_NONE)
		return 0;
	late = ek_min(ek_max(state->last_us / EK_HYSTART_LATE_PART, EK_HYSTART_LATE_LEAST_US), EK_HYSTART_LATE_MOST_US);
	if (state->css) {
		if (state->least_us < state->baseline_us)
			state->css = 0;
	} else if (state->least_us >= late && state->least_us - late >= state->last_us) {
		state->baseline_us = state->least_us;
		state->css = 1;
	}
	return 0;
}

/* Slow start. Returns how many of the acknowledged segments are left for congestion avoidance. */
EK_FN ek_u32 ek_slow_start(const struct ek_slow_start_tunables *tunables, struct ek_hystart *state,
			   struct ek_window *window, ek_u32 acked)
{
	ek_u32 css = 0, per_round, taken;

	if (window->cwnd >= window->ssthresh)
		return acked;
	/* Section 4.3: only before the first loss. */
	if (tunables->hystart && window->ssthresh >= EK_SSTHRESH_NONE) {
		if (ek_hystart_ends(state, window->cwnd, acked)) {
			window->ssthresh = window->cwnd;
			return acked;
		}
		css = state->css;
	}
	per_round = window->cwnd;
	if (tunables->max_ssthresh && window->cwnd > tunables->max_ssthresh)
		per_round = ek_max(tunables->max_ssthresh / 2, 1);
	else if (!css) {
		taken = ek_min(acked, window->ssthresh - window->cwnd);
		window->cwnd = ek_min(window->cwnd + taken, window->clamp);
		return acked - taken;
	}
	if (css)
		per_round = ek_max(per_round / EK_CSS_GROWTH, 1);
	ek_grow(window, acked, ek_min(per_round, EK_SLOW_START_MOST) * EK_SEGMENT);
	window->cwnd = ek_min(window->cwnd, window->ssthresh);
	return 0;
}

#endif
