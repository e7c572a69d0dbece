/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The maps of the gateway's programs. */
#ifndef EKIDEN_GATEWAY_MAPS_H
#define EKIDEN_GATEWAY_MAPS_H

#include "gateway.h"
#include <bpf/bpf_helpers.h>

#define EKB_LOOP(most, step, context) bpf_loop(most, step, context, 0)
#include "ekiden/frame.h"

#define INLINE static __always_inline

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct stream4_key);
	__type(value, struct gateway_stream);
} ekiden_streams4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct stream6_key);
	__type(value, struct gateway_stream);
} ekiden_streams6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GROUPS_MOST);
	__type(key, u32);
	__type(value, struct gateway_group);
} ekiden_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct prefix4);
	__type(value, struct prefix_groups);
} ekiden_nets4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct prefix6);
	__type(value, struct prefix_groups);
} ekiden_nets6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gateway_keeper);
} ekiden_keeper SEC(".maps");

/* How many streams of both tables have each slot. Looking at it takes a fraction of the time that the kernel's hash takes. */
#define SLOTS (1 << 16)
u32 ekiden_slots[SLOTS];

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gateway_sweep);
} ekiden_sweeping SEC(".maps");

/* A packet that is TCP, and what belongs to it. One for each processor, since it is too large for the stack: while a packet passes, no
 * other one does on the same. */
struct passing {
	struct gateway_counters counters; /* first: user space reads it there */
	struct ekb_frame frame;
	union {
		struct stream4_key key4;
		struct stream6_key key6;
	};
	u64 now_ns; /* of the monotonic clock's coarse twin, within some milliseconds */
	u32 direction;
	u32 slot; /* in ekiden_slots */
	struct ekb_options options;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct passing);
} ekiden_passing SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} ekiden_events SEC(".maps");

#endif
