/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* A stream that is known from an ACK on: its windows are scaled by `scale`, which is assumed, or known from before. */
#ifndef EKIDEN_ASSUMED_H
#define EKIDEN_ASSUMED_H

#include "ekiden/stream.h"

/* The packet is from the receiver, with ACK and without SYN, FIN and RST. What is in flight counts once the sender sends on: until
 * then an ACK of it acknowledges what was not seen, and changes nothing. */
EKB_FN void ekb_assume(struct ekb_stream *stream, const struct ekb_packet *packet, ekb_u32 scale)
{
	__builtin_memset(stream, 0, sizeof(*stream));
	stream->seen = EKB_OPEN | EKB_HALF_DATA;
	stream->scale = (ekb_u8)ekb_least(scale, EKB_SCALE_MOST);
	stream->ack = packet->ack;
	stream->sent = packet->ack;
	stream->high = packet->ack;
	stream->recover = packet->ack;
	stream->edge = packet->ack + ((ekb_u32)packet->window << stream->scale);
	stream->back = packet->seq + packet->length;
	stream->window = packet->window;
}

#endif
