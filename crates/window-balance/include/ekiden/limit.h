/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What a stream delivers, and what its windows are limited to. */
#ifndef EKIDEN_LIMIT_H
#define EKIDEN_LIMIT_H

#include "ekiden/group.h"

/* On a path so short, hosts that are late by a scheduler's turn need more window than the path. */
EKB_FN int ekb_is_short(const struct ekb_settings *settings, const struct ekb_stream *stream)
{
	return stream->least_us < settings->shortest_us;
}

/* By how much a round trip may be longer than the least while the queue counts as empty. */
EKB_FN ekb_u32 ekb_slack(const struct ekb_settings *settings, const struct ekb_stream *stream)
{
	return (ekb_u32)(((ekb_u64)stream->least_us * settings->slack) >> 16);
}

/* Bytes of this round. */
EKB_FN ekb_u32 ekb_since(const struct ekb_settings *settings, const struct ekb_stream *stream)
{
	return (settings->choices & EKB_OF_SENT ? stream->sent : stream->ack) - stream->round_from;
}

/* Of so many bytes in so long, those in the least round-trip time. */
EKB_FN ekb_u64 ekb_in_least(const struct ekb_settings *settings, const struct ekb_stream *stream, ekb_u64 bytes, ekb_u32 lasted)
{
	return settings->choices & EKB_DELIVERED && lasted > stream->least_us ? bytes * stream->least_us / lasted : bytes;
}

/* The flow: bytes per round trip; 0: unknown. */
EKB_FN ekb_u32 ekb_flow(const struct ekb_settings *settings, const struct ekb_stream *stream, ekb_u64 now_us)
{
	if (!stream->flow || !(stream->seen & EKB_IN_ROUND) || (stream->seen & EKB_RESENT))
		return stream->flow;
	return ekb_most((ekb_u32)ekb_in_least(settings, stream, ekb_since(settings, stream), (ekb_u32)now_us - stream->round_us), stream->flow);
}

/* A stream that has had little to send so far, or has just begun, gets room for more. */
EKB_FN ekb_u64 ekb_at_least(const struct ekb_group *group, const struct ekb_stream *stream, ekb_u64 limit)
{
	ekb_u64 share = (ekb_u64)*(const volatile ekb_u32 *)&group->fastest * stream->least_us / (1024 * EKB_SHARE);

	if (limit < EKB_INITIAL * (ekb_u32)stream->segment)
		limit = EKB_INITIAL * (ekb_u32)stream->segment;
	return limit < share ? share : limit;
}

/* The stream has delivered so much in a round trip. */
EKB_FN void ekb_compare(struct ekb_group *group, const struct ekb_stream *stream, ekb_u64 now_us)
{
	ekb_u64 rate = (ekb_u64)stream->flow * 1024 / ekb_most(stream->least_us, 1);
	ekb_u32 fastest = *(volatile ekb_u32 *)&group->fastest, since = (ekb_u32)now_us - *(volatile ekb_u32 *)&group->fastest_us;

	if (rate > 0xffffffff)
		rate = 0xffffffff;
	/* Another processor may have read the clock a little later. */
	if (rate < fastest && since + EKB_APART_US <= EKB_RECENT_US + EKB_APART_US)
		return;
	*(volatile ekb_u32 *)&group->fastest = (ekb_u32)rate;
	*(volatile ekb_u32 *)&group->fastest_us = (ekb_u32)now_us;
}

/* Whether the stream has a part in an overshoot, by what is seen of itself: its flow has grown twice of late, and a queue is on its way. One
 * that has a limit keeps that, and one whose limit did not help gets no other until its flow has grown again. */
EKB_FN int ekb_has_part(const struct ekb_settings *settings, const struct ekb_stream *stream)
{
	ekb_u32 grew = stream->seen & EKB_GREW_OF_LATE;

	return grew & (grew - 1) && stream->rtt_us > stream->least_us + ekb_slack(settings, stream) && !stream->limit &&
	       stream->doubts <= EKB_DOUBTS_MOST;
}

/* Sets the stream's window limit for the current throttling, with the stream's first packet after it began. */
EKB_FN void ekb_limit(const struct ekb_settings *settings, const struct ekb_group *group, ekb_u64 state, struct ekb_stream *stream,
		      ekb_u64 now_us)
{
	ekb_u64 limit;

	if (stream->limited_in == ekb_throttling(state) || (!ekb_stalled(state) && !(settings->choices & EKB_DELIVERED)))
		return;
	stream->limited_in = ekb_throttling(state);
	if (ekb_is_short(settings, stream)) {
		stream->limit = 0;
		return;
	}
	/* It was idle since: what it had then says nothing. */
	if (settings->choices & EKB_DELIVERED && now_us > *(const volatile ekb_u64 *)&group->until_us + settings->hold_us)
		return;
	if (settings->choices & EKB_DELIVERED && !ekb_has_part(settings, stream))
		return;
	limit = ekb_flow(settings, stream, now_us);
	if (!(settings->choices & EKB_DELIVERED))
		limit = (limit * settings->part) >> 16;
	else if (limit)
		limit = ekb_at_least(group, stream, limit);
	if (limit > EKB_LIMIT_MOST)
		limit = EKB_LIMIT_MOST;
	if (stream->flow && !limit)
		limit = 1;
	stream->limit = (ekb_u32)limit;
	stream->doubts = 0;
}

/* A round trip was long all the same, or nothing is known of it. After many of them the limit ends. */
EKB_FN void ekb_doubt(struct ekb_stream *stream)
{
	if (++stream->doubts > EKB_DOUBTS_MOST)
		stream->limit = 0;
}

/* The limit follows the path. A round trip has lasted so long. */
EKB_FN void ekb_follow(const struct ekb_settings *settings, struct ekb_stream *stream, ekb_u32 lasted)
{
	ekb_u64 slack = ekb_slack(settings, stream), limit = stream->limit;
	ekb_u64 step = (limit * settings->step) >> 16;

	if (lasted <= stream->least_us + slack) {
		limit += step ? step : 1;
		stream->doubts -= !!stream->doubts;
	} else if (lasted > stream->least_us + 2 * slack) {
		limit -= step;
	}
	stream->limit = limit > EKB_LIMIT_MOST ? 0 : (ekb_u32)limit;
	if (lasted > stream->least_us + 2 * slack)
		ekb_doubt(stream);
}

#endif
