/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What is told of streams and groups. */
#ifndef EKIDEN_GATEWAY_TELL_H
#define EKIDEN_GATEWAY_TELL_H

#include "gateway_maps.h"

/* What an event tells of a stream. */
struct told {
	u32 kind;
	u32 group;
	u32 throttling;
	u32 limit;
	u32 rtt_us;
};

static __noinline void report(struct passing *passing, const struct told *told)
{
	struct gateway_event *event = bpf_ringbuf_reserve(&ekiden_events, sizeof(*event), 0);
	int i;

	if (!event) {
		passing->counters.lost++;
		return;
	}
	event->at_us = passing->now_ns / 1000;
	event->kind = told->kind;
	event->group = told->group;
	event->throttling = told->throttling;
	event->limit = told->limit;
	event->rtt_us = told->rtt_us;
	event->version = passing->frame.version;
	event->unused = 0;
	for (i = 0; i < 4; i++) {
		event->sender[i] = 0;
		event->receiver[i] = 0;
	}
	if (passing->frame.version == 4) {
		event->sender[0] = passing->key4.sender;
		event->receiver[0] = passing->key4.receiver;
		event->sender_port = passing->key4.sender_port;
		event->receiver_port = passing->key4.receiver_port;
	} else {
		for (i = 0; i < 4; i++) {
			event->sender[i] = passing->key6.sender[i];
			event->receiver[i] = passing->key6.receiver[i];
		}
		event->sender_port = passing->key6.sender_port;
		event->receiver_port = passing->key6.receiver_port;
	}
	bpf_ringbuf_submit(event, 0);
}

/* What there is to tell of a stream and its group. */
struct before {
	u32 throttling, stalled, limit, limited_in, is_open;
};

static __noinline void tell(struct passing *passing, const struct before *before, const struct before *after, struct told *told)
{
	told->throttling = after->throttling;
	told->limit = after->limit;
	if (after->throttling != before->throttling) {
		told->kind = GATEWAY_CONGESTION;
		report(passing, told);
	}
	if (before->stalled && !after->stalled) {
		told->kind = GATEWAY_RELEASED;
		report(passing, told);
	}
	if (after->limited_in != before->limited_in && after->limit) {
		told->kind = GATEWAY_LIMITED;
		report(passing, told);
	} else if (before->limit && !after->limit && after->is_open) {
		told->kind = GATEWAY_UNLIMITED;
		report(passing, told);
	}
	if (after->is_open != before->is_open) {
		told->kind = after->is_open ? GATEWAY_BEGUN : GATEWAY_ENDED;
		report(passing, told);
	}
}

INLINE void look(const struct gateway_group *group, const struct ekb_stream *state, struct before *into)
{
	u64 throttling = ekb_state(&group->state);

	into->throttling = ekb_throttling(throttling);
	into->stalled = ekb_stalled(throttling);
	into->limit = state->limit;
	into->limited_in = state->limited_in;
	into->is_open = ekb_is_open(state);
}

#endif
