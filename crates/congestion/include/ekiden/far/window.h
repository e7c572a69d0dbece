/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* How ekiden_far's window grows and falls. */
#ifndef EKIDEN_FAR_WINDOW_H
#define EKIDEN_FAR_WINDOW_H

#include "state.h"

EK_FN void ek_far_restart_step(struct ek_far *state)
{
	state->step = EK_FAR_UNIT;
	state->largest = 0;
	state->beyond = 0;
}

/* What the path is known for does not hold now. */
EK_FN void ek_far_forget(struct ek_far *state)
{
	state->flags &= ~EK_FAR_KNOWN;
	state->chance = state->fair = 0;
}

EK_FN void ek_far_leave_startup(struct ek_far *state)
{
	if (state->flags & EK_FAR_KNOWN)
		ek_far_forget(state);
	state->flags &= ~EK_FAR_STARTUP;
	state->hoped_us = EK_FAR_NONE;
	state->deaf = state->late = 0;
	if (state->restore) {
		/* What was known of the path holds: before a timeout, or of an earlier connection. */
		state->own = state->window = ek_far_bounded(state->restore);
		state->restore = 0;
		state->hold = 1;
		/* What an earlier connection carried may be less than there is: from there on the window grows fast while no queue is seen. */
		if (state->flags & EK_FAR_JUMPS) {
			ek_far_restart_step(state);
			state->step = state->own / 16;
			state->largest = 12;
		}
		return;
	}
	state->flags |= EK_FAR_DRAINS | EK_FAR_SEEKS;
	state->own = state->window = ek_far_bounded(state->window / 2);
	state->fair = state->own / 4;
	state->hold = 2;
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
	state->own = ek_far_bounded(ek_far_carried(state, 0) / 50 * 49);
	ek_far_restart_step(state);
}

/* There is room. */
EK_FN void ek_far_grow(const struct ek_far_tunables *tunables, struct ek_far *state, const struct ek_far_seen *seen)
{
	ek_u32 most = tunables->step_most;

	state->own = ek_far_bounded((ek_u64)state->own + state->step);
	if (seen->queue_us >= seen->target_us / 2) {
		state->largest = 0;
		return;
	}
	/* No queue after so much growth: the path carries much more than before. */
	if (state->largest >= 12)
		most *= 8;
	else if (state->largest >= 6)
		most *= 4;
	/* Beyond what the path is known to carry, a step fills no more than a part of a queue that is short. */
	if (seen->target_us == state->depth_us / 10 * 7 && state->own >= ek_far_carried(state, 0) / 100 * 98)
		most = ek_min(most, (ek_u32)(((ek_u64)seen->target_us << 16) / ek_max(state->base_us, 1)) / 32);
	most = ek_max(ek_far_part(state->own, ek_min(most, EK_ONE / 2)), EK_FAR_UNIT);
	state->step += state->step / 2;
	if (state->step >= most) {
		state->step = most;
		if (state->largest < 255)
			state->largest += 1;
	}
}

/* The window was decreased by so many, in 64ths. Whoever else is in the queue, it falls by what is no longer sent: what does not is no
 * queue, the path has become longer. Three decreases in a row must have shown that. */
EK_FN void ek_far_listen(struct ek_far *state, const struct ek_far_seen *seen, ek_u32 cut)
{
	ek_u64 fall_us = ((ek_u64)cut << (EK_FAR_RATE_SHIFT - 6)) / ek_max(state->top_rate, 1);

	state->hoped_us = EK_FAR_NONE;
	if (seen->queue_us >= 2 * seen->target_us && fall_us >= 3000 && fall_us <= 4 * (ek_u64)seen->queue_us)
		state->hoped_us = seen->queue_us - (ek_u32)(fall_us / 4);
}

/* What seemed to be a queue is the path. The window grows fast; what the path carries in a round trip is still to be seen. */
EK_FN void ek_far_lengthen(struct ek_far *state)
{
	state->base_us += state->cycle_us;
	state->base_before_us = state->base_now_us = state->base_us;
	state->hoped_us = state->cycle_us = EK_FAR_NONE;
	state->top_rate = state->top_us = 0;
	state->noise = 0;
	state->deaf = state->forced = 0;
	ek_far_restart_step(state);
	state->largest = 12;
}

/* The queue is too long, or has overflowed. */
EK_FN void ek_far_decrease(struct ek_far *state, const struct ek_far_seen *seen, int overflow)
{
	ek_u32 empty_us = ek_max(seen->target_us / 4, 1000);
	int is_stuck = state->cycle_us > empty_us;
	ek_u32 kept, before = state->own;

	if (overflow || state->hoped_us == EK_FAR_NONE || state->cycle_us == EK_FAR_NONE || state->cycle_us <= state->hoped_us)
		state->deaf = 0;
	else
		state->deaf += 1;
	if (state->deaf >= 3) {
		ek_far_lengthen(state);
		return;
	}
	state->cycle_us = EK_FAR_NONE;
	state->calm = 0;
	if (is_stuck && state->forced >= 1 && !overflow)
		state->fair = ek_max(state->fair, state->own);
	if (!is_stuck && state->own > state->fair + state->fair / 50)
		state->forced = 0;
	else if (state->forced < 3 && (is_stuck || seen->queue_us > empty_us))
		state->forced += 1;
	if (overflow) {
		state->given /= 2;
		state->depth_us = state->most_us > state->base_us + 1000 ? state->most_us - state->base_us : 1000;
		state->fair = ek_far_bounded(state->window / 2);
		state->flags &= ~EK_FAR_SEEKS;
		state->hold = 3;
		/* Some of these may have been taken for chance. */
		state->chance -= state->chance / 8;
	}
	kept = (ek_u32)(((ek_u64)state->base_us << 16) / ek_max(state->base_us + seen->queue_us, 1));
	/* Where there is no queue that could be seen, what has arrived is what the path carries. */
	if (overflow)
		kept = ek_min(kept, (ek_u32)(((ek_u64)(seen->sent - seen->lost) << 16) / ek_max(seen->sent, 1)));
	kept = ek_far_part(ek_max(kept, EK_ONE / 2), 63570 /* 0.97 */);
	/* Others halve their windows where the queue overflows. */
	if (overflow)
		kept = ek_min(kept, EK_ONE / 8 * 7);
	state->own = ek_max(ek_far_bounded(ek_far_part(state->own, kept)), state->fair / 2);
	ek_far_listen(state, seen, before - ek_min(state->own, before));
	ek_far_restart_step(state);
	if (state->own > state->fair)
		state->hold = ek_max(state->hold, 1);
}

/* Others that fill the queue have their part, and this has a Reno flow's. Whether they are still there is seen now and then: while the
 * queue stays long, they take what it gives up, and its rate falls. Then it takes that back. */
EK_FN void ek_far_compete(struct ek_far *state, ek_u32 rate, int limited)
{
	int has_all = rate >= state->top_rate / 10 * 9;
	int asks = state->late % EK_FAR_ASKS == EK_FAR_ASKS - 1;

	if (limited || (has_all && !state->forced)) {
		state->fair = ek_min(state->fair, state->own / 4);
		state->given = 0;
		return;
	}
	if (has_all && asks) {
		state->given = state->fair;
		state->fair = ek_min(state->fair, state->own / 4);
		return;
	}
	if (!state->late || state->late % EK_FAR_ASKS >= EK_FAR_ANSWERS)
		state->given = 0;
	/* Who has few segments waits for what the decrease gives. */
	if (state->forced < 2 || (state->hold && state->few))
		return;
	if (!has_all && state->given > state->fair) {
		state->fair = state->given;
		state->given = 0;
		return;
	}
	/* Its part is not known yet: it doubles, while it has less than before. */
	state->fair = ek_far_bounded((ek_u64)state->fair + (state->flags & EK_FAR_SEEKS && !has_all ? state->fair : EK_FAR_UNIT));
}

#endif
