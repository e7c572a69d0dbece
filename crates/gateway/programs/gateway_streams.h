/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Finding the stream of a packet and its group, and giving it a place; only one packet of a stream is looked at at a time. */
#ifndef EKIDEN_GATEWAY_STREAMS_H
#define EKIDEN_GATEWAY_STREAMS_H

#include "gateway_maps.h"

/* About a microsecond. */
#define LOCK_TRIES 64

/* Fibonacci hashing of a connection's words. */
#define MIX 0x9e3779b97f4a7c15ull

INLINE u32 slot_of(u64 addresses, u32 ports) { return (u32)((((addresses * MIX) ^ ports) * MIX) >> 48); }

INLINE u32 slot4(const struct stream4_key *key)
{
	return slot_of((u64)key->sender << 32 | key->receiver, (u32)key->sender_port << 16 | key->receiver_port);
}

INLINE u32 slot6(const struct stream6_key *key)
{
	u64 sender = ((u64)key->sender[0] << 32 | key->sender[1]) ^ ((u64)key->sender[3] << 32 | key->sender[2]) * MIX;
	u64 receiver = ((u64)key->receiver[0] << 32 | key->receiver[1]) ^ ((u64)key->receiver[3] << 32 | key->receiver[2]) * MIX;

	return slot_of(sender * MIX + receiver, (u32)key->sender_port << 16 | key->receiver_port);
}

INLINE void make_key(struct passing *passing)
{
	const struct ekb_frame *frame = &passing->frame;
	int is_data = passing->direction == EKB_DATA, i;
	u16 sender_port = is_data ? frame->source_port : frame->destination_port;
	u16 receiver_port = is_data ? frame->destination_port : frame->source_port;
	struct stream4_key key4;
	struct stream6_key key6;

	if (frame->version == 4) {
		key4.sender = is_data ? frame->source[0] : frame->destination[0];
		key4.receiver = is_data ? frame->destination[0] : frame->source[0];
		key4.sender_port = sender_port;
		key4.receiver_port = receiver_port;
		passing->key4 = key4;
		passing->slot = slot4(&key4);
		return;
	}
	for (i = 0; i < 4; i++) {
		key6.sender[i] = is_data ? frame->source[i] : frame->destination[i];
		key6.receiver[i] = is_data ? frame->destination[i] : frame->source[i];
	}
	key6.sender_port = sender_port;
	key6.receiver_port = receiver_port;
	passing->key6 = key6;
	passing->slot = slot6(&key6);
}

INLINE u32 *slot(u32 index) { return &ekiden_slots[index & (SLOTS - 1)]; }

INLINE struct gateway_stream *lookup(const struct passing *passing)
{
	if (!*(volatile u32 *)slot(passing->slot))
		return 0;
	if (passing->frame.version == 4)
		return bpf_map_lookup_elem(&ekiden_streams4, &passing->key4);
	return bpf_map_lookup_elem(&ekiden_streams6, &passing->key6);
}

INLINE const struct prefix_groups *groups_of(const struct passing *passing, int is_sender)
{
	struct prefix6 net6 = { .length = 128 };
	struct prefix4 net4 = { .length = 32 };
	int i;

	if (passing->frame.version == 4) {
		net4.address = is_sender ? passing->key4.sender : passing->key4.receiver;
		return bpf_map_lookup_elem(&ekiden_nets4, &net4);
	}
	for (i = 0; i < 4; i++)
		net6.address[i] = is_sender ? passing->key6.sender[i] : passing->key6.receiver[i];
	return bpf_map_lookup_elem(&ekiden_nets6, &net6);
}

INLINE int within(u16 port, const u16 ports[2]) { return ports[0] <= port && port <= ports[1]; }

/* The group of a stream that is not tracked; GROUPS_MOST without. Lower numbers go before. */
static __noinline u32 match(const struct passing *passing)
{
	const struct prefix_groups *sender = groups_of(passing, 1), *receiver = groups_of(passing, 0);
	u16 sender_port, receiver_port;
	struct gateway_group *group;
	u64 bits;
	u32 i;

	if (!sender || !receiver)
		return GROUPS_MOST;
	bits = sender->sources & receiver->destinations;
	if (!bits)
		return GROUPS_MOST;
	if (passing->frame.version == 4) {
		sender_port = ekb_order16(passing->key4.sender_port);
		receiver_port = ekb_order16(passing->key4.receiver_port);
	} else {
		sender_port = ekb_order16(passing->key6.sender_port);
		receiver_port = ekb_order16(passing->key6.receiver_port);
	}
#pragma clang loop unroll(disable)
	for (i = 0; i < GROUPS_MOST; i++, bits >>= 1) {
		u32 index = i;

		if (!(bits & 1))
			continue;
		group = bpf_map_lookup_elem(&ekiden_groups, &index);
		if (group && within(sender_port, group->source_ports) && within(receiver_port, group->destination_ports))
			return i;
	}
	return GROUPS_MOST;
}

/* A place for the stream. Another processor may have made it just now. */
static __noinline struct gateway_stream *insert(struct passing *passing, u32 group)
{
	struct gateway_stream stream = { .group = (u8)group };
	long error;

	/* Before it is there, so that none is there without. */
	__sync_fetch_and_add(slot(passing->slot), 1);
	if (passing->frame.version == 4)
		error = bpf_map_update_elem(&ekiden_streams4, &passing->key4, &stream, BPF_NOEXIST);
	else
		error = bpf_map_update_elem(&ekiden_streams6, &passing->key6, &stream, BPF_NOEXIST);
	if (!error)
		passing->counters.begun++;
	else
		__sync_fetch_and_add(slot(passing->slot), -1);
	if (error && error != -17) /* EEXIST */
		passing->counters.full++;
	return lookup(passing);
}

INLINE void delete(const struct passing *passing)
{
	long error;

	if (passing->frame.version == 4)
		error = bpf_map_delete_elem(&ekiden_streams4, &passing->key4);
	else
		error = bpf_map_delete_elem(&ekiden_streams6, &passing->key6);
	if (!error)
		__sync_fetch_and_add(slot(passing->slot), -1);
}

/* Only one packet of a stream may be looked at at a time. bpf_spin_lock would do, but switches interrupts off and on again, and
 * lets no clock be read meanwhile. This one is not waited for for ever: an interrupt may hold up the one that has it. */
struct waiting {
	struct gateway_stream *stream;
	int has_it;
};

static long try_lock(u32 index, void *context)
{
	struct waiting *waiting = context;

	waiting->has_it = !__sync_lock_test_and_set(&waiting->stream->lock, 1);
	return waiting->has_it;
}

static __noinline int wait(struct gateway_stream *stream)
{
	struct waiting waiting = { .stream = stream };

	bpf_loop(LOCK_TRIES, try_lock, &waiting, 0);
	return waiting.has_it;
}

INLINE int lock(struct gateway_stream *stream)
{
	return !__sync_lock_test_and_set(&stream->lock, 1) || wait(stream);
}

INLINE void unlock(struct gateway_stream *stream)
{
#ifdef __TARGET_ARCH_x86
	/* Stores are seen in their order. */
	barrier();
	*(volatile u32 *)&stream->lock = 0;
#else
	__sync_lock_test_and_set(&stream->lock, 0);
#endif
}

#endif
