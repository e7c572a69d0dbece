/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What ekiden_far keeps of a connection, and what it is told. */
#ifndef EKIDEN_FAR_STATE_H
#define EKIDEN_FAR_STATE_H

#include "../types.h"

/* Windows are kept in 64ths of a segment. */
#define EK_FAR_UNIT 64u
/* The least and the largest window, in segments. */
#define EK_FAR_LEAST 4u
#define EK_FAR_MOST (1u << 20)
/* Fewer segments in a round trip are few: there Reno carries what there is in spite of chance. */
#define EK_FAR_FEW 32u
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
/* After so many rounds with a long queue it is seen whether others fill it. */
#define EK_FAR_ASKS 32u
/* The answer comes within so many. */
#define EK_FAR_ANSWERS 6u
/* For so long the least round trip counts, and once more. */
#define EK_FAR_BASE_MS 30000u

enum ek_far_flags {
	EK_FAR_STARTUP = 1, /* the window doubles per round trip */
	EK_FAR_LIMITED = 2, /* this round the application was the limit */
	EK_FAR_DRAINS = 4, /* after the startup: the queue is being emptied */
	EK_FAR_SEEKS = 8, /* Reno's part is not known yet: it doubles */
	EK_FAR_ANEW = 16, /* the next sample begins a round, and what came before does not count */
	EK_FAR_KNOWN = 32, /* in startup: what the path carried before is in `own`, `fair` and `chance`, and not confirmed yet */
	EK_FAR_JUMPS = 64, /* the window has jumped to half of that, and half of the jump has not been acknowledged yet */
	EK_FAR_NEWS = 128, /* there is something to remember of the path */
};

struct ek_far_tunables {
	ek_u32 queue; /* the target, in 65536ths of the least round trip */
	ek_u32 queue_least_us; /* and at least this */
	ek_u32 step_most; /* the largest step, in 65536ths of the window */
	ek_u32 remember_s; /* for so long what a path carried counts for new connections; 0: never */
};

/* What an acknowledgement tells (Linux: struct rate_sample). Counts are of segments. */
struct ek_sample {
	ek_u64 now_us;
	ek_u32 delivered; /* over the whole connection */
	ek_u32 delivered_before; /* when the newest segment that it reports was sent */
	ek_u32 delivered_now;
	ek_u32 lost; /* over the whole connection */
	ek_u32 lost_now; /* found by it */
	ek_u32 was_in_flight; /* before it */
	ek_u32 rtt_us; /* 0: none was measured */
	ek_u32 srtt_us;
	ek_u32 mss; /* bytes */
	ek_u32 is_valid; /* 0: it reports no new segment */
	ek_u32 is_app_limited;
	ek_u32 is_marked; /* packets of it, or of the round trip before, were marked on the way (ECN, RFC 3168) */
};

struct ek_far {
	ek_u32 base_us; /* the least round trip */
	ek_u32 base_before_us, base_now_us; /* that of the last whole 30 s, and of those under way */
	ek_u32 base_at_ms; /* when these have begun */
	ek_u32 window; /* in force */
	ek_u32 own; /* by the queue; with EK_FAR_KNOWN, what the path carried in a round trip */
	ek_u32 fair; /* a Reno flow's; with EK_FAR_KNOWN, the least round trip of then */
	ek_u32 step;
	union {
		ek_u32 restore; /* startup ends at this window, which was known before a timeout or of an earlier connection; 0: none */
		ek_u32 given; /* after it: a Reno flow's window, given up to see whether others want it; 0: none */
	};
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
	ek_u8 hold : 7; /* rounds in which the window stays */
	ek_u8 few : 1; /* few segments are all that the path carries in a round trip, and all that the window has */
	ek_u8 late; /* in startup: round trips in a row beyond the target; after it: rounds */
	ek_u8 samples : 5; /* round trips measured, up to 16 */
	ek_u8 timed_out : 1; /* there was a retransmission timeout */
	ek_u8 tried : 1; /* what is known of the path was, or is being, confirmed */
	ek_u8 marked : 1; /* packets of this round were marked on the way */
	ek_u8 largest; /* rounds in a row with the largest step */
	ek_u8 forced : 2; /* decreases in a row after which the queue was not empty, up to 3 */
	ek_u8 learnt : 2; /* rounds from which the chance of loss is known, up to 3 */
	ek_u8 beyond : 2; /* rounds in a row with more losses than by chance, up to 3 */
	ek_u8 calm : 2; /* rounds since the last decrease, up to 3 */
};

/* What a round has shown. Queues are round trips beyond the least of the path, in us. */
struct ek_far_seen {
	ek_u32 sent, lost; /* segments */
	ek_u32 part; /* what was lost of them, in 2^-20 */
	ek_u32 target_us; /* the queue up to which the window grows */
	ek_u32 least_us; /* the shortest queue */
	ek_u32 queue_us; /* the same, without what jitter makes of it */
	ek_u32 most_us; /* the longest, without what round trips swing by */
	ek_u32 swing_us;
	int is_hidden; /* round trips swing by more than the target: jitter hides a queue */
};

EK_FN ek_u32 ek_far_bounded(ek_u64 window)
{
	if (window < EK_FAR_LEAST * EK_FAR_UNIT)
		return EK_FAR_LEAST * EK_FAR_UNIT;
	return window > (ek_u64)EK_FAR_MOST * EK_FAR_UNIT ? EK_FAR_MOST * EK_FAR_UNIT : (ek_u32)window;
}

EK_FN ek_u32 ek_far_part(ek_u32 whole, ek_u32 part) { return (ek_u32)(((ek_u64)whole * part) >> 16); }

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

/* The queue up to which the window grows. Where a shorter one overflowed, it is most of that. */
EK_FN ek_u32 ek_far_target(const struct ek_far_tunables *tunables, const struct ek_far *state)
{
	ek_u32 target = ek_max(ek_far_part(state->base_us, tunables->queue), tunables->queue_least_us);
	/* One segment more makes the queue longer by so much: of few, it may be what overflows it. */
	ek_u32 segment_us = state->base_us / ek_max(state->own / EK_FAR_UNIT, 1);

	if (state->few && state->depth_us != EK_FAR_NONE)
		target = ek_min(target, ek_max(state->depth_us - ek_min(segment_us, state->depth_us), segment_us / 2));
	return ek_min(target, state->depth_us / 10 * 7);
}

/* What a trace tells of a connection: its model of the path, and the windows that follow from it. */
enum ek_far_phase {
	EK_FAR_PHASE_STARTUP = 0, /* the window doubles per round trip */
	EK_FAR_PHASE_KNOWN = 1, /* in startup: the path is known, and the first segments are to confirm it */
	EK_FAR_PHASE_JUMP = 2, /* the window has jumped, and half of the jump has not been acknowledged yet */
	EK_FAR_PHASE_ALONE = 3, /* the queue that it sees decides */
	EK_FAR_PHASE_SHARES = 4, /* others fill the queue: a Reno flow's window */
};

struct ek_far_model {
	ek_u32 base_us; /* the least round trip; 0: none yet */
	ek_u32 queue_us; /* the shortest queue of this round so far */
	ek_u32 carried; /* what the path has carried in a round trip, in segments */
	ek_u32 own, fair; /* windows by the queue and of a Reno flow, in segments; 0 in startup */
	ek_u32 chance; /* what is lost by chance, in 2^-20 of what was sent */
};

EK_FN ek_u32 ek_far_phase(const struct ek_far *state)
{
	if (state->flags & EK_FAR_KNOWN)
		return EK_FAR_PHASE_KNOWN;
	if (state->flags & EK_FAR_STARTUP)
		return state->flags & EK_FAR_JUMPS && !(state->flags & EK_FAR_NEWS) ? EK_FAR_PHASE_JUMP : EK_FAR_PHASE_STARTUP;
	return state->fair >= state->own ? EK_FAR_PHASE_SHARES : EK_FAR_PHASE_ALONE;
}

EK_FN void ek_far_model(const struct ek_far *state, struct ek_far_model *model)
{
	int starts = state->flags & EK_FAR_STARTUP;

	model->base_us = state->base_us == EK_FAR_NONE ? 0 : state->base_us;
	model->queue_us = state->least_us == EK_FAR_NONE || state->least_us < model->base_us ? 0 : state->least_us - model->base_us;
	model->carried = state->base_us == EK_FAR_NONE ? 0 : ek_far_carried(state, 0) / EK_FAR_UNIT;
	model->own = starts ? 0 : state->own / EK_FAR_UNIT;
	model->fair = starts ? 0 : state->fair / EK_FAR_UNIT;
	model->chance = state->flags & EK_FAR_KNOWN ? 0 : state->chance;
}

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
	state->timed_out = state->tried = state->marked = state->few = 0;
	state->samples = state->learnt = state->beyond = state->largest = state->calm = 0;
}

#endif
