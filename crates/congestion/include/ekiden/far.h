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
 * - Whatever the losses are taken for, the window is bounded by what the path has delivered (ek_far_proven).
 * - Jitter is what a queue seems to be where there is none: a third of the target at most. Where round trips swing by more than the
 *   target, a queue counts after three rounds.
 * - A queue that does not fall when less is sent is none: the path has become longer, and its least round trip is learnt anew.
 * - A queue that does not empty after two decreases is filled by others. From then on the window is at least what a Reno flow
 *   would have: it grows by a segment a round, and halves where the queue overflows. */
#ifndef EKIDEN_FAR_H
#define EKIDEN_FAR_H

#include "types.h"

/* Windows are kept in 64ths of a segment. */
#define EK_FAR_UNIT 64u
/* The least and the largest window, in segments. */
#define EK_FAR_LEAST 4u
#define EK_FAR_MOST (1u << 20)
/* Rates are kept in segments per 2^26 us, losses in 2^-20 of what was sent. */
#define EK_FAR_RATE_SHIFT 26
#define EK_FAR_LOSS_SHIFT 20
/* A window of this is allowed before anything has been delivered. */
#define EK_FAR_MARGIN (10 * EK_FAR_UNIT)
#define EK_FAR_NONE 0xffffffffu
/* More than this is not lost by chance: 4 %. */
#define EK_FAR_CHANCE ((1u << EK_FAR_LOSS_SHIFT) / 24)
/* So much more than by chance is lost behind a policer: a tenth. */
#define EK_FAR_MANY ((1u << EK_FAR_LOSS_SHIFT) / 10)
/* For so long the least round trip counts, and once more. */
#define EK_FAR_BASE_MS 30000u

enum ek_far_flags {
	EK_FAR_STARTUP = 1, /* the window doubles per round trip */
	EK_FAR_LIMITED = 2, /* this round the application was the limit */
	EK_FAR_DRAINS = 4, /* after the startup: the queue is being emptied */
	EK_FAR_SEEKS = 8, /* Reno's part is not known yet: it doubles */
	EK_FAR_ANEW = 16, /* the next sample begins a round, and what came before does not count */
};

struct ek_far_tunables {
	ek_u32 queue; /* the target, in 65536ths of the least round trip */
	ek_u32 queue_least_us; /* and at least this */
	ek_u32 step_most; /* the largest step, in 65536ths of the window */
};

/* What an acknowledgement tells (Linux: struct rate_sample). Counts are of segments. */
struct ek_sample {
	ek_u64 now_us;
	ek_u32 delivered; /* over the whole connection */
	ek_u32 delivered_before; /* when the newest segment that it reports was sent */
	ek_u32 delivered_now;
	ek_u32 lost; /* over the whole connection */
	ek_u32 was_in_flight; /* before it */
	ek_u32 rtt_us; /* 0: none was measured */
	ek_u32 srtt_us;
	ek_u32 mss; /* bytes */
	ek_u32 is_valid; /* 0: it reports no new segment */
	ek_u32 is_app_limited;
};

struct ek_far {
	ek_u32 base_us; /* the least round trip */
	ek_u32 base_before_us, base_now_us; /* that of the last whole 30 s, and of those under way */
	ek_u32 base_at_ms; /* when these have begun */
	ek_u32 window; /* in force */
	ek_u32 own; /* by the queue */
	ek_u32 fair; /* a Reno flow's */
	ek_u32 step;
	ek_u32 restore; /* after a timeout: startup ends at this window; 0: none */
	ek_u32 round_at_us, round_delivered, round_lost; /* when the round began */
	ek_u32 least_us, most_us; /* round trips of this round */
	ek_u32 used; /* the most in flight in this round, in segments */
	ek_u32 chance; /* what is lost by chance */
	union {
		ek_u32 full_rate; /* in startup: the rate that was the last to be a quarter more than one before */
		ek_u32 hoped_us; /* after it: a queue that is the path's own falls to this by the last decrease */
	};
	ek_u32 top_rate; /* the highest rate; forgotten in a minute */
	ek_u32 depth_us; /* of the queue where it overflowed; forgotten slowly */
	ek_u32 top_us; /* the longest queue; forgotten slowly */
	ek_u32 cycle_us; /* the shortest queue since the last decrease */
	unsigned short noise; /* what a queue seems to be where there is none, because of jitter; in 64 us */
	unsigned short swing; /* the most by which a round trip of this round was shorter than one before; in 64 us */
	ek_u8 flags;
	union {
		ek_u8 full_rounds; /* rounds of the startup without a higher rate */
		ek_u8 deaf; /* after it: decreases in a row by which the queue did not fall */
	};
	ek_u8 hold; /* rounds in which the window stays */
	ek_u8 late; /* in startup: round trips in a row beyond the target; after it: rounds */
	ek_u8 samples; /* round trips measured, up to 16 */
	ek_u8 largest; /* rounds in a row with the largest step */
	ek_u8 forced : 2; /* decreases in a row after which the queue was not empty, up to 3 */
	ek_u8 learnt : 2; /* rounds from which the chance of loss is known, up to 3 */
	ek_u8 beyond : 2; /* rounds in a row with more losses than by chance, up to 3 */
	ek_u8 calm : 2; /* rounds since the last decrease, up to 3 */
};

EK_FN ek_u32 ek_far_bounded(ek_u64 window)
{
	if (window < EK_FAR_LEAST * EK_FAR_UNIT)
		return EK_FAR_LEAST * EK_FAR_UNIT;
	return window > (ek_u64)EK_FAR_MOST * EK_FAR_UNIT ? EK_FAR_MOST * EK_FAR_UNIT : (ek_u32)window;
}

/* What the path has carried in a round trip: at the highest rate, or in this round. Losses do not count. */
EK_FN ek_u32 ek_far_carried(const struct ek_far *state, ek_u32 delivered)
{
	ek_u64 at_rate = ((ek_u64)state->top_rate * state->base_us) >> (EK_FAR_RATE_SHIFT - 6);
	ek_u64 now = (ek_u64)delivered * EK_FAR_UNIT;

	return ek_far_bounded(at_rate > now ? at_rate : now);
}

/* The bound of the window: twice what the path has carried in a round trip, in startup four times as much, and a margin. */
EK_FN ek_u32 ek_far_proven(const struct ek_far *state, ek_u32 delivered)
{
	ek_u64 carried = ek_far_carried(state, delivered);

	return ek_far_bounded(carried * (state->flags & EK_FAR_STARTUP ? 4 : 2) + EK_FAR_MARGIN);
}

EK_FN ek_u32 ek_far_part(ek_u32 whole, ek_u32 part) { return (ek_u32)(((ek_u64)whole * part) >> 16); }

EK_FN void ek_far_init(struct ek_far *state)
{
	state->base_us = state->base_before_us = state->base_now_us = EK_FAR_NONE;
	state->base_at_ms = 0;
	state->window = 10 * EK_FAR_UNIT;
	state->own = state->fair = state->restore = 0;
	state->step = EK_FAR_UNIT;
	state->round_at_us = state->round_delivered = state->round_lost = 0;
	state->least_us = EK_FAR_NONE;
	state->most_us = state->used = 0;
	state->chance = state->full_rate = state->top_rate = 0;
	state->depth_us = EK_FAR_NONE;
	state->top_us = 0;
	state->cycle_us = EK_FAR_NONE;
	state->noise = state->swing = 0;
	state->flags = EK_FAR_STARTUP | EK_FAR_SEEKS | EK_FAR_ANEW;
	state->full_rounds = state->hold = state->forced = state->late = 0;
	state->samples = state->learnt = state->beyond = state->largest = state->calm = 0;
}

/* The queue up to which the window grows. Where a shorter one overflowed, it is most of that. */
EK_FN ek_u32 ek_far_target(const struct ek_far_tunables *tunables, const struct ek_far *state)
{
	ek_u32 target = ek_max(ek_far_part(state->base_us, tunables->queue), tunables->queue_least_us);

	return ek_min(target, state->depth_us / 10 * 7);
}

EK_FN void ek_far_restart_step(struct ek_far *state)
{
	state->step = EK_FAR_UNIT;
	state->largest = 0;
	state->beyond = 0;
}

EK_FN void ek_far_leave_startup(struct ek_far *state)
{
	state->flags &= ~EK_FAR_STARTUP;
	state->hoped_us = EK_FAR_NONE;
	state->deaf = state->late = 0;
	if (state->restore) {
		/* After a timeout what was known of the path holds. */
		state->own = state->window = ek_far_bounded(state->restore);
		state->restore = 0;
		state->hold = 1;
		return;
	}
	state->flags |= EK_FAR_DRAINS | EK_FAR_SEEKS;
	state->own = state->window = ek_far_bounded(state->window / 2);
	state->fair = state->own / 4;
	state->hold = 2;
}

/* Whether round trips swing by more than the target: jitter hides a queue. */
EK_FN int ek_far_swings(const struct ek_far_tunables *tunables, const struct ek_far *state)
{
	return state->swing * 64u > ek_far_target(tunables, state);
}

/* A round-trip time was measured. */
EK_FN void ek_far_rtt(const struct ek_far_tunables *tunables, struct ek_far *state, ek_u64 now_us, ek_u32 rtt_us)
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
		return;
	if (rtt_us - state->base_us <= ek_far_target(tunables, state))
		state->late = 0;
	else if (state->late < 255)
		state->late += 1;
	/* A jitter delays a few in a row. */
	late = ek_min(ek_max(state->window / EK_FAR_UNIT / 32, 8), 64);
	if (state->samples == 16 && state->late >= late && !ek_far_swings(tunables, state))
		ek_far_leave_startup(state);
}

/* The part of `sent` that was lost, in 2^-20. */
EK_FN ek_u32 ek_far_lost(ek_u32 lost, ek_u32 sent)
{
	return (ek_u32)(((ek_u64)ek_min(lost, sent) << EK_FAR_LOSS_SHIFT) / ek_max(sent, 1));
}

/* Whether so many losses of so many segments are more than five deviations above chance. */
EK_FN int ek_far_exceeds(const struct ek_far *state, ek_u32 lost, ek_u32 sent)
{
	/* In 256ths. */
	ek_u64 expected = ((ek_u64)sent * state->chance) >> (EK_FAR_LOSS_SHIFT - 8);
	ek_u64 seen = (ek_u64)ek_min(lost, 1u << 20) << 8, above;

	if (seen <= expected + 256)
		return 0;
	above = seen - expected - 256;
	return above * above > 25 * expected * 256;
}

/* Whether more than half as much again is lost as by chance, and 0.8 %. */
EK_FN int ek_far_is_beyond(const struct ek_far *state, ek_u32 part)
{
	return part > state->chance + state->chance / 2 + (1u << EK_FAR_LOSS_SHIFT) / 128;
}

/* A round tells how late jitter makes the least round trip. One in which the window was no more than what the path carries tells what
 * is lost by chance: at most EK_FAR_CHANCE, and no more than before where the queue was half as long as it can be, unless jitter hides
 * it. The first rounds count more. */
EK_FN void ek_far_learn(struct ek_far *state, ek_u32 lost, ek_u32 sent, ek_u32 seen_us, ek_u32 most_us, ek_u32 swing_us,
			ek_u32 target_us)
{
	ek_u32 late_us;
	ek_u64 carried;
	ek_u32 seen = ek_min(ek_far_lost(lost, sent), EK_FAR_CHANCE), shift = ek_min(state->learnt + 1u, 4);

	state->noise = (unsigned short)(((ek_u32)state->noise * 7 + ek_min(seen_us / 64, 65535u)) / 8);
	/* What is lost in the first rounds after a decrease was sent before it. */
	if (state->flags & EK_FAR_STARTUP || state->calm < 3)
		return;
	/* Round trips are longer by jitter, and the window is. */
	late_us = ek_min(state->noise * 64u, 2 * swing_us) + swing_us;
	carried = (ek_u64)ek_far_carried(state, 0) * (state->base_us + late_us) / ek_max(state->base_us, 1);
	if (state->own > carried / 16 * 17)
		return;
	if (seen <= state->chance)
		state->chance -= (state->chance - seen) >> shift;
	else if (most_us <= state->depth_us / 2 || swing_us > target_us) {
		/* As much is lost without a queue as with one: it had not overflowed. */
		if (state->learnt < 3 && ek_far_is_beyond(state, seen))
			state->depth_us = EK_FAR_NONE;
		state->chance += (seen - state->chance) >> shift;
	} else {
		return;
	}
	if (state->learnt < 3)
		state->learnt += 1;
}

/* The queue of a round, without what jitter makes of it: at most a third of the target. */
EK_FN ek_u32 ek_far_queue(const struct ek_far_tunables *tunables, const struct ek_far *state, ek_u32 seen_us, ek_u32 target_us)
{
	ek_u32 noise_us = ek_min(state->noise * 64u, target_us / 3);

	/* No short queue is taken for noise. */
	if (target_us < tunables->queue_least_us)
		return seen_us;
	return seen_us > noise_us ? seen_us - noise_us : 0;
}

/* The window was decreased by so many, in 64ths. Whoever else is in the queue, it falls by what is no longer sent: what does not is no
 * queue, the path has become longer. Three decreases in a row must have shown that. */
EK_FN void ek_far_listen(struct ek_far *state, ek_u32 queue_us, ek_u32 target_us, ek_u32 cut)
{
	ek_u64 fall_us = ((ek_u64)cut << (EK_FAR_RATE_SHIFT - 6)) / ek_max(state->top_rate, 1);

	state->hoped_us = EK_FAR_NONE;
	if (queue_us >= 2 * target_us && fall_us >= 3000 && fall_us <= 4 * (ek_u64)queue_us)
		state->hoped_us = queue_us - (ek_u32)(fall_us / 4);
}

/* What seemed to be a queue is the path. The window grows fast; what the path carries in a round trip is still to be seen. */
EK_FN void ek_far_lengthen(struct ek_far *state)
{
	state->base_us += state->cycle_us;
	state->base_before_us = state->base_now_us = state->base_us;
	state->hoped_us = state->cycle_us = EK_FAR_NONE;
	state->top_rate = 0;
	state->noise = 0;
	state->deaf = state->forced = 0;
	ek_far_restart_step(state);
	state->largest = 12;
}

/* The queue is too long, or has overflowed. `arrived` is the part of what was sent that has come, in 65536ths. */
EK_FN void ek_far_decrease(const struct ek_far_tunables *tunables, struct ek_far *state, ek_u32 queue_us, int overflow,
			   ek_u32 arrived)
{
	ek_u32 empty_us = ek_max(ek_far_target(tunables, state) / 4, 1000);
	int is_stuck = state->cycle_us > empty_us;
	ek_u32 kept, before = state->own;

	if (state->hoped_us != EK_FAR_NONE && state->cycle_us != EK_FAR_NONE) {
		state->deaf = state->cycle_us > state->hoped_us && !overflow ? state->deaf + 1 : 0;
		if (state->deaf >= 3) {
			ek_far_lengthen(state);
			return;
		}
	}
	state->cycle_us = EK_FAR_NONE;
	state->calm = 0;
	if (is_stuck && state->forced >= 1 && !overflow)
		state->fair = ek_max(state->fair, state->own);
	if (!is_stuck && state->own > state->fair + state->fair / 50)
		state->forced = 0;
	else if (state->forced < 3)
		state->forced += 1;
	if (overflow) {
		state->depth_us = state->most_us > state->base_us + 1000 ? state->most_us - state->base_us : 1000;
		state->fair = ek_far_bounded(state->window / 2);
		state->flags &= ~EK_FAR_SEEKS;
		state->hold = 3;
		/* Some of these may have been taken for chance. */
		state->chance -= state->chance / 8;
	}
	kept = (ek_u32)(((ek_u64)state->base_us << 16) / ek_max(state->base_us + queue_us, 1));
	/* Where there is no queue that could be seen, what has arrived is what the path carries. */
	if (overflow)
		kept = ek_min(kept, arrived);
	kept = ek_far_part(ek_max(kept, EK_ONE / 2), 63570 /* 0.97 */);
	/* Others halve their windows where the queue overflows. */
	if (overflow)
		kept = ek_min(kept, EK_ONE / 8 * 7);
	state->own = ek_max(ek_far_bounded(ek_far_part(state->own, kept)), state->fair / 2);
	ek_far_listen(state, queue_us, ek_far_target(tunables, state), before - ek_min(state->own, before));
	ek_far_restart_step(state);
	if (state->own > state->fair)
		state->hold = ek_max(state->hold, 1);
}

/* There is room. */
EK_FN void ek_far_grow(const struct ek_far_tunables *tunables, struct ek_far *state, ek_u32 queue_us, ek_u32 target_us)
{
	ek_u32 most = tunables->step_most;

	state->own = ek_far_bounded((ek_u64)state->own + state->step);
	if (queue_us >= target_us / 2) {
		state->largest = 0;
		return;
	}
	/* No queue after so much growth: the path carries much more than before. */
	if (state->largest >= 12)
		most *= 8;
	else if (state->largest >= 6)
		most *= 4;
	/* Beyond what the path is known to carry, a step fills no more than a part of a queue that is short. */
	if (target_us == state->depth_us / 10 * 7 && state->own >= ek_far_carried(state, 0) / 100 * 98)
		most = ek_min(most, (ek_u32)(((ek_u64)target_us << 16) / ek_max(state->base_us, 1)) / 32);
	most = ek_max(ek_far_part(state->own, ek_min(most, EK_ONE / 2)), EK_FAR_UNIT);
	state->step += state->step / 2;
	if (state->step >= most) {
		state->step = most;
		if (state->largest < 255)
			state->largest += 1;
	}
}

/* Whether so much more is lost than by chance that a policer must have dropped it. */
EK_FN int ek_far_policed(const struct ek_far *state, ek_u32 lost, ek_u32 part)
{
	return lost > 8 && part > state->chance + EK_FAR_MANY;
}

/* Whether what was lost in a round says that a queue has overflowed, or a policer has dropped it. */
EK_FN int ek_far_overflows(struct ek_far *state, ek_u32 lost, ek_u32 sent, ek_u32 most_us)
{
	ek_u32 part = ek_far_lost(lost, sent);

	state->top_us = ek_max(state->top_us - state->top_us / 100, most_us);
	if (state->flags & EK_FAR_STARTUP || state->hold || !ek_far_exceeds(state, lost, sent) ||
	    !ek_far_is_beyond(state, part))
		state->beyond = 0;
	else if (state->beyond < 3)
		state->beyond += 1;
	if (state->beyond >= 2 || ek_far_policed(state, lost, part))
		return 1;
	return ek_far_exceeds(state, lost, sent) &&
	       most_us > ek_max(state->top_us / 10 * 7, ek_max(2000, state->base_us / 32));
}

/* A round of the startup is over. */
EK_FN void ek_far_double(struct ek_far *state, ek_u32 rate, int limited, int is_full)
{
	if (rate >= state->full_rate + state->full_rate / 4) {
		state->full_rate = rate;
		state->full_rounds = 0;
	} else if (!limited && state->full_rounds < 255) {
		state->full_rounds += 1;
	}
	if (is_full || state->full_rounds >= 3)
		ek_far_leave_startup(state);
}

/* A round in which the window stays is over. */
EK_FN void ek_far_wait(struct ek_far *state)
{
	state->hold -= 1;
	if (state->hold || !(state->flags & EK_FAR_DRAINS))
		return;
	state->flags &= ~EK_FAR_DRAINS;
	state->own = ek_far_bounded((((ek_u64)state->top_rate * state->base_us) >> (EK_FAR_RATE_SHIFT - 6)) / 50 * 49);
	ek_far_restart_step(state);
}

/* A round trip is over. */
EK_FN void ek_far_round(const struct ek_far_tunables *tunables, struct ek_far *state, ek_u32 span_us, ek_u32 delivered,
			ek_u32 lost)
{
	ek_u32 sent = delivered + lost, target_us = ek_far_target(tunables, state), part = ek_far_lost(lost, sent);
	ek_u32 seen_us = state->least_us == EK_FAR_NONE || state->least_us < state->base_us ? 0 : state->least_us - state->base_us;
	/* What round trips swing by is no queue, unless that is short. */
	ek_u32 swing_us = target_us < tunables->queue_least_us ? 0 : ek_min(state->swing * 64u, state->most_us);
	ek_u32 most_us = state->most_us - swing_us > state->base_us ? state->most_us - swing_us - state->base_us : 0;
	ek_u32 queue_us = ek_far_queue(tunables, state, seen_us, target_us);
	ek_u64 exact = ((ek_u64)delivered << EK_FAR_RATE_SHIFT) / ek_max(span_us, state->base_us);
	ek_u32 rate = exact < EK_FAR_NONE ? (ek_u32)exact : EK_FAR_NONE;
	ek_u32 proven, faded = (ek_u32)(((ek_u64)state->top_rate * ek_min(span_us, 60000000)) / 60000000);
	int limited = state->flags & EK_FAR_LIMITED || state->used < state->window / EK_FAR_UNIT / 4 * 3;
	int is_long = 0, overflow = ek_far_overflows(state, lost, sent, most_us);

	state->top_rate = ek_max(state->top_rate - faded, rate);
	if (!(state->flags & EK_FAR_STARTUP)) {
		state->late = queue_us > target_us ? ek_min(state->late + 1u, 255) : 0;
		/* Jitter makes a round look late, and seldom three in a row. */
		is_long = state->late > (ek_far_swings(tunables, state) ? 2 : 0);
	}
	if (state->calm < 3)
		state->calm += 1;
	if (queue_us < target_us && !overflow && !state->hold)
		ek_far_learn(state, lost, sent, seen_us, most_us, swing_us, target_us);
	if (!state->hold)
		state->cycle_us = ek_min(state->cycle_us, queue_us);

	if (state->flags & EK_FAR_STARTUP)
		ek_far_double(state, rate, limited,
			      (queue_us > target_us && !ek_far_swings(tunables, state)) || ek_far_policed(state, lost, part));
	else if (state->hold)
		ek_far_wait(state);
	else if (is_long || overflow)
		ek_far_decrease(tunables, state, queue_us, overflow,
				(ek_u32)(((ek_u64)delivered << 16) / ek_max(sent, 1)));
	else if (!limited && !state->late)
		ek_far_grow(tunables, state, queue_us, target_us);

	if (state->depth_us < 1u << 30)
		state->depth_us += state->depth_us / 512 + 1;
	if (rate >= state->top_rate / 10 * 9 || limited)
		state->fair = ek_min(state->fair, state->own / 4);
	else if (state->forced >= 2)
		state->fair = ek_far_bounded((ek_u64)state->fair + (state->flags & EK_FAR_SEEKS ? state->fair : EK_FAR_UNIT));
	if (state->flags & EK_FAR_STARTUP)
		return;
	proven = ek_far_proven(state, delivered);
	state->own = ek_min(state->own, proven);
	state->fair = ek_min(state->fair, proven);
	state->window = ek_max(state->own, state->fair);
}

/* A round trip begins. */
EK_FN void ek_far_begin(struct ek_far *state, const struct ek_sample *sample)
{
	state->round_at_us = (ek_u32)sample->now_us;
	state->round_delivered = sample->delivered;
	state->round_lost = sample->lost;
	state->least_us = EK_FAR_NONE;
	state->most_us = state->used = 0;
	state->swing = 0;
	state->flags &= ~(EK_FAR_LIMITED | EK_FAR_ANEW);
}

/* Whether a round would be shorter than any round trip: where what is sent again was not lost, the first ends it. */
EK_FN int ek_far_is_early(const struct ek_far *state, ek_u32 now_us)
{
	ek_u32 span_us = now_us - state->round_at_us;

	return !span_us || (state->base_us != EK_FAR_NONE && span_us < state->base_us / 8 * 7);
}

/* An acknowledgement arrived. Returns the window in segments. */
EK_FN ek_u32 ek_far_sample(const struct ek_far_tunables *tunables, struct ek_far *state, const struct ek_sample *sample)
{
	ek_u32 now_us = (ek_u32)sample->now_us;

	if (sample->rtt_us)
		ek_far_rtt(tunables, state, sample->now_us, sample->rtt_us);
	state->used = ek_max(state->used, sample->was_in_flight);
	if (sample->is_valid) {
		if (sample->is_app_limited)
			state->flags |= EK_FAR_LIMITED;
		if (state->flags & EK_FAR_ANEW)
			ek_far_begin(state, sample);
		else if ((int)(sample->delivered_before - state->round_delivered) >= 0 && !ek_far_is_early(state, now_us)) {
			if (sample->delivered != state->round_delivered && state->base_us != EK_FAR_NONE)
				ek_far_round(tunables, state, now_us - state->round_at_us,
					     sample->delivered - state->round_delivered, sample->lost - state->round_lost);
			ek_far_begin(state, sample);
		}
	}
	if (state->flags & EK_FAR_STARTUP && sample->was_in_flight >= state->window / EK_FAR_UNIT / 2) {
		ek_u64 grown = (ek_u64)state->window + (ek_u64)sample->delivered_now * EK_FAR_UNIT;
		ek_u32 proven = ek_far_proven(state, sample->delivered - state->round_delivered);

		state->window = ek_max(state->window, ek_far_bounded(grown < proven ? grown : proven));
		if (state->restore && state->window >= state->restore)
			ek_far_leave_startup(state);
	}
	return state->window / EK_FAR_UNIT;
}

/* The rate at which segments leave, in bytes per second: the window a round trip and a tenth more, in startup twice as much. */
EK_FN ek_u64 ek_far_pace(const struct ek_far *state, ek_u32 srtt_us, ek_u32 mss)
{
	ek_u64 bytes = (ek_u64)state->window * ek_min(mss, 1u << 16) / EK_FAR_UNIT;

	bytes = state->flags & EK_FAR_STARTUP ? bytes * 2 : bytes + bytes / 10;
	return bytes * 1000000 / ek_max(srtt_us, 1);
}

/* A retransmission timeout: the window begins anew, and grows to what was known of the path. The losses that it marks itself do not
 * count. */
EK_FN void ek_far_timeout(struct ek_far *state)
{
	if (!state->restore && !(state->flags & EK_FAR_STARTUP))
		state->restore = ek_far_bounded(state->own / 2);
	state->window = EK_FAR_LEAST * EK_FAR_UNIT;
	state->flags |= EK_FAR_STARTUP | EK_FAR_ANEW;
	state->full_rate = 0;
	state->full_rounds = state->late = 0;
}

/* The timeout was none (RFC 5682). */
EK_FN void ek_far_undo(struct ek_far *state)
{
	if (!state->restore)
		return;
	state->restore *= 2;
	ek_far_leave_startup(state);
}

#endif
