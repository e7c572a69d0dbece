// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/* The gateway in the running kernel: parallel streams kept in balance. The decision, and the reading of packets, are
 * crates/window-balance's; this finds the stream of a packet and writes the window. One program stands at the egress of the device
 * of the wide area network, where data leaves, and one at its ingress, where ACKs come back.
 *
 * A packet takes one lookup, of its connection, and mostly not even that: a table of few bytes tells whether any stream may be the
 * packet's. Without a stream it goes on at once; only a SYN is compared with the groups. */
#include "gateway_maps.h"
#include "gateway_streams.h"
#include "gateway_sweep.h"
#include "gateway_tell.h"

#include "ekiden/assumed.h"

/* Some helpers want a GPL-compatible licence. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Bytes that are brought into the packet's first part if its headers are not there: more than those of any that is read usually. */
#define PULLED 256

/* Tests have a clock of their own: gateway_keeper.clock_us. */
const volatile u32 ekiden_own_clock = 0;

/* Microseconds: multiplications in place of a division, and as exact for 15 years. 2^32 is 4294967 * 1000 + 296. */
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

/* A packet of a stream. The element may have been deleted, and given to another connection, since it was looked up: then that
 * one's handshake is not over, so nothing is written. */
INLINE int observe(struct __sk_buff *skb, struct passing *passing, struct gateway_keeper *keeper,
		   struct gateway_stream *stream, int is_new)
{
	struct ekb_frame *frame = &passing->frame;
	struct ekb_options *options = 0;
	struct ekb_stream *state = &stream->state;
	u32 index = stream->group, field, found, seen;
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
		if (is_new || (found == EKB_SIGNED && !ekb_is_open(state)))
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
	if (is_new && !(frame->flags & EKB_SYN))
		ekb_assume(state, &packet, group->assumed_scale - 1);
	look(group, state, &before);
	field = ekb_observe(&group->settings, &group->state, state, stream->group, &packet);
	look(group, state, &after);
	/* One that never opens loses its place however much it sends. */
	if (is_new || ekb_is_open(state))
		stream->last = (u16)(passing->now_ns >> 30);
	index = state->rtt_us;
	seen = state->seen;
	unlock(stream);

	if (field && rewrite(skb, frame, field))
		passing->counters.rewritten++;
	if (seen && !(seen & EKB_OPEN) && !(frame->flags & EKB_SYN))
		passing->counters.without_handshake++;
	if (before.throttling != after.throttling || before.stalled != after.stalled || before.limit != after.limit ||
	    before.limited_in != after.limited_in || before.is_open != after.is_open) {
		struct told told = { .group = group->number, .rtt_us = index };

		tell(passing, &before, &after, &told);
	}
	if (before.is_open && !after.is_open)
		passing->counters.ended++;
	if (!seen)
		delete(passing);
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
	/* What has come from the wide area network is no sender's, whatever it says. */
	if (direction == EKB_DATA && skb->ingress_ifindex == skb->ifindex)
		return NEXT;
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
