/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What ekiden_far takes losses for: chance, a queue that has overflowed, a policer. */
#ifndef EKIDEN_FAR_LOSSES_H
#define EKIDEN_FAR_LOSSES_H

#include "state.h"

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
	/* One more may be chance that is not known yet; of few segments it is too much. */
	ek_u32 spared = state->few ? 0 : 256;

	if (seen <= expected + spared)
		return 0;
	above = seen - expected - spared;
	return above * above > 25 * expected * 256;
}

/* Whether more than half as much again is lost as by chance, and 0.8 %. */
EK_FN int ek_far_is_beyond(const struct ek_far *state, ek_u32 part)
{
	return part > state->chance + state->chance / 2 + (1u << EK_FAR_LOSS_SHIFT) / 128;
}

/* Hosts are late by less than this, in microseconds: what makes round trips longer by no more may be no queue. */
#define EK_FAR_HOST_US 1000

/* A round tells how late jitter makes the least round trip. One in which the window was no more than what the path carries tells what
 * is lost by chance: at most EK_FAR_CHANCE, and no more than before where the queue was half as long as one that overflowed, unless
 * jitter hides it. As little as hosts are late by, a 64th of a round trip and at most EK_FAR_HOST_US, is no queue, whatever has been taken
 * for an overflow: else what chance takes, once it is taken for one, is never learnt. Where the window is an eighth less than what the path
 * has carried, this connection fills no queue: then its least round trip tells, for in a short queue late hosts make the others as long as
 * one that overflows. More than half of EK_FAR_CHANCE would be many who share it. The first rounds count more. */
EK_FN void ek_far_learn(struct ek_far *state, const struct ek_far_seen *seen)
{
	ek_u32 part = ek_min(seen->part, EK_FAR_CHANCE), shift = ek_min(state->learnt + 1u, 4), late_us;
	int has_room = state->own <= ek_far_carried(state, 0) / 8 * 7 && seen->part <= EK_FAR_CHANCE / 2;
	ek_u32 queue_us = has_room ? seen->least_us : seen->most_us;
	ek_u64 carried;

	state->noise = (unsigned short)(((ek_u32)state->noise * 7 + ek_min(seen->least_us / 64, 65535u)) / 8);
	/* What is lost in the first rounds after a decrease was sent before it. */
	if (state->flags & EK_FAR_STARTUP || state->calm < 3)
		return;
	/* Jitter makes round trips longer, and so the window; a sixteenth is within what a rate is known to. */
	late_us = ek_min(state->noise * 64u, 2 * seen->swing_us) + seen->swing_us;
	carried = (ek_u64)ek_far_carried(state, 0) * (state->base_us + late_us) / ek_max(state->base_us, 1);
	if (state->own > carried / 16 * 17)
		return;
	if (part <= state->chance) {
		state->chance -= (state->chance - part) >> shift;
	} else if (queue_us <= ek_max(state->depth_us / 2, ek_min(state->base_us / 64, EK_FAR_HOST_US)) ||
		   (seen->swing_us > seen->target_us && !state->few)) {
		/* As much is lost without a queue as with one: it had not overflowed. */
		if (state->learnt < 3 && ek_far_is_beyond(state, part))
			state->depth_us = EK_FAR_NONE;
		state->chance += (part - state->chance) >> shift;
	} else {
		return;
	}
	if (state->learnt < 3)
		state->learnt += 1;
}

/* Whether so much more is lost than by chance that a policer must have dropped it. */
EK_FN int ek_far_policed(const struct ek_far *state, const struct ek_far_seen *seen)
{
	return seen->lost > 8 && seen->part > state->chance + EK_FAR_MANY;
}

/* Whether what was lost in a round says that a queue has overflowed, or a policer has dropped it. */
EK_FN int ek_far_overflows(struct ek_far *state, const struct ek_far_seen *seen)
{
	int exceeds = ek_far_exceeds(state, seen->lost, seen->sent);
	ek_u32 top_us, most_us;

	state->top_us = ek_max(state->top_us - state->top_us / 100, seen->most_us);
	/* A queue has said so itself (RFC 3168, section 6.1.2): once in a round trip, as of losses. */
	if (state->marked && !state->hold && !(state->flags & EK_FAR_STARTUP))
		return 1;
	if (state->flags & EK_FAR_STARTUP || state->hold || !exceeds || !ek_far_is_beyond(state, seen->part))
		state->beyond = 0;
	else if (state->beyond < 3)
		state->beyond += 1;
	if (state->beyond >= 2 || ek_far_policed(state, seen))
		return 1;
	top_us = state->top_us;
	most_us = seen->most_us;
	if (state->few) {
		/* Of few round trips one that was long for another reason counts for long, and the others swing. */
		top_us = ek_min(top_us, state->depth_us);
		most_us += seen->swing_us;
	}
	return exceeds && most_us > ek_max(top_us / 10 * 7, ek_max(2000, state->base_us / 32));
}

#endif
