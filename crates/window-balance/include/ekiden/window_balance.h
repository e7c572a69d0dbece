/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Keeping parallel TCP streams in balance from a gateway at the entrance of the wide area network: Sugawara, Inaba, Hiraki,
 * "Balancing Window Size of Parallel TCP Streams using Gateway", section 3.
 *
 * The gateway stands near the senders of a group of streams and sees both directions of each. When congestion begins in one, it
 * lowers the receive window in the ACKs of every stream, so that no stream sends on into the full queue. It drops, delays and marks
 * no packet.
 *
 * The paper's policy. When the receiver of any stream repeats one ACK number `repeats` times, the group is throttled: windows are
 * lowered to `part` of the flow observed just before. Throttling ends when the ACK number of every stream that repeated it so
 * often advances, or the stream ends, or after a time limit.
 *
 * The other policy, EKB_DELIVERED. Throttling begins when `missing` segments are missing before those that have arrived, in a stream
 * whose flow grew by half in one of its last two rounds: its slow start has overshot. (Of a receiver without SACK, it is the
 * repetitions that count.) Every stream that has a part in it is then limited to what the path delivered in the least round-trip time:
 * one whose own flow has grown by half in two of its last four rounds, and whose own round trip is longer than the least by `slack`. What a
 * receiver claims so costs nobody anything whose slow start is over, or who meets no queue. From
 * there on the limit follows the path: in each round trip it grows by `step` while the round-trip time is within `slack` of the
 * least, and shrinks by it when that is more than twice as much longer. So the queue stays short, and what is sent again
 * arrives. A limit begins at no less than a quarter of what the group's fastest stream has in such a time, or an initial window: a stream that has had
 * little to send, or has just begun, is not held down. A stream that was idle for `hold_us` loses its limit. Throttlings are half a second
 * apart, and change no limit that there is. Where others fill the queue limits do not help: after EKB_DOUBTS_MOST long rounds more than
 * short ones, the stream's limit ends, and it gets no other until its flow grows by half again. Rounds with a retransmission, of which
 * nothing is known, count as long ones. A limit does not bind either once it has grown above the sender's own window. The least round
 * trip approaches the last one by one part in EKB_AGING of the difference in each round, for paths become longer.
 *
 * Decisions that the paper leaves open:
 *
 * A repetition stands for a segment that has arrived behind a gap. With SACK (RFC 2018) it is counted in the bytes above all
 * that was selectively acknowledged before: hosts send one ACK for many segments, and repeat blocks. Bytes below, which fill
 * gaps or arrive twice, do not count, so DSACK (RFC 2883) needs no care. Without SACK a repetition is a duplicate
 * acknowledgement as in RFC 5681, section 2, whose window may be smaller than the last one's, but not larger: that is a window
 * update. After the sender has gone back and sent again more than the one segment that is missing, what it repeats arrives twice
 * and is answered with duplicates; they do not count until all that was sent by then is acknowledged (as in RFC 6582). Only pure
 * ACKs count, and an ACK with a window of 0 does not: it answers a zero-window probe.
 *
 * The flow is the bytes acknowledged during one round trip, so it compares with a window. It is what the path delivered. With
 * EKB_OF_SENT it is the new data that the sender sent during one round trip, which in slow start is twice as much. A round begins
 * with a data segment that passes and ends with the ACK that covers it, so it lasts one round trip between gateway and receiver
 * and needs no timer. After a retransmission within the round, which then lasts longer while the ACK number jumps, the bytes are
 * scaled to the length of the last round without one. With EKB_DELIVERED the bytes of all rounds are
 * scaled to the shortest, but such a round does not count, nor one that began when nothing else was in flight. "Just before" is
 * the last complete round when throttling began, or the bytes since then if they are more: in slow start each round has twice the
 * bytes of the last.
 *
 * A window is never raised, and never lowered below two of the largest segments seen, of which receivers acknowledge the second
 * at once. With EKB_KEEPS_EDGE it never takes back what the sender was told before (RFC 9293, section 3.8.6); the window then
 * falls as data is acknowledged.
 *
 * A stream is known from its handshake on: from a SYN and the SYN-ACK that acknowledges it. It is half open until whoever sent the
 * SYN acknowledges that, which nobody can make up who does not see the packets. One whose handshake was not seen is left alone, and counts for nothing. What the sender cannot send and the
 * receiver cannot acknowledge (RFC 9293, section 3.10.7.4) changes nothing either, nor does a RST out of place (RFC 5961). When
 * packets of a stream have not passed here for a while, its receiver acknowledges what was not seen; nobody can make that up either, for
 * want of the receiver's next sequence number. The stream then begins anew from this ACK, with the scale that it has and without a
 * limit.
 *
 * Streams whose least round trip is shorter than `shortest_us`, or not yet known, are left alone and throttle nobody. What such a path
 * holds is less than hosts need that run a scheduler's turn late.
 *
 * A stream ends with RST, or when the sender's FIN is acknowledged: until then lost segments are still sent again. If no
 * stream that causes throttling has a repetition for `hold_us`, throttling ends.
 *
 * The state of a stream and of the group are separate structures, and no function iterates over streams. Only one packet of a
 * stream may be looked at at a time. The group is shared: it is changed by atomic operations alone. */
#ifndef EKIDEN_WINDOW_BALANCE_H
#define EKIDEN_WINDOW_BALANCE_H

#include "ekiden/assumed.h"
#include "ekiden/limit.h"

/* A SYN changes nothing of a stream that is there: the host may refuse it. */
EKB_FN void ekb_syn(struct ekb_stream *stream, const struct ekb_packet *packet)
{
	stream->seen &= ~(ekb_u16)(EKB_SYN_DATA | EKB_SYN_ACKS | EKB_SYN_SCALES);
	stream->seen |= packet->direction == EKB_DATA ? EKB_SYN_DATA : EKB_SYN_ACKS;
	stream->syn = packet->seq;
	stream->syn_scale = 0;
	if (packet->scale >= 0) {
		stream->seen |= EKB_SYN_SCALES;
		stream->syn_scale = packet->scale > EKB_SCALE_MOST ? EKB_SCALE_MOST : (ekb_u8)packet->scale;
	}
}

/* A SYN-ACK begins the stream if it acknowledges the SYN. Windows are scaled if both have the option (RFC 7323, section 2.2). */
EKB_FN void ekb_syn_ack(struct ekb_group *group, struct ekb_stream *stream, const struct ekb_packet *packet)
{
	ekb_u32 syn = stream->syn, early = packet->ack - (syn + 1);
	ekb_u16 seen = stream->seen;
	ekb_u8 scale = stream->syn_scale;

	if (!(seen & (packet->direction == EKB_ACKS ? EKB_SYN_DATA : EKB_SYN_ACKS)) || early > EKB_EARLY_MOST)
		return;
	ekb_end(group, stream);
	stream->seen = EKB_OPEN | (packet->direction == EKB_ACKS ? EKB_HALF_DATA : EKB_HALF_ACKS);
	if (packet->direction == EKB_ACKS) {
		stream->ack = packet->ack;
		stream->back = packet->seq + 1;
		scale = packet->scale > EKB_SCALE_MOST ? EKB_SCALE_MOST : (ekb_u8)packet->scale;
	} else {
		stream->ack = packet->seq + 1;
		stream->back = packet->ack;
	}
	if ((seen & EKB_SYN_SCALES) && packet->scale >= 0)
		stream->scale = scale;
	stream->sent = stream->ack;
	stream->high = stream->ack;
	stream->recover = stream->ack;
	stream->edge = stream->ack + EKB_EARLY_MOST;
	stream->window = 0xffff; /* no window is larger than the first */
}

/* From the sender. */
EKB_FN void ekb_sent(const struct ekb_settings *settings, struct ekb_stream *stream, const struct ekb_packet *packet)
{
	ekb_u32 end = packet->seq + packet->length + !!(packet->flags & EKB_FIN), before = stream->sent;

	/* A zero-window probe has a byte more than is allowed, and so may a FIN. What was acknowledged already says nothing. */
	if (!ekb_after(end, stream->ack) || ekb_after(end, stream->edge + 1) || (stream->seen & EKB_FIN_SENT && ekb_after(end, before)))
		return;
	if (ekb_after(before, packet->seq)) {
		stream->seen |= EKB_RESENT;
		/* More than what is missing: it goes back. */
		if (!(stream->seen & EKB_SACKS) && ekb_after(packet->seq, stream->ack + stream->segment) && ekb_after(before, stream->high))
			stream->high = before;
	}
	if (!ekb_after(end, before))
		return;
	if (packet->segment > stream->segment)
		stream->segment = (ekb_u16)ekb_least(packet->segment, 0xffff);
	if (packet->flags & EKB_FIN)
		stream->seen |= EKB_FIN_SENT;
	stream->sent = end;
	if (stream->seen & EKB_IN_ROUND)
		return;
	stream->seen |= EKB_IN_ROUND;
	stream->seen &= ~(ekb_u16)(EKB_RESENT | EKB_FROM_IDLE);
	if (before == stream->ack) {
		stream->seen |= EKB_FROM_IDLE;
		/* The path is another one by now, and the sender's own window begins anew (RFC 5681, section 4.1). */
		if (settings->choices & EKB_DELIVERED && (ekb_u32)packet->time_us - stream->round_us > settings->hold_us)
			stream->limit = 0;
	}
	stream->round_us = (ekb_u32)packet->time_us;
	stream->round_from = settings->choices & EKB_OF_SENT ? before : stream->ack;
	stream->round_end = end;
}

EKB_FN void ekb_end_round(const struct ekb_settings *settings, struct ekb_group *group, struct ekb_stream *stream, ekb_u64 now_us)
{
	ekb_u32 lasted = ekb_most((ekb_u32)now_us - stream->round_us, 1);
	ekb_u64 bytes = ekb_since(settings, stream);
	ekb_u16 grew;

	stream->seen &= ~(ekb_u16)EKB_IN_ROUND;
	if (!(stream->seen & EKB_RESENT)) {
		stream->rtt_us = lasted;
		if (!stream->least_us || lasted < stream->least_us)
			stream->least_us = lasted;
		else
			stream->least_us += (lasted - stream->least_us) / EKB_AGING;
		if (settings->choices & EKB_DELIVERED && stream->limit)
			ekb_follow(settings, stream, lasted);
	} else if (!stream->rtt_us) {
		return;
	} else if (settings->choices & EKB_DELIVERED && stream->limit) {
		ekb_doubt(stream);
	} else if (lasted > stream->rtt_us) {
		bytes = bytes * stream->rtt_us / lasted;
		lasted = stream->rtt_us;
	}
	if (settings->choices & EKB_DELIVERED && stream->seen & (EKB_RESENT | EKB_FROM_IDLE))
		return;
	bytes = ekb_in_least(settings, stream, bytes, lasted);
	grew = (ekb_u16)(stream->seen << 1) & EKB_GREW_OF_LATE & ~EKB_GREW;
	grew |= 2 * bytes >= 3 * (ekb_u64)stream->flow ? EKB_GREW : 0;
	stream->seen = (ekb_u16)((stream->seen & ~EKB_GREW_OF_LATE) | grew);
	if (grew & EKB_GREW && !stream->limit)
		stream->doubts = 0;
	stream->flow = bytes ? (ekb_u32)bytes : 1;
	if (settings->choices & EKB_DELIVERED && !ekb_is_short(settings, stream))
		ekb_compare(group, stream, now_us);
}

/* Bytes that have arrived behind the gap, of which this ACK is the first to tell. */
EKB_FN ekb_u32 ekb_arrived(struct ekb_stream *stream, const struct ekb_packet *packet)
{
	ekb_u32 before = stream->high, start, end, bytes = 0;
	int i;

	if (!packet->blocks) {
		if (stream->seen & EKB_SACKS || packet->window > stream->window || ekb_after(stream->high, stream->ack))
			return 0;
		return stream->segment;
	}
	if (!(stream->seen & EKB_SACKS)) {
		stream->seen |= EKB_SACKS;
		before = stream->ack;
		stream->high = before;
	}
	for (i = 0; i < EKB_BLOCKS; i++) {
		start = packet->block[i].start;
		end = packet->block[i].end;
		if (i >= (int)packet->blocks || !ekb_after(end, before) || ekb_after(end, stream->sent) || !ekb_after(end, start))
			continue;
		bytes += end - (ekb_after(start, before) ? start : before);
		if (ekb_after(end, stream->high))
			stream->high = end;
	}
	/* No more than that, whatever the blocks say. */
	return ekb_least(bytes, stream->high - before);
}

/* From the receiver. */
EKB_FN void ekb_acked(const struct ekb_settings *settings, struct ekb_group *group, struct ekb_stream *stream, ekb_u32 index,
		      const struct ekb_packet *packet)
{
	ekb_u32 arrived, end, before = stream->high, segment = ekb_most(stream->segment, 1);
	int is_missing = settings->choices & EKB_DELIVERED && packet->blocks;

	if (ekb_after(stream->ack, packet->ack))
		return;
	if (packet->ack != stream->ack) {
		stream->ack = packet->ack;
		stream->behind = 0;
		/* They stay within half of the sequence numbers. */
		if (ekb_after(stream->ack, stream->high))
			stream->high = stream->ack;
		if (ekb_after(stream->ack, stream->recover))
			stream->recover = stream->ack;
		ekb_release(group, stream);
		if ((stream->seen & EKB_IN_ROUND) && !ekb_after(stream->round_end, stream->ack))
			ekb_end_round(settings, group, stream, packet->time_us);
		if ((stream->seen & EKB_FIN_SENT) && stream->ack == stream->sent)
			ekb_end(group, stream);
		return;
	}
	if (stream->sent == stream->ack || packet->length || !packet->window || (packet->flags & EKB_FIN))
		return;
	arrived = ekb_arrived(stream, packet);
	if (!arrived)
		return;
	if (is_missing) { /* what lies between the blocks, above all that was selectively acknowledged before */
		end = (ekb_after(before, stream->ack) ? before : stream->ack) + arrived;
		arrived = ekb_after(stream->high, end) ? stream->high - end : 0;
	}
	stream->behind = ekb_least(stream->behind, EKB_LIMIT_MOST) + ekb_least(arrived, EKB_LIMIT_MOST);
	if (stream->behind < (ekb_u64)(is_missing ? settings->missing : settings->repeats) * segment || ekb_is_short(settings, stream))
		return;
	if (settings->choices & EKB_DELIVERED) {
		ekb_overshoot(group, stream, index, packet->time_us);
		return;
	}
	*(volatile ekb_u64 *)&group->until_us = packet->time_us + settings->hold_us;
	ekb_stall(group, stream, index);
}

/* The window field to write into the packet; 0: it stays as it is. */
EKB_FN ekb_u32 ekb_window(const struct ekb_settings *settings, const struct ekb_stream *stream, const struct ekb_packet *packet)
{
	ekb_u32 shift = stream->scale & 15, up = (1u << shift) - 1, least = 2 * (ekb_u32)stream->segment, field;

	/* Of a stream that has sent nothing yet it is not known how long segments are. */
	if (!stream->limit || !stream->segment)
		return 0;
	field = ekb_most(stream->limit >> shift, (least + up) >> shift);
	if ((settings->choices & EKB_KEEPS_EDGE) && ekb_after(stream->edge, packet->ack))
		field = ekb_most(field, (stream->edge - packet->ack + up) >> shift);
	return field < packet->window ? field : 0;
}

/* A RST that answers the SYN that waits: the port is closed. */
EKB_FN int ekb_refuses(const struct ekb_stream *stream, const struct ekb_packet *packet)
{
	ekb_u16 syn = packet->direction == EKB_ACKS ? EKB_SYN_DATA : EKB_SYN_ACKS;

	return packet->flags & EKB_RST && packet->flags & EKB_ACK && stream->seen & syn && packet->ack - (stream->syn + 1) <= EKB_EARLY_MOST;
}

/* A RST that the end that it goes to would take: of the receiver the next sequence number (RFC 5961, section 3.2), of the sender one of
 * what is in flight, since what has arrived of it is not known. */
EKB_FN int ekb_resets(const struct ekb_stream *stream, const struct ekb_packet *packet)
{
	if (packet->direction == EKB_DATA)
		return !ekb_after(stream->ack, packet->seq) && !ekb_after(packet->seq, stream->sent);
	/* Behind its FIN some hosts send it with the number before too, and some take it. */
	return packet->seq == stream->back || (stream->seen & EKB_FIN_BACK && packet->seq + 1 == stream->back);
}

/* Whoever began the connection acknowledges the SYN-ACK. Nobody can make that up who does not see the packets. */
EKB_FN void ekb_confirm(struct ekb_stream *stream, const struct ekb_packet *packet)
{
	if (!(packet->flags & EKB_ACK))
		return;
	if (packet->direction == EKB_DATA) {
		if (stream->back - packet->ack <= EKB_EARLY_MOST)
			stream->seen &= ~(ekb_u16)EKB_HALF_DATA;
	} else if (!ekb_after(stream->ack, packet->ack) && !ekb_after(packet->ack, stream->sent)) {
		stream->seen &= ~(ekb_u16)EKB_HALF_ACKS;
	}
}

/* What the sender acknowledges has arrived, also if it passed behind a gap, or elsewhere. */
EKB_FN void ekb_follow_back(struct ekb_stream *stream, const struct ekb_packet *packet)
{
	ekb_u32 far = ekb_after(stream->ack, packet->seq) || ekb_after(packet->seq, stream->sent) ? EKB_FAR : EKB_WINDOW_MOST;

	if (packet->flags & EKB_ACK && !ekb_is_half_open(stream) && packet->ack - stream->back - 1 < far)
		stream->back = packet->ack;
}

/* A packet of the stream of this index passes. Returns the window field to write into it; 0: it is left as it is. */
EKB_FN ekb_u32 ekb_observe(const struct ekb_settings *settings, struct ekb_group *group, struct ekb_stream *stream,
			   ekb_u32 index, const struct ekb_packet *packet)
{
	ekb_u32 field = 0, end, told;
	ekb_u64 state;
	int is_next;

	ekb_expire(group, packet->time_us);
	if (packet->flags & EKB_SYN) {
		if (packet->flags & EKB_RST)
			return 0;
		if (packet->flags & EKB_ACK)
			ekb_syn_ack(group, stream, packet);
		else
			ekb_syn(stream, packet);
		return 0;
	}
	if (!(stream->seen & EKB_OPEN)) {
		if (ekb_refuses(stream, packet))
			ekb_end(group, stream);
		return 0;
	}
	if (packet->flags & EKB_RST) {
		if (ekb_resets(stream, packet))
			ekb_end(group, stream);
		return 0;
	}
	if (ekb_is_half_open(stream))
		ekb_confirm(stream, packet);
	/* First, so that this packet does not count in the flow observed before throttling. */
	ekb_limit(settings, group, ekb_state(group), stream, packet->time_us);
	if (packet->direction == EKB_DATA) {
		ekb_follow_back(stream, packet);
		ekb_sent(settings, stream, packet);
		return 0;
	}
	if (packet->seq - stream->back + EKB_FAR > 2 * EKB_FAR)
		return 0;
	end = packet->seq + packet->length + !!(packet->flags & EKB_FIN);
	is_next = packet->seq == stream->back;
	if (!ekb_after(packet->seq, stream->back) && ekb_after(end, stream->back)) {
		stream->back = end;
		if (packet->flags & EKB_FIN)
			stream->seen |= EKB_FIN_BACK;
	}
	if (!(packet->flags & EKB_ACK))
		return 0;
	if (ekb_after(packet->ack, stream->sent)) {
		if (is_next && !ekb_is_half_open(stream) && !(packet->flags & EKB_FIN)) {
			ekb_release(group, stream);
			ekb_assume(stream, packet, stream->scale);
			stream->seen = EKB_OPEN;
		}
		return 0;
	}
	ekb_acked(settings, group, stream, index, packet);
	/* It has ended, or the sender knows more than this one says. */
	if (!(stream->seen & EKB_OPEN) || packet->ack != stream->ack)
		return 0;
	state = ekb_state(group);
	ekb_limit(settings, group, state, stream, packet->time_us);
	if ((ekb_stalled(state) || settings->choices & EKB_DELIVERED) && !(settings->choices & EKB_WATCHES))
		field = ekb_window(settings, stream, packet);
	told = packet->ack + ((ekb_u32)(field ? field : packet->window) << (stream->scale & 15));
	if (ekb_after(told, stream->edge))
		stream->edge = told;
	stream->window = packet->window;
	return field;
}

/* Whether ekb_observe needs the exact time of this packet, for a round trip or a flow: of few in each round trip. Of others a clock does
 * that lags by some milliseconds, which costs a fraction of the time. */
EKB_FN int ekb_wants_time(const struct ekb_group *group, const struct ekb_stream *stream, const struct ekb_packet *packet)
{
	if (stream->limited_in != ekb_throttling(ekb_state(group)))
		return 1;
	if (packet->direction == EKB_DATA)
		return !(stream->seen & EKB_IN_ROUND);
	return stream->seen & EKB_IN_ROUND && !ekb_after(stream->round_end, packet->ack);
}

#endif
