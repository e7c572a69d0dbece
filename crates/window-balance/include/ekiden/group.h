/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The group that streams throttle together. */
#ifndef EKIDEN_GROUP_H
#define EKIDEN_GROUP_H

#include "ekiden/stream.h"

/* An operation that another one has overtaken too often is left out, and comes again with the stream's next packet. */
#define EKB_TRIES 4

EKB_FN ekb_u64 ekb_state(const struct ekb_group *group) { return *(const volatile ekb_u64 *)&group->state; }
EKB_FN ekb_u32 ekb_stalled(ekb_u64 state) { return (ekb_u32)state; }
EKB_FN ekb_u16 ekb_throttling(ekb_u64 state) { return (ekb_u16)(state >> 32); }

/* The state of the next throttling. */
EKB_FN ekb_u64 ekb_next(ekb_u64 state)
{
	ekb_u64 number = (ekb_u16)(ekb_throttling(state) + 1);

	return (number ? number : 1) << 32; /* 0 is none */
}

EKB_FN int ekb_change(struct ekb_group *group, ekb_u64 from, ekb_u64 to)
{
	return __sync_val_compare_and_swap(&group->state, from, to) == from;
}

EKB_FN int ekb_is_stalled(ekb_u64 state, const struct ekb_stream *stream)
{
	return ekb_stalled(state) && stream->stalled_in == ekb_throttling(state);
}

/* The stream throttles the group. */
EKB_FN void ekb_stall(struct ekb_group *group, struct ekb_stream *stream, ekb_u32 index)
{
	ekb_u64 state, to;
	int i;

	for (i = 0; i < EKB_TRIES; i++) {
		state = ekb_state(group);
		if (ekb_is_stalled(state, stream))
			return;
		to = (ekb_stalled(state) ? state : ekb_next(state)) + 1;
		if (ekb_change(group, state, to)) {
			if (!ekb_stalled(state))
				*(volatile ekb_u32 *)&group->by = index;
			stream->stalled_in = ekb_throttling(to);
			return;
		}
	}
}

/* The stream does not throttle the group, or no longer. */
EKB_FN void ekb_release(struct ekb_group *group, struct ekb_stream *stream)
{
	ekb_u64 state;
	int i;

	for (i = 0; stream->stalled_in && i < EKB_TRIES; i++) {
		state = ekb_state(group);
		if (!ekb_is_stalled(state, stream) || ekb_change(group, state, state - 1))
			stream->stalled_in = 0;
	}
}

/* Throttling ends when it has lasted for too long. */
EKB_FN void ekb_expire(struct ekb_group *group, ekb_u64 now_us)
{
	ekb_u64 state = ekb_state(group);

	if (ekb_stalled(state) && now_us >= *(volatile ekb_u64 *)&group->until_us)
		ekb_change(group, state, (ekb_u64)ekb_throttling(state) << 32);
}

/* The stream ends, or a new one in its place begins. */
EKB_FN void ekb_end(struct ekb_group *group, struct ekb_stream *stream)
{
	ekb_release(group, stream);
	__builtin_memset(stream, 0, sizeof(*stream));
}

/* The slow start of the stream has overshot. */
EKB_FN void ekb_overshoot(struct ekb_group *group, struct ekb_stream *stream, ekb_u32 index, ekb_u64 now_us)
{
	ekb_u64 state = ekb_state(group);

	if (!(stream->seen & EKB_GREW_JUST) || ekb_after(stream->recover, stream->ack))
		return;
	stream->recover = stream->sent;
	if (now_us < *(volatile ekb_u64 *)&group->until_us)
		return;
	*(volatile ekb_u64 *)&group->until_us = now_us + ekb_most(2 * stream->rtt_us, EKB_APART_US);
	if (ekb_change(group, state, ekb_next(state)))
		*(volatile ekb_u32 *)&group->by = index;
}

#endif
