// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/* The gateway in the running kernel: parallel streams kept in balance. The decision, and the reading of packets, are
 * crates/window-balance's; this finds the stream of a packet and writes the window. One program stands at the egress of the device
 * of the wide area network, where data leaves, and one at its ingress, where ACKs come back.
 *
 * A packet takes one lookup, of its connection, and mostly not even that: a table of few bytes tells whether any stream may be the
 * packet's. Without a stream it goes on at once; only a SYN is compared with the groups. */
#include "gateway.h"
#include <bpf/bpf_helpers.h>

#define EKB_LOOP(most, step, context) bpf_loop(most, step, context, 0)
#include "ekiden/frame.h"
#include "ekiden/assumed.h"

/* Some helpers want a GPL-compatible licence. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The next program on the hook decides (TCX_NEXT, TC_ACT_UNSPEC). */
#define NEXT (-1)
/* Bytes that are brought into the packet's first part if its headers are not there: more than those of any that is read usually. */
#define PULLED 256
#define INLINE static __always_inline
/* About a microsecond. */
#define LOCK_TRIES 64

/* Tests have a clock of their own: gateway_keeper.clock_us. */
const volatile u32 ekiden_own_clock = 0;

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

/* How many streams of both tables have each slot. Looking it up takes an eighth of the time that the kernel's hash takes. */
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

/* What an event tells of a stream. */
struct told {
	u32 kind;
	u32 group;
	u32 throttling;
	u32 limit;
	u32 rtt_us;
};

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

/* Microseconds: a division that takes a third of the time of the processor's, and is as exact. 2^32 is 4294967 * 1000 + 296. */
INLINE u64 microseconds(u64 ns)
{
	u64 high = ns >> 32, rest = high * 296 + (u32)ns;

	return high * 4294967 + (((rest >> 3) * 2199023256) >> 38);
}

/* The helper does what each kind of checksum needs: of one that the device has yet to compute, nothing; one that the device has computed
 * over the whole packet stays right, since window and checksum change by the same amount. */
INLINE int rewrite(struct __sk_buff *skb, const struct ekb_frame *frame, u32 field)
{
	u16 before = ekb_order16(frame->window), after = ekb_order16((u16)field);

	u8 *tcp = (u8 *)ekb_at((const u8 *)(long)skb->data, (const u8 *)(long)skb->data_end, frame->tcp, EKB_TCP_LEAST);

	if (!tcp)
		return 0;
	*(u16 *)(tcp + EKB_WINDOW_AT) = after;
	if (!bpf_l4_csum_replace(skb, frame->tcp + EKB_CHECKSUM_AT, before, after, sizeof(after)))
		return 1;
	bpf_skb_store_bytes(skb, frame->tcp + EKB_WINDOW_AT, &before, sizeof(before), 0);
	return 0;
}

/* Only one packet of a stream may be looked at at a time. bpf_spin_lock would do, but switches interrupts off and on again, which
 * takes as long as all that is done meanwhile. This one is not waited for for ever: an interrupt may hold up the one that has it. */
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

/* Reads the options into this processor's place for them, if they are wanted. */
INLINE u32 read_options(struct __sk_buff *skb, struct passing *passing, const struct ekb_frame *frame, struct ekb_options **options)
{
	u32 length = frame->options;

	if (!ekb_wants_options(frame, passing->direction))
		return EKB_TCP;
	*options = &passing->options;
	passing->options.length = length;
	if (length - 1 >= EKB_OPTIONS_MOST || bpf_skb_load_bytes(skb, frame->tcp + EKB_TCP_LEAST, passing->options.bytes, length))
		return EKB_MALFORMED;
	return ekb_read_options(&passing->options);
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
	into->is_open = state->seen & EKB_OPEN;
}

/* A packet of a stream. The element may have been deleted, and given to another connection, since it was looked up: then that
 * one's handshake is not over, so nothing is written. */
INLINE int observe(struct __sk_buff *skb, struct passing *passing, struct gateway_keeper *keeper,
		   struct gateway_stream *stream, int is_new)
{
	struct ekb_frame *frame = &passing->frame;
	struct ekb_options *options = 0;
	struct ekb_stream *state = &stream->state;
	u32 index = stream->group, field, found;
	struct before before, after;
	struct gateway_group *group;
	struct ekb_packet packet;

	passing->counters.tracked++;
	group = bpf_map_lookup_elem(&ekiden_groups, &index);
	if (!group)
		return NEXT;
	found = ekb_read_tcp((const u8 *)(long)skb->data, (const u8 *)(long)skb->data_end, frame);
	if (found == EKB_TCP)
		found = read_options(skb, passing, frame, &options);
	if (found != EKB_TCP) {
		if (found == EKB_SIGNED)
			passing->counters.is_signed++;
		else
			passing->counters.malformed++;
		/* A SYN of a stream that is there may be anyone's. */
		if (is_new || (found == EKB_SIGNED && !(state->seen & EKB_OPEN)))
			delete(passing);
		return NEXT;
	}
	ekb_to_packet(frame, options, passing->direction, skb->gso_size, 0, &packet);
	if (!lock(stream)) {
		passing->counters.busy++;
		return NEXT;
	}
	if (ekiden_own_clock)
		packet.time_us = keeper->clock_us;
	else if (ekb_wants_time(&group->state, state, &packet))
		packet.time_us = microseconds(bpf_ktime_get_ns());
	else
		packet.time_us = microseconds(passing->now_ns);
	stream->last = (u16)(passing->now_ns >> 30);
	if (is_new && !(frame->flags & EKB_SYN))
		ekb_assume(state, &packet, group->assumed_scale - 1);
	look(group, state, &before);
	field = ekb_observe(&group->settings, &group->state, state, stream->group, &packet);
	look(group, state, &after);
	index = state->rtt_us;
	unlock(stream);

	if (field && rewrite(skb, frame, field))
		passing->counters.rewritten++;
	if (!before.is_open && !after.is_open && !(frame->flags & EKB_SYN))
		passing->counters.without_handshake++;
	if (before.throttling != after.throttling || before.stalled != after.stalled || before.limit != after.limit ||
	    before.limited_in != after.limited_in || before.is_open != after.is_open) {
		struct told told = { .group = group->number, .rtt_us = index };

		tell(passing, &before, &after, &told);
	}
	if (before.is_open && !after.is_open) {
		passing->counters.ended++;
		delete(passing);
	}
	return NEXT;
}

/* A stream that is not tracked: with its SYN, or, in a group with an assumed scale, with any ACK. */
INLINE int may_begin(const struct passing *passing, const struct gateway_keeper *keeper, u32 flags)
{
	flags &= EKB_SYN | EKB_ACK | EKB_RST | EKB_FIN;
	return flags == EKB_SYN || (keeper->assumes && flags == EKB_ACK && passing->direction == EKB_ACKS);
}

INLINE struct gateway_stream *begin(struct passing *passing, u32 flags)
{
	u32 index = match(passing);
	struct gateway_group *group;

	if (index >= GROUPS_MOST)
		return 0;
	group = bpf_map_lookup_elem(&ekiden_groups, &index);
	if (!group || (!(flags & EKB_SYN) && !group->assumed_scale))
		return 0;
	return insert(passing, index);
}

INLINE int gateway(struct __sk_buff *skb, u32 direction)
{
	struct passing *passing;
	struct gateway_keeper *keeper;
	struct gateway_stream *stream;
	u32 zero = 0, found;
	int is_new, i;

	passing = bpf_map_lookup_elem(&ekiden_passing, &zero);
	keeper = bpf_map_lookup_elem(&ekiden_keeper, &zero);
	if (!passing || !keeper)
		return NEXT;
	passing->counters.seen++;
	passing->direction = direction;
#pragma clang loop unroll(disable)
	for (i = 0;; i++) {
		found = ekb_find((const u8 *)(long)skb->data, (const u8 *)(long)skb->data_end, skb->len, skb->gso_size, &passing->frame);
		if (found != EKB_CUT || i)
			break;
		bpf_skb_pull_data(skb, skb->len < PULLED ? skb->len : PULLED);
	}
	if (found != EKB_TCP) {
		passing->counters.malformed += found == EKB_MALFORMED;
		return NEXT;
	}
	make_key(passing);
	stream = lookup(passing);
	is_new = !stream;
	if (is_new && !may_begin(passing, keeper, passing->frame.flags))
		return NEXT;
	passing->now_ns = bpf_ktime_get_coarse_ns();
	if (keeper->until_ns && passing->now_ns > keeper->until_ns) {
		passing->counters.unkept++;
		return NEXT;
	}
	if (is_new)
		stream = begin(passing, passing->frame.flags);
	return stream ? observe(skb, passing, keeper, stream, is_new) : NEXT;
}

SEC("tc")
int ekiden_egress(struct __sk_buff *skb)
{
	return gateway(skb, EKB_DATA);
}

SEC("tc")
int ekiden_ingress(struct __sk_buff *skb)
{
	return gateway(skb, EKB_ACKS);
}

/* Later than now: the packet passed since the sweeper looked at the clock. */
#define AHEAD 16

INLINE int is_old(const struct gateway_stream *stream, const struct gateway_sweep *sweep)
{
	u32 age = (u16)(sweep->now - stream->last);

	return age <= 0xffff - AHEAD && age > (stream->state.seen & EKB_OPEN ? sweep->open : sweep->opening);
}

static long sweep4(void *map, struct stream4_key *key, struct gateway_stream *stream, struct gateway_sweep **sweep)
{
	u32 index = slot4(key);

	if (is_old(stream, *sweep) && !bpf_map_delete_elem(&ekiden_streams4, key)) {
		__sync_fetch_and_add(slot(index), -1);
		(*sweep)->swept++;
	}
	return 0;
}

static long sweep6(void *map, struct stream6_key *key, struct gateway_stream *stream, struct gateway_sweep **sweep)
{
	u32 index = slot6(key);

	if (is_old(stream, *sweep) && !bpf_map_delete_elem(&ekiden_streams6, key)) {
		__sync_fetch_and_add(slot(index), -1);
		(*sweep)->swept++;
	}
	return 0;
}

/* Not attached: user space runs it from time to time. */
SEC("tc")
int ekiden_sweep(struct __sk_buff *skb)
{
	struct gateway_sweep *sweep;
	u32 zero = 0;

	sweep = bpf_map_lookup_elem(&ekiden_sweeping, &zero);
	if (!sweep)
		return NEXT;
	sweep->now = (u32)(bpf_ktime_get_coarse_ns() >> 30);
	bpf_for_each_map_elem(&ekiden_streams4, sweep4, &sweep, 0);
	bpf_for_each_map_elem(&ekiden_streams6, sweep6, &sweep, 0);
	return NEXT;
}
