/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What is known of a stream and of its group, what a packet says, and the settings. */
#ifndef EKIDEN_STREAM_H
#define EKIDEN_STREAM_H

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
#define EKB_BLOCKS 4 /* of SACK in one header at most */
/* Data that a SYN may carry (RFC 7413), and a window before the handshake is over. */
#define EKB_EARLY_MOST 65535u
#define EKB_DOUBTS_MOST 16
/* In each round the least round-trip time approaches the last one by this part: that of a path that has become longer is known in the end. */
#define EKB_AGING 64
/* Nobody's sequence numbers jump so far: what does is made up. */
#define EKB_FAR (1u << 22)
#define EKB_WINDOW_MOST (1u << 30) /* RFC 7323, section 2.3 */
/* Between two throttlings with EKB_DELIVERED, in microseconds, and for how long a stream counts as the group's fastest. */
#define EKB_APART_US 500000u
#define EKB_RECENT_US 10000000u
/* With EKB_DELIVERED a limit begins at no less than this part of what the group's fastest stream has, and an initial window (RFC 6928). */
#define EKB_SHARE 4
#define EKB_INITIAL 10 /* segments */
#define EKB_LIMIT_MOST 0x3fffffffu

enum ekb_direction {
	EKB_DATA = 0, /* from the sender into the wide area network */
	EKB_ACKS = 1, /* back from the receiver */
};

enum ekb_choices {
	EKB_OF_SENT = 1 << 0, /* the flow is the data that passes; else what is acknowledged */
	EKB_KEEPS_EDGE = 1 << 1, /* a window never takes back what the sender was told before */
	EKB_DELIVERED = 1 << 2, /* the policy is the other one */
	EKB_WATCHES = 1 << 3, /* windows are left as they are */
};

struct ekb_settings {
	ekb_u32 repeats; /* of one ACK number that throttle the group, in segments; at least 1 */
	ekb_u32 part; /* of the flow that is left, in 65536ths */
	ekb_u32 hold_us; /* time without a repetition after which throttling ends */
	ekb_u32 choices; /* enum ekb_choices */
	ekb_u32 missing; /* segments whose lack begins throttling; at least 1 */
	ekb_u32 step; /* of a limit in one round trip, in 65536ths */
	ekb_u32 slack; /* of the least round-trip time, in 65536ths */
	ekb_u32 shortest_us; /* streams with a shorter round trip are left alone, and throttle nobody */
};

struct ekb_block {
	ekb_u32 start, end;
};

/* A packet of one of the group's streams: of one segment, or of several that offloads have put together. */
struct ekb_packet {
	ekb_u64 time_us; /* when it passes; of any clock that runs on */
	ekb_u32 seq, ack;
	ekb_u32 length; /* payload bytes */
	ekb_u32 segment; /* payload bytes of each segment but the last */
	ekb_s32 scale; /* the window scale option's shift; -1 without one. Only a SYN has it */
	ekb_u16 window; /* as in the header */
	ekb_u8 flags; /* EKB_FIN … */
	ekb_u8 direction; /* enum ekb_direction */
	ekb_u32 blocks; /* how many of SACK there are */
	struct ekb_block block[EKB_BLOCKS];
};

struct ekb_group {
	/* The number of the current or last throttling, from 1, in the upper half; how many streams cause it in the lower: 0 if the group
	 * is not throttled. With EKB_DELIVERED it is always 0: there limits end with each stream's own. */
	ekb_u64 state;
	/* When throttling ends if no stream that causes it repeats its ACK number. With EKB_DELIVERED, when it may begin again. */
	ekb_u64 until_us;
	ekb_u32 by; /* the stream that caused it first */
	ekb_u32 fastest; /* bytes in 1024 us of the stream that has delivered most of late */
	ekb_u32 fastest_us; /* when it did, the lower half */
	ekb_u32 unused;
};

enum ekb_seen {
	EKB_OPEN = 1 << 0, /* SYN and SYN-ACK were seen */
	EKB_SYN_DATA = 1 << 1, /* a SYN of the sender waits for its SYN-ACK */
	EKB_SYN_ACKS = 1 << 2, /* a SYN of the receiver does */
	EKB_SYN_SCALES = 1 << 3, /* and has a window scale option */
	EKB_FIN_SENT = 1 << 4,
	EKB_IN_ROUND = 1 << 5,
	EKB_RESENT = 1 << 6, /* something was retransmitted in this round */
	EKB_SACKS = 1 << 7, /* the receiver has sent SACK blocks */
	EKB_GREW = 1 << 8, /* by half or more in the last round */
	EKB_GREW_JUST = 3 << 8, /* in that or the one before */
	EKB_GREW_OF_LATE = 15 << 8, /* in any of the last four */
	EKB_FROM_IDLE = 1 << 12, /* when this round began nothing else was in flight, so its ACK covers only what began it */
	EKB_HALF_DATA = 1 << 13, /* the sender has not acknowledged the SYN-ACK yet */
	EKB_HALF_ACKS = 1 << 14, /* the receiver has not */
	EKB_FIN_BACK = 1 << 15, /* the receiver has sent its FIN */
};

/* All zero: nothing is known. Sequence numbers wrap. */
struct ekb_stream {
	ekb_u32 syn; /* the sequence number of a SYN that waits for its SYN-ACK */
	ekb_u32 ack; /* the largest from the receiver */
	ekb_u32 sent; /* behind the last byte that passed */
	ekb_u32 edge; /* behind the last byte that the receiver has ever allowed, as the sender was told */
	ekb_u32 high; /* behind the last byte that was selectively acknowledged; without SACK: until there duplicates do not count */
	ekb_u32 back; /* the next sequence number of the receiver */
	ekb_u32 recover; /* behind what had been sent when the stream began a throttling: until there it begins no other */
	ekb_u32 round_us; /* when the round began, the lower half */
	ekb_u32 round_from; /* the ACK number then; with EKB_OF_SENT where the data that had passed ended */
	ekb_u32 round_end; /* the ACK number that ends it */
	ekb_u32 rtt_us; /* of the last round without retransmission; 0: there was none */
	ekb_u32 least_us; /* the shortest of these */
	ekb_u32 flow; /* bytes of the last round; 0: there was none with data */
	ekb_u32 behind; /* bytes that have arrived behind the gap at `ack`; with EKB_DELIVERED and SACK those missing before them */
	ekb_u32 limit; /* bytes of window while throttled; 0: unknown, or none */
	ekb_u16 stalled_in; /* the number of the throttling that it causes, or helps to; 0: none */
	ekb_u16 limited_in; /* the number of the throttling that `limit` is for */
	ekb_u16 segment; /* the largest seen */
	ekb_u16 window; /* of the last ACK, as in the header */
	ekb_u16 seen; /* enum ekb_seen */
	ekb_u8 scale : 4; /* of the receiver's windows */
	ekb_u8 syn_scale : 4; /* of the SYN that waits */
	ekb_u8 doubts; /* rounds that were long in spite of the limit, or of which nothing is known, less those that were short */
};

EKB_FN int ekb_is_half_open(const struct ekb_stream *stream) { return stream->seen & (EKB_HALF_DATA | EKB_HALF_ACKS); }

/* Whether the handshake is over: whoever began it has seen the other's answer. */
EKB_FN int ekb_is_open(const struct ekb_stream *stream) { return stream->seen & EKB_OPEN && !ekb_is_half_open(stream); }

/* Whether either end has said that it has no more to send. */
EKB_FN int ekb_is_closing(const struct ekb_stream *stream) { return stream->seen & (EKB_FIN_SENT | EKB_FIN_BACK); }

/* Whether sequence number a lies behind b. */
EKB_FN int ekb_after(ekb_u32 a, ekb_u32 b) { return (ekb_s32)(a - b) > 0; }

EKB_FN ekb_u32 ekb_least(ekb_u32 a, ekb_u32 b) { return a < b ? a : b; }
EKB_FN ekb_u32 ekb_most(ekb_u32 a, ekb_u32 b) { return a > b ? a : b; }

#endif
