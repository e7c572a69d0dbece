// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/* What the gateway's programs are measured against, and tested beside. */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* In an IPv4 packet without VLAN tags and IP options. */
#define WINDOW_AT (14 + 20 + 14)

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} measure_next SEC(".maps");

SEC("tc")
int measure_empty(struct __sk_buff *skb) { return -1; }

/* Ends the chain of programs. */
SEC("tc")
int measure_last(struct __sk_buff *skb) { return 0; }

/* Writes the window that the packet had at first, and goes on to the next program: so that each run has one to lower. */
SEC("tc")
int measure_again(struct __sk_buff *skb)
{
	__u8 *at = (__u8 *)(long)skb->data + WINDOW_AT;

	if (at + 2 <= (__u8 *)(long)skb->data_end)
		*(__u16 *)at = bpf_htons(60000);
	bpf_tail_call(skb, &measure_next, 0);
	return -1;
}
