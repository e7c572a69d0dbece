/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The parts of the kernel's types that the programs use. Offsets are found at load time from the running kernel's BTF, so one
 * object fits every kernel that has the fields. */
#ifndef EKIDEN_KERNEL_H
#define EKIDEN_KERNEL_H

#include <linux/bpf.h>
#include <stdbool.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		u32 u6_addr32[4];
	} in6_u;
};

struct net {
	u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate; /* bytes per second */
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
};

struct inet_sock {
	__be16 inet_sport; /* stays when a closed socket gives its port back, unlike skc_num */
};

struct inet_connection_sock {
	u32 icsk_rto; /* jiffies */
	u64 icsk_ca_priv[13];
};

struct tcp_sock {
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 packets_out;
	u32 max_packets_out;
	u32 mss_cache;
	u32 delivered; /* segments, as the next */
	u32 lost;
	u32 srtt_us; /* eighths of a microsecond */
	u64 tcp_mstamp;
	u32 lsndtime; /* when data was last sent, in jiffies */
	u8 is_cwnd_limited : 1;
};

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
};

struct rate_sample {
	u32 prior_delivered;
	s32 delivered;
	s32 delivered_ce; /* Linux 5.18 */
	long interval_us;
	long rtt_us;
	int losses;
	u32 acked_sacked;
	u32 prior_in_flight;
	bool is_app_limited;
};

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, u32 event);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rate);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	char name[16];
	u32 flags;
	u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

#pragma clang attribute pop

/* Whether the running kernel has this field (BPF_FIELD_EXISTS). */
#define HAS_FIELD(field) __builtin_preserve_field_info(field, 2)
#define AF_INET6 10
/* enum sk_pacing. */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
/* enum tcp_ca_state: after a retransmission timeout. */
#define TCP_CA_Loss 4
/* enum tcp_ca_event: something is sent with nothing in flight; the window starts anew after an idle time. */
#define CA_EVENT_TX_START 0
#define CA_EVENT_CWND_RESTART 1
/* Sockets without CAP_NET_ADMIN and namespaces may choose it. */
#define TCP_CONG_NON_RESTRICTED 1

#endif
