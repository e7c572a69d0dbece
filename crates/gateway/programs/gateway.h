/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What the gateway's programs share with the process that keeps them: src/kernel/layout.rs. */
#ifndef EKIDEN_GATEWAY_H
#define EKIDEN_GATEWAY_H

#include <linux/bpf.h>

#include "ekiden/window_balance.h"

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#define GROUPS_MOST 64

/* A connection, the sender of its data first. Addresses and ports in network order. */
struct stream4_key {
	u32 sender, receiver;
	u16 sender_port, receiver_port;
};

struct stream6_key {
	u32 sender[4], receiver[4];
	u16 sender_port, receiver_port;
};

/* 80 bytes: with the kernel's own and the buckets, 100,000 of IPv4 take less than 16 MiB. */
struct gateway_stream {
	u32 lock; /* not 0 while `state` is looked at */
	u16 last; /* when its last packet passed: the monotonic clock in 2^30 ns; wraps */
	u8 group; /* its place among the groups */
	u8 unused;
	struct ekb_stream state;
};

struct gateway_group {
	struct ekb_group state; /* in a cache line of its own, since all processors write it */
	u64 unused[4];
	struct ekb_settings settings;
	u16 source_ports[2], destination_ports[2]; /* the first and the last, in the host's order */
	u32 assumed_scale; /* and 1, of streams whose handshake was not seen; 0: they are left alone */
	u32 number; /* what user space calls it */
	u32 also_unused[4];
};

_Static_assert(sizeof(struct gateway_group) == 128, "two cache lines");

/* A prefix of addresses, as the kernel's tries want it. */
struct prefix4 {
	u32 length;
	u32 address;
};

struct prefix6 {
	u32 length;
	u32 address[4];
};

/* Of a prefix: the groups, one bit each, that have it among their networks or a wider one. */
struct prefix_groups {
	u64 sources, destinations;
};

struct gateway_keeper {
	u64 until_ns; /* of the monotonic clock: afterwards packets pass untouched; 0: always */
	u64 clock_us; /* the time, for tests */
	u64 mark; /* by which a later process knows these programs and settings */
	u32 assumes; /* some group has an assumed scale */
	u32 unused;
};

#define SWEPT_MOST 64

/* What the sweeper shall do. Times are in 2^30 ns. */
struct gateway_sweep {
	u32 open, opening; /* how long a stream may be without packets: with a handshake, and before */
	u32 closing; /* and once either end has sent its FIN */
	u32 version; /* of IP */
	u32 count; /* of the keys */
	union {
		struct stream4_key key4;
		struct stream6_key key6;
	} keys[SWEPT_MOST];
};

_Static_assert(sizeof(struct gateway_sweep) == 20 + SWEPT_MOST * 36, "as layout.rs writes it");

/* Since the programs were loaded; one for each processor. */
struct gateway_counters {
	u64 seen; /* packets */
	u64 tracked; /* packets of streams */
	u64 rewritten; /* windows */
	u64 begun; /* streams */
	u64 ended; /* streams, not those swept */
	u64 full; /* SYNs of streams for which there was no place */
	u64 malformed; /* packets */
	u64 is_signed; /* packets with TCP-MD5 or TCP-AO, of streams that would be tracked */
	u64 without_handshake; /* packets of streams whose SYN was seen, but no SYN-ACK that fits it */
	u64 unkept; /* packets of streams while there was no keeper */
	u64 busy; /* packets that passed untouched, since another one of their stream was being looked at for too long */
	u64 lost; /* events for which the buffer had no room */
};

enum gateway_event_kind {
	GATEWAY_BEGUN = 0, /* the handshake is over */
	GATEWAY_ENDED = 1,
	GATEWAY_CONGESTION = 2, /* a throttling of the group begins with this stream */
	GATEWAY_LIMITED = 3, /* the stream's windows are limited from now on */
	GATEWAY_UNLIMITED = 4, /* no longer, with EKB_DELIVERED */
	GATEWAY_RELEASED = 5, /* the group, with the paper's policy */
};

struct gateway_event {
	u64 at_us; /* the monotonic clock */
	u32 kind;
	u32 group; /* its number */
	u32 throttling; /* the number of the group's last */
	u32 limit; /* bytes, of the stream's windows; 0: none */
	u32 rtt_us; /* 0: unknown */
	u32 version; /* of IP */
	u32 sender[4], receiver[4]; /* network order, as the ports */
	u16 sender_port, receiver_port;
	u32 unused;
};

#endif
