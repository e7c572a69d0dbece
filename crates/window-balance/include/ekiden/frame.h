/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What window_balance.h has to know of a packet, read from its headers: Ethernet with VLAN tags (IEEE 802.1Q, 802.1ad), IPv4
 * (RFC 791) or IPv6 (RFC 8200), TCP (RFC 9293) with its options.
 *
 * In steps, so that a packet that turns out to be of no interest costs little. ekb_find tells between whom it is, ekb_read_tcp reads the
 * TCP header. The caller then copies the options, if ekb_wants_options says so, and ekb_read_options and ekb_to_packet do the rest.
 *
 * A tag that the device has taken out of the frame is not seen: the Ethernet header then has the type of what it carries. The
 * number of a VLAN is not read. Fragments are not ours, the first neither: what follows them has no ports. Neither are packets
 * with headers of IPsec. Checksums are not checked: hosts do that, and what is forwarded with a wrong one stays wrong.
 *
 * Packets that offloads have put together may be larger than their IP header can say (RFC 2675, and Linux's "BIG TCP"): its length
 * is then 0, and the frame's own counts. */
#ifndef EKIDEN_FRAME_H
#define EKIDEN_FRAME_H

#include "ekiden/window_balance.h"

#define EKB_TAGS 2 /* VLAN tags of a frame at most */
#define EKB_EXTENSIONS 6 /* headers between IPv6 and TCP at most */
#define EKB_OPTIONS_MOST 40 /* bytes of options */
#define EKB_OFFSET_MOST 0x3fff /* more than Ethernet, tags, and IPv6 with as many extensions have */
#define EKB_TIMED 0x0101080au /* no-operation, no-operation, timestamps of ten bytes: the layout of most hosts */

enum ekb_found {
	EKB_TCP = 0,
	EKB_OTHER = 1, /* not TCP, or a fragment, or more headers than are read */
	EKB_MALFORMED = 2, /* a length contradicts another one */
	EKB_CUT = 3, /* the headers go on behind the bytes that are there */
	EKB_SIGNED = 4, /* with TCP-MD5 (RFC 2385) or TCP-AO (RFC 5925): whoever changes the header breaks the connection */
};

/* Addresses and ports are as in the packet, in network order; all else is in the host's. */
struct ekb_frame {
	/* From ekb_find. */
	ekb_u32 source[4], destination[4]; /* of IPv4 only the first */
	ekb_u16 source_port, destination_port;
	ekb_u32 version; /* of IP: 4 or 6 */
	ekb_u32 tcp; /* where the TCP header begins */
	ekb_u32 rest; /* bytes from there to the end of the IP packet, at least EKB_TCP_LEAST */
	/* From ekb_read_tcp. */
	ekb_u32 options; /* bytes of options behind the first EKB_TCP_LEAST of the TCP header */
	ekb_u32 payload; /* bytes */
	ekb_u32 seq, ack;
	ekb_u16 window;
	ekb_u8 flags; /* from ekb_find */
	ekb_u8 is_timed; /* there is one option, timestamps, as most hosts lay it out */
};

#define EKB_ETHERNET 14
#define EKB_TCP_LEAST 20
#define EKB_WINDOW_AT 14 /* in the TCP header */
#define EKB_CHECKSUM_AT 16

/* The bytes [offset, offset + size), or 0 if they are not all there. The verifier follows pointers, but not their differences, and wants
 * to see that an offset is small: no header begins behind EKB_OFFSET_MOST. */
EKB_FN const ekb_u8 *ekb_at(const ekb_u8 *start, const ekb_u8 *end, ekb_u32 offset, ekb_u32 size)
{
#ifdef __bpf__
	const ekb_u8 *at = start + (offset & EKB_OFFSET_MOST);

	return at + size <= end ? at : 0;
#else
	return (ekb_u64)offset + size <= (ekb_u64)(end - start) ? start + offset : 0;
#endif
}

/* As in the packet. The kernel lets programs read any word at once; byte by byte takes several times as long. */
EKB_FN ekb_u32 ekb_raw32(const ekb_u8 *at)
{
#ifdef __bpf__
	return *(const ekb_u32 *)at;
#else
	ekb_u32 value;

	__builtin_memcpy(&value, at, sizeof(value));
	return value;
#endif
}

EKB_FN ekb_u16 ekb_raw16(const ekb_u8 *at)
{
#ifdef __bpf__
	return *(const ekb_u16 *)at;
#else
	ekb_u16 value;

	__builtin_memcpy(&value, at, sizeof(value));
	return value;
#endif
}

/* Between network order and the host's. */
EKB_FN ekb_u32 ekb_order32(ekb_u32 value)
{
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap32(value) : value;
}

EKB_FN ekb_u16 ekb_order16(ekb_u16 value)
{
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap16(value) : value;
}

EKB_FN ekb_u32 ekb_word(const ekb_u8 *at) { return ekb_order32(ekb_raw32(at)); }
EKB_FN ekb_u16 ekb_half(const ekb_u8 *at) { return ekb_order16(ekb_raw16(at)); }

/* Bytes up to this one are not there. */
EKB_FN ekb_u32 ekb_missing(ekb_u32 total, ekb_u32 until) { return until <= total ? EKB_CUT : EKB_MALFORMED; }

/* The ports in the TCP header that begins at `at`. */
EKB_FN ekb_u32 ekb_find_tcp(const ekb_u8 *start, const ekb_u8 *end, ekb_u32 total, ekb_u32 at, ekb_u32 rest, struct ekb_frame *frame)
{
	const ekb_u8 *tcp = ekb_at(start, end, at, EKB_TCP_LEAST);

	if (rest < EKB_TCP_LEAST)
		return EKB_MALFORMED;
	if (!tcp)
		return ekb_missing(total, at + EKB_TCP_LEAST);
	frame->source_port = ekb_raw16(tcp);
	frame->destination_port = ekb_raw16(tcp + 2);
	frame->flags = tcp[13];
	frame->tcp = at;
	frame->rest = rest;
	return EKB_TCP;
}

EKB_FN ekb_u32 ekb_find_ipv4(const ekb_u8 *start, const ekb_u8 *end, ekb_u32 total, ekb_u32 segment, ekb_u32 at,
			     struct ekb_frame *frame)
{
	const ekb_u8 *ip = ekb_at(start, end, at, 20);
	ekb_u32 header, length;

	if (!ip)
		return ekb_missing(total, at + 20);
	/* TCP, and no part of a fragmented packet: neither more fragments nor an offset. */
	if (ip[9] != 6 || ekb_half(ip + 6) & 0x3fff)
		return EKB_OTHER;
	header = (ip[0] & 15) * 4u;
	length = ekb_half(ip + 2);
	if (!length && segment)
		length = total - at;
	if (ip[0] >> 4 != 4 || header < 20 || header > length || length > total - at)
		return EKB_MALFORMED;
	frame->version = 4;
	frame->source[0] = ekb_raw32(ip + 12);
	frame->destination[0] = ekb_raw32(ip + 16);
	return ekb_find_tcp(start, end, total, at + header, length - header, frame);
}

EKB_FN ekb_u32 ekb_find_ipv6(const ekb_u8 *start, const ekb_u8 *end, ekb_u32 total, ekb_u32 segment, ekb_u32 at,
			     struct ekb_frame *frame)
{
	const ekb_u8 *ip = ekb_at(start, end, at, 40);
	ekb_u32 next, length, size, i;

	if (!ip)
		return ekb_missing(total, at + 40);
	length = ekb_half(ip + 4);
	if (!length && segment)
		length = total - at - 40;
	if (ip[0] >> 4 != 6 || length > total - at - 40)
		return EKB_MALFORMED;
	frame->version = 6;
	for (i = 0; i < 4; i++) {
		frame->source[i] = ekb_raw32(ip + 8 + 4 * i);
		frame->destination[i] = ekb_raw32(ip + 24 + 4 * i);
	}
	next = ip[6];
	at += 40;
	/* Hop-by-hop options, routing, destination options (RFC 8200, section 4). */
	for (i = 0; i < EKB_EXTENSIONS && (next == 0 || next == 43 || next == 60); i++) {
		ip = ekb_at(start, end, at, 8);
		if (length < 8)
			return EKB_MALFORMED;
		if (!ip)
			return ekb_missing(total, at + 8);
		size = (ip[1] + 1) * 8u;
		if (size > length)
			return EKB_MALFORMED;
		next = ip[0];
		at += size;
		length -= size;
	}
	return next == 6 ? ekb_find_tcp(start, end, total, at, length, frame) : EKB_OTHER;
}

/* Finds the headers of a frame of `total` bytes, of which those from `start` to `end` are there. `segment` is the payload of each
 * segment that offloads have put together in it; 0 without. Returns enum ekb_found. */
EKB_FN ekb_u32 ekb_find(const ekb_u8 *start, const ekb_u8 *end, ekb_u32 total, ekb_u32 segment, struct ekb_frame *frame)
{
	const ekb_u8 *at = ekb_at(start, end, 0, EKB_ETHERNET);
	ekb_u32 network = EKB_ETHERNET, type, i;

	if (!at)
		return ekb_missing(total, EKB_ETHERNET);
	type = ekb_half(at + 12);
	for (i = 0; i < EKB_TAGS && (type == 0x8100 || type == 0x88a8); i++) {
		at = ekb_at(start, end, network, 4);
		if (!at)
			return ekb_missing(total, network + 4);
		type = ekb_half(at + 2);
		network += 4;
	}
	if (type == 0x0800)
		return ekb_find_ipv4(start, end, total, segment, network, frame);
	return type == 0x86dd ? ekb_find_ipv6(start, end, total, segment, network, frame) : EKB_OTHER;
}

/* Reads the TCP header of a frame that was found to have one. Returns enum ekb_found. */
EKB_FN ekb_u32 ekb_read_tcp(const ekb_u8 *start, const ekb_u8 *end, struct ekb_frame *frame)
{
	const ekb_u8 *tcp = ekb_at(start, end, frame->tcp, EKB_TCP_LEAST);
	ekb_u32 header;

	if (!tcp)
		return EKB_CUT;
	header = (tcp[12] >> 4) * 4u;
	if (header < EKB_TCP_LEAST || header > frame->rest)
		return EKB_MALFORMED;
	frame->options = header - EKB_TCP_LEAST;
	frame->payload = frame->rest - header;
	frame->seq = ekb_word(tcp + 4);
	frame->ack = ekb_word(tcp + 8);
	frame->window = ekb_half(tcp + EKB_WINDOW_AT);
	frame->is_timed = 0;
	if (header == EKB_TCP_LEAST + 12) {
		tcp = ekb_at(start, end, frame->tcp, EKB_TCP_LEAST + 12);
		frame->is_timed = tcp && ekb_word(tcp + EKB_TCP_LEAST) == EKB_TIMED;
	}
	return EKB_TCP;
}

/* Whether the options have to be read: those of a SYN, and of an ACK that may have SACK blocks. */
EKB_FN int ekb_wants_options(const struct ekb_frame *frame, ekb_u32 direction)
{
	return frame->options && (frame->flags & EKB_SYN || (direction == EKB_ACKS && !frame->is_timed));
}

/* Options, read one by one. */
struct ekb_options {
	ekb_u8 bytes[72]; /* what stands behind `length` makes no difference */
	ekb_u32 length; /* at most EKB_OPTIONS_MOST */
	ekb_u32 at; /* the next one */
	ekb_u32 sack_at; /* the first block */
	ekb_u32 blocks;
	ekb_u32 scale; /* and 1; 0: none */
	ekb_u32 is_signed;
	ekb_u32 is_malformed;
};

/* Reads one option; `context` points to a pointer to the options, since bpf_loop wants one to the stack. Returns 1 behind the last.
 * Options of another length than theirs are ignored, as hosts do. */
static inline long ekb_read_option(ekb_u32 index, void *context)
{
	struct ekb_options *options = *(struct ekb_options **)context;
	ekb_u32 at = options->at & 63, kind, length;

	(void)index;
	if (at >= options->length)
		return 1;
	kind = options->bytes[at];
	if (!kind)
		return 1;
	if (kind == 1) { /* no operation */
		options->at = at + 1;
		return 0;
	}
	length = options->bytes[at + 1];
	if (length < 2 || at + length > options->length) {
		options->is_malformed = 1;
		return 1;
	}
	if (kind == 3 && length == 3)
		options->scale = options->bytes[at + 2] + 1u;
	if (kind == 5 && length >= 10 && (length & 7) == 2) {
		options->sack_at = at + 2;
		options->blocks = (length - 2) >> 3;
	}
	if (kind == 19 || kind == 29)
		options->is_signed = 1;
	options->at = at + length;
	return 0;
}

/* The verifier goes through a loop in full, but not through bpf_loop. */
#ifndef EKB_LOOP
EKB_FN void ekb_loop(ekb_u32 most, long (*step)(ekb_u32, void *), void *context)
{
	ekb_u32 i;

	for (i = 0; i < most && !step(i, context); i++)
		;
}
#define EKB_LOOP ekb_loop
#endif

/* Nothing but SACK from here on, as most hosts lay it out: no-operation, no-operation, blocks. */
EKB_FN int ekb_read_sack(struct ekb_options *options, ekb_u32 at)
{
	ekb_u32 word = ekb_word(options->bytes + at), length = word & 255;

	if (word >> 8 != 0x010105 || length < 10 || (length & 7) != 2 || at + 2 + length != options->length)
		return 0;
	options->sack_at = at + 4;
	options->blocks = (length - 2) >> 3;
	return 1;
}

/* Reads `length` bytes of options. Returns EKB_TCP, EKB_MALFORMED or EKB_SIGNED. */
EKB_FN ekb_u32 ekb_read_options(struct ekb_options *options)
{
	int is_timed = options->length >= 12 && ekb_word(options->bytes) == EKB_TIMED;

	options->at = is_timed ? 12 : 0;
	options->blocks = 0;
	options->scale = 0;
	options->is_signed = 0;
	options->is_malformed = 0;
	if (is_timed ? ekb_read_sack(options, 12) : ekb_read_sack(options, 0))
		return EKB_TCP;
	EKB_LOOP(EKB_OPTIONS_MOST, ekb_read_option, &options);
	if (options->is_malformed)
		return EKB_MALFORMED;
	return options->is_signed ? EKB_SIGNED : EKB_TCP;
}

/* The packet for ekb_observe. `options` is 0 if they were not read. `segment` as for ekb_find. */
EKB_FN void ekb_to_packet(const struct ekb_frame *frame, const struct ekb_options *options, ekb_u32 direction, ekb_u32 segment,
			  ekb_u64 time_us, struct ekb_packet *packet)
{
	ekb_u32 i;

	packet->time_us = time_us;
	packet->seq = frame->seq;
	packet->ack = frame->ack;
	packet->length = frame->payload;
	packet->segment = segment ? segment : frame->payload;
	packet->scale = options ? (ekb_s32)options->scale - 1 : -1;
	packet->window = frame->window;
	packet->flags = frame->flags;
	packet->direction = (ekb_u8)direction;
	packet->blocks = options ? ekb_least(options->blocks, EKB_BLOCKS) : 0;
	for (i = 0; i < EKB_BLOCKS; i++) {
		packet->block[i].start = i < packet->blocks ? ekb_word(options->bytes + ((options->sack_at + 8 * i) & 63)) : 0;
		packet->block[i].end = i < packet->blocks ? ekb_word(options->bytes + ((options->sack_at + 8 * i + 4) & 63)) : 0;
	}
}

#endif
