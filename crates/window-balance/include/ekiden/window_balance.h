/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Keeping parallel TCP streams in balance from a gateway at the entrance of the wide area network: Sugawara, Inaba, Hiraki,
 * "Balancing Window Size of Parallel TCP Streams using Gateway", section 3.
 *
 * The gateway stands near the senders of a group of streams and sees both directions of each. When the receiver of any
 * stream repeats one ACK number `repeats` times, congestion has begun. The gateway then throttles the group: it lowers the
 * receive window in the ACKs of every stream to `part` of the flow observed just before, so that no stream sends on into the
 * full queue. Throttling ends when the ACK number of every stream that repeated it so often advances, or the stream ends.
 * The gateway drops, delays and marks no packet.
 *
 * Decisions that the paper leaves open:
 *
 * A repetition is a duplicate acknowledgement as in RFC 5681, section 2: data is outstanding, the ACK number is the largest
 * so far, and the packet has neither payload nor SYN, FIN, RST. Unlike in the RFC, its window may differ
 * from the last one's: receivers adjust their window while they hold data behind a gap, and senders with SACK accept that. An
 * ACK with a window of 0 is no repetition: it answers a zero-window probe. The first ACK with a number does not count.
 *
 * The flow is the bytes acknowledged during one round trip, so it compares with a window. It is what the path delivered. With
 * `of_sent` it is the new data that the sender sent during one round trip, which in slow start is twice as much. A round begins
 * with a data segment that passes and ends with the ACK that covers it, so it lasts one round trip between gateway and receiver
 * and needs no timer. After a retransmission within the round, which then lasts longer while the ACK number jumps, the bytes are
 * scaled to the length of the last round without one. "Just before" is the last complete round when throttling began, or the
 * bytes since then if they are more: in slow start each round has twice the bytes of the last. A stream keeps its first limit
 * while the group is throttled.
 *
 * A window is never raised, and never lowered below the largest segment seen, which a sender needs to go on. Streams keep
 * their window if their window scale (RFC 7323) is unknown, because the gateway did not see their SYNs, or if their flow is
 * unknown, because no round was complete. They can still cause throttling.
 *
 * A stream ends with RST, or when the sender's FIN is acknowledged: until then lost segments are still sent again. If the
 * streams that cause throttling fall silent without ending, throttling ends after `idle_us`.
 *
 * The state of a stream and of the group are separate structures, and no function iterates over streams. */
#ifndef EKIDEN_WINDOW_BALANCE_H
#define EKIDEN_WINDOW_BALANCE_H

typedef unsigned char ekb_u8;
typedef unsigned short ekb_u16;
typedef unsigned int ekb_u32;
typedef int ekb_s32;
typedef unsigned long long ekb_u64;

#define EKB_FN static inline __attribute__((always_inline))

/* Bits of the TCP header's flags. */
#define EKB_FIN 0x01
#define EKB_SYN 0x02
#define EKB_RST 0x04
#define EKB_ACK 0x10

#define EKB_SCALE_MOST 14 /* RFC 7323, section 2.3 */

enum ekb_direction {
	EKB_DATA = 0, /* from the sender into the wide area network */
	EKB_ACKS = 1, /* back from the receiver */
};

struct ekb_settings {
	ekb_u32 repeats; /* of one ACK number that throttle the group; at least 1 */
	ekb_u32 part; /* of the flow that is left, in 65536ths */
	ekb_u64 idle_us; /* silence of the streams that cause throttling after which it ends */
	ekb_u32 of_sent; /* 1: the flow is the data that passes; 0: what is acknowledged */
};

/* A packet of one of the group's streams. */
struct ekb_packet {
	ekb_u64 time_us; /* when it passes; of any clock that runs on */
	ekb_u32 seq, ack;
	ekb_u32 length; /* payload bytes */
	ekb_s32 scale; /* the window scale option's shift; -1 without one. Only a SYN has it */
	ekb_u16 window; /* as in the header */
	ekb_u8 flags; /* EKB_FIN … */
	ekb_u8 direction; /* enum ekb_direction */
};

struct ekb_group {
	ekb_u64 until_us; /* when throttling ends if the streams that cause it stay silent */
	ekb_u32 throttling; /* number of the current or last throttling, from 1 */
	ekb_u32 stalled; /* streams that cause throttling; 0: the group is not throttled */
	ekb_u32 by; /* the stream that caused it first */
};

enum ekb_seen {
	EKB_SEEN = 1 << 0, /* `ack` and `sent` are known */
	EKB_SCALE_KNOWN = 1 << 1,
	EKB_DATA_SYN = 1 << 2, /* the sender's SYN has passed */
	EKB_DATA_SCALES = 1 << 3, /* and it had a window scale option */
	EKB_ACKS_SYN = 1 << 4, /* the receiver's SYN has passed */
	EKB_ACKS_SCALES = 1 << 5,
	EKB_FIN_SENT = 1 << 6,
	EKB_IN_ROUND = 1 << 7,
	EKB_RESENT = 1 << 8, /* something was retransmitted in this round */
};

/* All zero: nothing is known. Sequence numbers wrap. */
struct ekb_stream {
	ekb_u64 round_us; /* when the round began */
	ekb_u32 round_ack; /* the ACK number then */
	ekb_u32 round_sent; /* where the data that had passed ended then */
	ekb_u32 round_end; /* the ACK number that ends it */
	ekb_u32 rtt_us; /* of the last round without retransmission; 0: there was none */
	ekb_u32 flow; /* bytes of the last round; 0: there was none with data */
	ekb_u32 ack; /* the largest from the receiver */
	ekb_u32 sent; /* behind the last byte that passed */
	ekb_u32 fin; /* behind the sender's FIN */
	ekb_u32 repeats; /* of `ack` */
	ekb_u32 segment; /* largest payload seen */
	ekb_u32 stalled_in; /* the number of the throttling that it causes, or helps to */
	ekb_u32 limited_in; /* the number of the throttling that `limit` is for */
	ekb_u32 limit; /* bytes of window while throttled; 0: unknown */
	ekb_u32 seen; /* enum ekb_seen */
	ekb_u32 scale; /* of the receiver's windows */
};

/* Whether sequence number a lies behind b. */
EKB_FN int ekb_after(ekb_u32 a, ekb_u32 b) { return (ekb_s32)(a - b) > 0; }

EKB_FN int ekb_is_stalled(const struct ekb_group *group, const struct ekb_stream *stream)
{
	return group->stalled && stream->stalled_in == group->throttling;
}

EKB_FN void ekb_stall(struct ekb_group *group, struct ekb_stream *stream, ekb_u32 index)
{
	if (!group->stalled) {
		group->throttling += 1;
		if (!group->throttling) /* 0 is none */
			group->throttling = 1;
		group->by = index;
	}
	group->stalled += 1;
	stream->stalled_in = group->throttling;
}

EKB_FN void ekb_release(struct ekb_group *group, struct ekb_stream *stream)
{
	if (ekb_is_stalled(group, stream))
		group->stalled -= 1;
	stream->stalled_in = 0;
}

/* The stream ends, or a new one with its index begins. */
EKB_FN void ekb_end(struct ekb_group *group, struct ekb_stream *stream)
{
	ekb_release(group, stream);
	__builtin_memset(stream, 0, sizeof(*stream));
}

/* Bytes of this round. */
EKB_FN ekb_u32 ekb_since(const struct ekb_settings *settings, const struct ekb_stream *stream)
{
	return settings->of_sent ? stream->sent - stream->round_sent : stream->ack - stream->round_ack;
}

/* The flow: bytes per round trip; 0: unknown. */
EKB_FN ekb_u32 ekb_flow(const struct ekb_settings *settings, const struct ekb_stream *stream)
{
	ekb_u32 since;

	if (!stream->flow || !(stream->seen & EKB_IN_ROUND) || (stream->seen & EKB_RESENT))
		return stream->flow;
	since = ekb_since(settings, stream);
	return since > stream->flow ? since : stream->flow;
}

/* Sets the stream's window limit for the current throttling, with the stream's first packet after it began. */
EKB_FN void ekb_limit(const struct ekb_settings *settings, const struct ekb_group *group, struct ekb_stream *stream)
{
	ekb_u64 limit;

	if (!group->stalled || stream->limited_in == group->throttling)
		return;
	stream->limited_in = group->throttling;
	limit = ((ekb_u64)ekb_flow(settings, stream) * settings->part) >> 16;
	if (limit > 0xffffffffu)
		limit = 0xffffffffu;
	if (stream->flow && !limit)
		limit = 1;
	stream->limit = (ekb_u32)limit;
}

/* Windows are scaled if both SYNs have the option (RFC 7323, section 2.2). A SYN-ACK has it only if the SYN had it. */
EKB_FN void ekb_learn_scale(struct ekb_stream *stream, const struct ekb_packet *packet)
{
	ekb_u32 both = EKB_DATA_SYN | EKB_ACKS_SYN, scales = EKB_DATA_SCALES | EKB_ACKS_SCALES;

	if (packet->direction == EKB_DATA) {
		stream->seen |= EKB_DATA_SYN;
		if (packet->scale >= 0)
			stream->seen |= EKB_DATA_SCALES;
		else
			stream->seen &= ~(ekb_u32)EKB_DATA_SCALES;
	} else {
		stream->seen |= EKB_ACKS_SYN;
		if (packet->scale >= 0) {
			stream->seen |= EKB_ACKS_SCALES;
			stream->scale = packet->scale > EKB_SCALE_MOST ? EKB_SCALE_MOST : (ekb_u32)packet->scale;
		} else {
			stream->seen &= ~(ekb_u32)EKB_ACKS_SCALES;
		}
		if ((packet->flags & EKB_ACK) && !(stream->seen & EKB_DATA_SYN)) {
			stream->seen |= EKB_DATA_SYN;
			if (packet->scale >= 0)
				stream->seen |= EKB_DATA_SCALES;
		}
	}
	if ((stream->seen & both) != both)
		return;
	stream->seen |= EKB_SCALE_KNOWN;
	if ((stream->seen & scales) != scales)
		stream->scale = 0;
}

/* From the sender. */
EKB_FN void ekb_sent(struct ekb_stream *stream, const struct ekb_packet *packet)
{
	ekb_u32 end = packet->seq + packet->length + !!(packet->flags & EKB_SYN) + !!(packet->flags & EKB_FIN), before;

	if (end == packet->seq)
		return;
	if (!(stream->seen & EKB_SEEN)) {
		stream->seen |= EKB_SEEN;
		stream->ack = packet->seq;
		stream->sent = packet->seq;
	}
	if (packet->length > stream->segment)
		stream->segment = packet->length;
	if (packet->flags & EKB_FIN) {
		stream->seen |= EKB_FIN_SENT;
		stream->fin = end;
	}
	if (ekb_after(stream->sent, packet->seq))
		stream->seen |= EKB_RESENT;
	if (!ekb_after(end, stream->sent))
		return;
	before = stream->sent;
	stream->sent = end;
	if (stream->seen & EKB_IN_ROUND)
		return;
	stream->seen |= EKB_IN_ROUND;
	stream->seen &= ~(ekb_u32)EKB_RESENT;
	stream->round_us = packet->time_us;
	stream->round_ack = stream->ack;
	stream->round_sent = before;
	stream->round_end = end;
}

EKB_FN void ekb_end_round(const struct ekb_settings *settings, struct ekb_stream *stream, ekb_u64 now_us)
{
	ekb_u64 lasted = now_us > stream->round_us ? now_us - stream->round_us : 1;
	ekb_u64 bytes = ekb_since(settings, stream);

	stream->seen &= ~(ekb_u32)EKB_IN_ROUND;
	if (!(stream->seen & EKB_RESENT))
		stream->rtt_us = lasted > 0xffffffffu ? 0xffffffffu : (ekb_u32)lasted;
	else if (!stream->rtt_us)
		return;
	else if (lasted > stream->rtt_us)
		bytes = bytes * stream->rtt_us / lasted;
	/* A handshake's round has no data. */
	if (stream->segment)
		stream->flow = bytes ? (ekb_u32)bytes : 1;
}

/* From the receiver. */
EKB_FN void ekb_acked(const struct ekb_settings *settings, struct ekb_group *group, struct ekb_stream *stream, ekb_u32 index,
		      const struct ekb_packet *packet)
{
	if (!(stream->seen & EKB_SEEN)) {
		stream->seen |= EKB_SEEN;
		stream->ack = packet->ack;
		stream->sent = packet->ack;
		return;
	}
	if (ekb_after(packet->ack, stream->ack)) {
		stream->ack = packet->ack;
		stream->repeats = 0;
		ekb_release(group, stream);
		/* The data may have passed before the gateway started. */
		if (ekb_after(stream->ack, stream->sent))
			stream->sent = stream->ack;
		if ((stream->seen & EKB_IN_ROUND) && !ekb_after(stream->round_end, stream->ack))
			ekb_end_round(settings, stream, packet->time_us);
		if ((stream->seen & EKB_FIN_SENT) && !ekb_after(stream->fin, stream->ack))
			ekb_end(group, stream);
		return;
	}
	if (packet->ack != stream->ack || !ekb_after(stream->sent, stream->ack) || packet->length || !packet->window ||
	    (packet->flags & (EKB_SYN | EKB_FIN)))
		return;
	if (stream->repeats != 0xffffffffu)
		stream->repeats += 1;
	if (stream->repeats >= settings->repeats && !ekb_is_stalled(group, stream))
		ekb_stall(group, stream, index);
}

/* The window field to write into the packet; 0: it stays as it is. */
EKB_FN ekb_u32 ekb_window(const struct ekb_stream *stream, ekb_u32 window)
{
	ekb_u32 shift = stream->scale & 15, field, least;

	if (!stream->limit || !(stream->seen & EKB_SCALE_KNOWN))
		return 0;
	field = stream->limit >> shift;
	least = (ekb_u32)(((ekb_u64)stream->segment + (1u << shift) - 1) >> shift);
	if (field < least)
		field = least;
	return field < window ? field : 0;
}

/* A packet of the stream of this index passes. Returns the window field to write into it; 0: it is left as it is. */
EKB_FN ekb_u32 ekb_observe(const struct ekb_settings *settings, struct ekb_group *group, struct ekb_stream *stream,
			   ekb_u32 index, const struct ekb_packet *packet)
{
	if (group->stalled && packet->time_us >= group->until_us)
		group->stalled = 0;
	if (packet->flags & EKB_RST) {
		ekb_end(group, stream);
		return 0;
	}
	if ((packet->flags & (EKB_SYN | EKB_ACK)) == EKB_SYN)
		ekb_end(group, stream);
	/* First, so that this packet does not count in the flow observed before throttling. */
	ekb_limit(settings, group, stream);
	if (packet->flags & EKB_SYN)
		ekb_learn_scale(stream, packet);
	if (packet->direction == EKB_DATA)
		ekb_sent(stream, packet);
	else if (packet->flags & EKB_ACK)
		ekb_acked(settings, group, stream, index, packet);
	if (ekb_is_stalled(group, stream))
		group->until_us = packet->time_us + settings->idle_us;
	if (!group->stalled || packet->direction != EKB_ACKS || (packet->flags & (EKB_SYN | EKB_ACK)) != EKB_ACK)
		return 0;
	ekb_limit(settings, group, stream);
	return ekb_window(stream, packet->window);
}

#endif
