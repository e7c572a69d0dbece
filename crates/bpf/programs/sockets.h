/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What the programs of all congestion controls share: parameters, events, and calls that mean the same for all. */
#ifndef EKIDEN_SOCKETS_H
#define EKIDEN_SOCKETS_H

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "ekiden/algorithms.h"
#include "trace.h"

/* The kernel accepts struct_ops programs only under a GPL-compatible licence. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* No more than one EK_EVENT_ROUND in this time, however short the round trips. */
#define ROUND_LEAST_US 1000

/* The state of a connection, in icsk_ca_priv. */
struct connection {
	union ek_state state;
	u64 round_end_us; /* when the next EK_EVENT_ROUND is due; 0 before the start */
};

_Static_assert(sizeof(struct connection) <= 104, "icsk_ca_priv has 104 bytes");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ek_tunables);
} ekiden_tunables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ek_lease);
} ekiden_lease SEC(".maps");

/* Events lost because the ring buffer was full, since the programs were loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} ekiden_lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} ekiden_events SEC(".maps");

#define INLINE static __always_inline

INLINE struct tcp_sock *tcp_sk(struct sock *sk) { return (struct tcp_sock *)sk; }

INLINE struct connection *connection(struct sock *sk)
{
	return (struct connection *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

INLINE const struct ek_tunables *tunables(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&ekiden_tunables, &key);
}

INLINE struct ek_window window(const struct tcp_sock *tp)
{
	struct ek_window window = {
		.cwnd = tp->snd_cwnd,
		.cwnd_cnt = tp->snd_cwnd_cnt,
		.ssthresh = tp->snd_ssthresh,
		.clamp = tp->snd_cwnd_clamp,
	};

	return window;
}

/* Reports an event, if a reader has the lease. */
INLINE void tell(struct sock *sk, u32 algorithm, u32 kind, u32 value, const struct ek_window *before)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ek_event *event;
	struct ek_lease *lease;
	u64 now = tp->tcp_mstamp;
	u32 key = 0;
	u64 *lost;

	lease = bpf_map_lookup_elem(&ekiden_lease, &key);
	if (!lease || lease->until_us < now || (kind >= EK_EVENT_RTT && lease->level < 2))
		return;
	event = bpf_ringbuf_reserve(&ekiden_events, sizeof(*event), 0);
	if (!event) {
		lost = bpf_map_lookup_elem(&ekiden_lost, &key);
		if (lost)
			__sync_fetch_and_add(lost, 1);
		return;
	}
	event->at_us = now;
	event->connection = (u64)sk;
	event->namespace = sk->__sk_common.skc_net.net->net_cookie;
	event->kind = kind;
	event->algorithm = algorithm;
	event->value = value;
	event->mode = 0;
	__builtin_memset(&event->model, 0, sizeof(event->model));
	if (algorithm == EK_GHSTCP)
		event->mode = connection(sk)->state.ghstcp.mode;
	if (algorithm == EK_FAR) {
		event->mode = ek_far_phase(&connection(sk)->state.far);
		ek_far_model(&connection(sk)->state.far, &event->model);
	}
	event->cwnd_before = before->cwnd;
	event->cwnd_cnt_before = before->cwnd_cnt;
	event->cwnd = tp->snd_cwnd;
	event->cwnd_cnt = tp->snd_cwnd_cnt;
	event->ssthresh = tp->snd_ssthresh;
	event->clamp = tp->snd_cwnd_clamp;
	event->srtt_us = tp->srtt_us >> 3;
	event->family = sk->__sk_common.skc_family;
	if (event->family == AF_INET6) {
		event->local[0] = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[0];
		event->local[1] = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[1];
		event->local[2] = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[2];
		event->local[3] = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[3];
		event->remote[0] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[0];
		event->remote[1] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[1];
		event->remote[2] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[2];
		event->remote[3] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[3];
	} else {
		event->local[0] = sk->__sk_common.skc_rcv_saddr;
		event->remote[0] = sk->__sk_common.skc_daddr;
		event->local[1] = event->local[2] = event->local[3] = 0;
		event->remote[1] = event->remote[2] = event->remote[3] = 0;
	}
	event->local_port = bpf_ntohs(((struct inet_sock *)sk)->inet_sport);
	event->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	bpf_ringbuf_submit(event, 0);
}

INLINE void on_init(struct sock *sk, u32 algorithm)
{
	struct ek_window before = window(tcp_sk(sk));

	ek_init(algorithm, &connection(sk)->state);
	connection(sk)->round_end_us = 1;
	tell(sk, algorithm, EK_EVENT_START, 0, &before);
}

INLINE void on_pkts_acked(struct sock *sk, const struct ack_sample *sample, u32 algorithm)
{
	const struct ek_tunables *parameters = tunables();
	struct tcp_sock *tp = tcp_sk(sk);
	struct ek_window before = window(tp);
	u64 now = tp->tcp_mstamp;
	s32 rtt = sample->rtt_us;
	int changed;

	/* The handshake's round-trip time is measured before the algorithm starts. */
	if (!parameters || !connection(sk)->round_end_us)
		return;
	if (rtt > 0) {
		changed = ek_rtt(algorithm, parameters, &connection(sk)->state, &before, now, (u32)rtt);
		tell(sk, algorithm, EK_EVENT_RTT, (u32)rtt, &before);
		if (changed)
			tell(sk, algorithm, EK_EVENT_MODE, connection(sk)->state.ghstcp.mode, &before);
	}
	if (now >= connection(sk)->round_end_us) {
		connection(sk)->round_end_us = now + ek_max(tp->srtt_us >> 3, ROUND_LEAST_US);
		tell(sk, algorithm, EK_EVENT_ROUND, 0, &before);
	}
}

INLINE u32 on_ssthresh(struct sock *sk, u32 algorithm)
{
	const struct ek_tunables *parameters = tunables();
	struct ek_window before = window(tcp_sk(sk));
	u32 ssthresh;

	if (!parameters)
		return ek_reno_ssthresh(before.cwnd);
	ssthresh = ek_ssthresh(algorithm, parameters, &connection(sk)->state, before.cwnd);
	tell(sk, algorithm, EK_EVENT_LOSS, ssthresh, &before);
	return ssthresh;
}

INLINE void on_set_state(struct sock *sk, u8 state, u32 algorithm)
{
	struct ek_window before = window(tcp_sk(sk));

	if (state != TCP_CA_Loss)
		return;
	ek_timeout(algorithm, &connection(sk)->state);
	tell(sk, algorithm, EK_EVENT_TIMEOUT, 0, &before);
}

INLINE void on_release(struct sock *sk, u32 algorithm)
{
	struct ek_window before = window(tcp_sk(sk));

	tell(sk, algorithm, EK_EVENT_END, 0, &before);
}

#endif
