/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* ekiden_far: a control for long paths that lose packets by chance. It decides once per round trip, by the queue that it sees, and
 * paces what it sends.
 *
 * - The queue is the least round trip of a round, less the least of the last 30 to 60 s. While it is shorter than a target, the
 *   window grows by a step, which begins with one segment after each decrease and grows by half a round: equal steps for all, so
 *   that flows come to equal windows. Beyond the target the window falls to what empties the queue.
 * - A loss counts only where a queue has overflowed: more are lost than by chance, and round trips were long or it happens in two
 *   rounds in a row; or so many more that a policer must have dropped them. What is lost by chance is learnt only while the window
 *   is no more than what the path carries, and not in the rounds after a decrease: losses that fall with the window are congestion.
 * - Where few segments are all that a path carries, one loss beyond chance with a long round trip is an overflow, as a mark (ECN) is
 *   everywhere.
 * - Whatever the losses are taken for, the window is bounded by what the path has delivered (ek_far_proven).
 * - Jitter is what a queue seems to be where there is none: a third of the target at most. Where round trips swing by more than the
 *   target, a queue counts after three rounds.
 * - A queue that does not fall when less is sent is none: the path has become longer, and its least round trip is learnt anew.
 * - A connection begins with half of what an earlier one has found of its path, once its first segments have arrived (far/path.h).
 * - A queue that does not empty after two decreases is filled by others. From then on the window is at least what a Reno flow
 *   would have: it grows by a segment a round, and halves where the queue overflows. */
#ifndef EKIDEN_FAR_H
#define EKIDEN_FAR_H

#include "far/losses.h"
#include "far/path.h"
#include "far/window.h"

/* Whether round trips swing by more than the target: jitter hides a queue. */
EK_FN int ek_far_swings(const struct ek_far_tunables *tunables, const struct ek_far *state)
{
	return state->swing * 64u > ek_far_target(tunables, state);
}

/* A round-trip time was measured. Returns whether so many in a row were long that the startup is over. */
EK_FN int ek_far_rtt(const struct ek_far_tunables *tunables, struct ek_far *state, ek_u64 now_us, ek_u32 rtt_us)
{
	ek_u32 now_ms = (ek_u32)(now_us / 1000), late;

	if (now_ms - state->base_at_ms > EK_FAR_BASE_MS) {
		state->base_before_us = state->base_now_us;
		state->base_now_us = EK_FAR_NONE;
		state->base_at_ms = now_ms;
	}
	state->base_now_us = ek_min(state->base_now_us, rtt_us);
	state->base_us = ek_min(state->base_now_us, state->base_before_us);
	state->least_us = ek_min(state->least_us, rtt_us);
	state->most_us = ek_max(state->most_us, rtt_us);
	state->swing = (unsigned short)ek_max(state->swing, ek_min((state->most_us - rtt_us) / 64, 65535u));
	if (state->samples < 16)
		state->samples += 1;
	if (!(state->flags & EK_FAR_STARTUP))
		return 0;
	if (rtt_us - state->base_us <= ek_far_target(tunables, state))
		state->late = 0;
	else if (state->late < 255)
		state->late += 1;
	/* A jitter delays a few in a row. */
	late = ek_min(ek_max(state->window / EK_FAR_UNIT / 32, 8), 64);
	return state->samples == 16 && state->late >= late && !ek_far_swings(tunables, state);
}

/* What a round of `delivered` and `lost` segments has shown. */
EK_FN void ek_far_look(const struct ek_far_tunables *tunables, const struct ek_far *state, ek_u32 delivered, ek_u32 lost,
		       struct ek_far_seen *seen)
{
	/* No short queue is taken for jitter. */
	int is_short;
	ek_u32 noise_us, most_us;

	seen->sent = delivered + lost;
	seen->lost = lost;
	seen->part = ek_far_lost(lost, seen->sent);
	seen->target_us = ek_far_target(tunables, state);
	is_short = seen->target_us < tunables->queue_least_us;
	noise_us = is_short ? 0 : ek_min(state->noise * 64u, seen->target_us / 3);
	seen->least_us = state->least_us == EK_FAR_NONE || state->least_us < state->base_us ? 0 : state->least_us - state->base_us;
	seen->queue_us = seen->least_us > noise_us ? seen->least_us - noise_us : 0;
	seen->swing_us = is_short ? 0 : ek_min(state->swing * 64u, state->most_us);
	most_us = state->most_us - seen->swing_us;
	seen->most_us = most_us > state->base_us ? most_us - state->base_us : 0;
	seen->is_hidden = ek_far_swings(tunables, state);
}

/* A round trip is over. Returns 0. */
EK_APART int ek_far_round(const struct ek_far_tunables *tunables, struct ek_far *state, ek_u32 span_us, ek_u32 delivered,
			  ek_u32 lost)
{
	struct ek_far_seen seen;
	ek_u64 exact;
	ek_u32 rate, proven, faded;
	int limited, is_long, overflow;

	if (!tunables || !state)
		return 0;
	exact = ((ek_u64)delivered << EK_FAR_RATE_SHIFT) / ek_max(span_us, state->base_us);
	rate = exact < EK_FAR_NONE ? (ek_u32)exact : EK_FAR_NONE;
	faded = (ek_u32)(((ek_u64)state->top_rate * ek_min(span_us, 60000000)) / 60000000);
	limited = state->flags & EK_FAR_LIMITED || state->used < state->window / EK_FAR_UNIT / 4 * 3;
	ek_far_look(tunables, state, delivered, lost, &seen);
	is_long = seen.queue_us > seen.target_us;
	overflow = ek_far_overflows(state, &seen);
	state->top_rate = ek_max(state->top_rate - faded, rate);
	if (state->calm < 3)
		state->calm += 1;
	if (seen.queue_us < seen.target_us && !overflow && !state->hold)
		ek_far_learn(state, &seen);
	if (!state->hold)
		state->cycle_us = ek_min(state->cycle_us, seen.queue_us);

	if (state->flags & EK_FAR_JUMPS && !(state->flags & EK_FAR_NEWS)) {
		ek_far_validate(state, delivered, (is_long && !seen.is_hidden) || ek_far_policed(state, &seen) ||
				(ek_far_exceeds(state, lost, seen.sent) && ek_far_is_beyond(state, seen.part)));
	} else if (state->flags & EK_FAR_STARTUP) {
		ek_far_double(state, rate, limited, (is_long && !seen.is_hidden) || ek_far_policed(state, &seen));
	} else {
		state->late = !is_long ? 0 : state->late < 255 ? state->late + 1u : 256 - EK_FAR_ASKS;
		if (state->hold)
			ek_far_wait(state);
		/* Jitter makes a round look late, and seldom three in a row. */
		else if (overflow || state->late > (seen.is_hidden ? 2 : 0))
			ek_far_decrease(state, &seen, overflow);
		else if (!limited && !is_long)
			ek_far_grow(tunables, state, &seen);
	}

	if (state->depth_us < 1u << 30)
		state->depth_us += state->depth_us / 512 + 1;
	if (state->flags & EK_FAR_STARTUP)
		return 0;
	ek_far_compete(state, rate, limited);
	proven = ek_far_proven(state, delivered);
	state->own = ek_min(state->own, proven);
	state->fair = ek_min(state->fair, proven);
	state->window = ek_max(state->own, state->fair);
	state->few = state->own < EK_FAR_FEW * EK_FAR_UNIT && ek_far_carried(state, 0) < EK_FAR_FEW * EK_FAR_UNIT;
	if (!limited)
		state->flags |= EK_FAR_NEWS;
	return 0;
}

/* A round trip begins. */
EK_FN void ek_far_begin(struct ek_far *state, const struct ek_sample *sample)
{
	state->round_at_us = (ek_u32)sample->now_us;
	state->round_delivered = sample->delivered;
	state->round_lost = sample->lost;
	state->least_us = EK_FAR_NONE;
	state->used = state->flags & EK_FAR_STARTUP ? sample->was_in_flight : 0;
	state->most_us = 0;
	state->swing = 0;
	state->marked = 0;
	state->flags &= ~(EK_FAR_LIMITED | EK_FAR_ANEW);
}

/* Whether a round would be shorter than any round trip: where what is sent again was not lost, the first ends it. */
EK_FN int ek_far_is_early(const struct ek_far *state, ek_u32 now_us)
{
	ek_u32 span_us = now_us - state->round_at_us;

	return !span_us || (state->base_us != EK_FAR_NONE && span_us < state->base_us / 8 * 7);
}

/* Whether a loss ends the round: of few segments the next round would lose as many again. */
EK_FN int ek_far_is_urgent(const struct ek_far *state, const struct ek_sample *sample)
{
	return sample->lost_now && !state->hold && !(state->flags & EK_FAR_STARTUP) && sample->delivered != state->round_delivered &&
	       state->base_us != EK_FAR_NONE && state->few;
}

/* The first segments of a connection whose path is known are acknowledged. */
EK_FN void ek_far_explore(const struct ek_far_tunables *tunables, struct ek_far *state, const struct ek_sample *sample)
{
	ek_u32 arrived = sample->delivered - state->round_delivered;

	if (sample->lost_now || sample->lost != state->round_lost)
		ek_far_forget(state);
	else if (state->base_us == EK_FAR_NONE)
		return;
	else if (arrived >= EK_FAR_TRAIN)
		ek_far_confirm(tunables, state, arrived, (ek_u32)sample->now_us - state->round_at_us);
	else if (!arrived && sample->delivered_now >= EK_FAR_AT_ONCE)
		/* All at once: acknowledgements that come together do not tell how fast the segments came. */
		ek_far_confirm(tunables, state, 0, 0);
}

/* Whether the window is the limit: at least half of it was in flight. The first segments leave at once, and their acknowledgements come
 * at once: there it counts what was in flight when the round began. */
EK_FN int ek_far_is_used(const struct ek_far *state, const struct ek_sample *sample)
{
	ek_u32 half = state->window / EK_FAR_UNIT / 2;

	return sample->was_in_flight >= half || (half < EK_FAR_FEW / 2 && state->used >= half);
}

/* An acknowledgement arrived. Returns the window in segments. */
EK_FN ek_u32 ek_far_sample(const struct ek_far_tunables *tunables, struct ek_far *state, const struct ek_sample *sample)
{
	ek_u32 now_us = (ek_u32)sample->now_us;
	int ends = sample->rtt_us && ek_far_rtt(tunables, state, sample->now_us, sample->rtt_us);

	if (sample->is_marked) {
		state->marked = 1;
		ends |= state->flags & EK_FAR_STARTUP;
	}
	if (ends) {
		if (state->flags & EK_FAR_JUMPS)
			ek_far_retreat(state, sample->delivered - state->round_delivered);
		else
			ek_far_leave_startup(state);
	}
	state->used = ek_max(state->used, sample->was_in_flight);
	if (sample->is_valid) {
		if (sample->is_app_limited)
			state->flags |= EK_FAR_LIMITED;
		if (state->flags & EK_FAR_ANEW)
			ek_far_begin(state, sample);
		else if (((int)(sample->delivered_before - state->round_delivered) >= 0 && !ek_far_is_early(state, now_us)) ||
			 ek_far_is_urgent(state, sample)) {
			if (sample->delivered != state->round_delivered && state->base_us != EK_FAR_NONE)
				ek_far_round(tunables, state, now_us - state->round_at_us,
					     sample->delivered - state->round_delivered, sample->lost - state->round_lost);
			ek_far_begin(state, sample);
		}
		if (state->flags & EK_FAR_KNOWN)
			ek_far_explore(tunables, state, sample);
	}
	if (state->flags & EK_FAR_STARTUP && ek_far_is_used(state, sample)) {
		ek_u64 grown = (ek_u64)state->window + (ek_u64)sample->delivered_now * EK_FAR_UNIT;
		ek_u32 proven = ek_far_proven(state, sample->delivered - state->round_delivered);

		state->window = ek_max(state->window, ek_far_bounded(grown < proven ? grown : proven));
		if (state->restore && state->window >= state->restore)
			ek_far_leave_startup(state);
	}
	return state->window / EK_FAR_UNIT;
}

/* What a kernel may send within so long it sends at once (tcp_tso_autosize of Linux): a shorter round trip leaves nothing to spread. */
#define EK_FAR_BURST_US 1000

/* The rate at which segments leave, in bytes per second: the window a round trip and a tenth more, in startup twice as much.
 * On a path that is known, segments leave at its rate until that is confirmed. The largest number: they are not paced. */
EK_FN ek_u64 ek_far_pace(const struct ek_far *state, ek_u32 srtt_us, ek_u32 mss)
{
	ek_u64 bytes = (ek_u64)(state->flags & EK_FAR_KNOWN ? state->own : state->window) * ek_min(mss, 1u << 16) / EK_FAR_UNIT;

	/* What arrives later than that, the path has delayed. */
	if (state->flags & EK_FAR_KNOWN)
		return bytes * 1000000 / ek_max(state->fair, 1);
	if (state->base_us < EK_FAR_BURST_US)
		return ~0ull;
	bytes = state->flags & EK_FAR_STARTUP ? bytes * 2 : bytes + bytes / 10;
	return bytes * 1000000 / ek_max(srtt_us, 1);
}

/* Something is sent after nothing was for so long. What the connection has seen itself is not trusted for longer than a least round
 * trip counts. */
EK_FN void ek_far_idle(struct ek_far *state, struct ek_window *window, ek_u64 idle_us)
{
	if (idle_us <= EK_FAR_BASE_MS * 1000ull)
		return;
	ek_far_init(state);
	window->cwnd = ek_min(window->cwnd, state->window / EK_FAR_UNIT);
}

/* A retransmission timeout: the window begins anew, and grows to what was known of the path. The losses that it marks itself do not
 * count. */
EK_FN void ek_far_timeout(struct ek_far *state)
{
	if (!(state->flags & EK_FAR_STARTUP)) {
		state->restore = ek_far_bounded(state->window / 2);
		state->fair = ek_min(state->fair, state->restore);
	}
	if (state->flags & EK_FAR_KNOWN)
		ek_far_forget(state);
	/* With EK_FAR_JUMPS: nothing is known any more. */
	if (state->flags & EK_FAR_JUMPS) {
		state->restore = 0;
		state->flags |= EK_FAR_NEWS;
	}
	state->window = EK_FAR_LEAST * EK_FAR_UNIT;
	state->flags |= EK_FAR_STARTUP | EK_FAR_ANEW;
	state->full_rate = 0;
	state->full_rounds = state->late = 0;
	state->timed_out = 1;
}

/* The timeout was none (RFC 5682). */
EK_FN void ek_far_undo(struct ek_far *state)
{
	if (!(state->flags & EK_FAR_STARTUP) || !state->restore || state->flags & EK_FAR_JUMPS)
		return;
	state->restore *= 2;
	ek_far_leave_startup(state);
}

#endif
