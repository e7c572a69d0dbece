// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/* ekiden_far for the running kernel. The arithmetic is crates/congestion's; this connects it to sockets. An object of its own: kernels
 * before 6.0 let no program set a socket's pacing. */
#include "sockets.h"

/* The kernel's version: cong_control has two arguments more from 6.10 on. */
extern int LINUX_KERNEL_VERSION __kconfig;

#define CONTROL_HAS_FLAGS (6 << 16 | 10 << 8)

/* What this host knows of its paths. Those that were not used for longest give way. */
struct path_key {
	u64 namespace;
	u32 local[4], remote[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct path_key);
	__type(value, struct ek_path);
} ekiden_paths SEC(".maps");

/* IPv4 addresses stand in the first word, also those of an IPv6 socket (RFC 4291, section 2.5.5.2). */
INLINE void path_address(u32 *to, const struct in6_addr *address)
{
	const u32 *words = address->in6_u.u6_addr32;

	if (!words[0] && !words[1] && words[2] == bpf_htonl(0xffff)) {
		to[0] = words[3];
		return;
	}
	to[0] = words[0];
	to[1] = words[1];
	to[2] = words[2];
	to[3] = words[3];
}

INLINE struct path_key path_key(struct sock *sk)
{
	struct path_key key = { .namespace = sk->__sk_common.skc_net.net->net_cookie };

	if (sk->__sk_common.skc_family == AF_INET6) {
		path_address(key.local, &sk->__sk_common.skc_v6_rcv_saddr);
		path_address(key.remote, &sk->__sk_common.skc_v6_daddr);
	} else {
		key.local[0] = sk->__sk_common.skc_rcv_saddr;
		key.remote[0] = sk->__sk_common.skc_daddr;
	}
	return key;
}

INLINE struct ek_path *known_path(struct sock *sk)
{
	struct path_key key = path_key(sk);

	return bpf_map_lookup_elem(&ekiden_paths, &key);
}

/* Begins with what is known of the path. */
INLINE void resume(struct sock *sk)
{
	const struct ek_tunables *parameters = tunables();
	struct ek_path *path = known_path(sk);

	if (path && parameters)
		ek_far_resume(&parameters->far, &connection(sk)->state.far, path, tcp_sk(sk)->tcp_mstamp);
}

/* The last argument of cong_control. Written in assembly, so that the compiler does not compute its place: the verifier wants it to be
 * a constant. */
INLINE const struct rate_sample *control_sample(u64 *context)
{
	const struct rate_sample *rate;

	if (LINUX_KERNEL_VERSION >= CONTROL_HAS_FLAGS)
		asm volatile("%0 = *(u64 *)(%1 + 24)" : "=r"(rate) : "r"(context));
	else
		asm volatile("%0 = *(u64 *)(%1 + 8)" : "=r"(rate) : "r"(context));
	return rate;
}

/* Sets the rate at which segments leave. */
INLINE void pace(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 rate = ek_far_pace(&connection(sk)->state.far, tp->srtt_us >> 3, tp->mss_cache);

	sk->sk_pacing_rate = rate < sk->sk_max_pacing_rate ? rate : sk->sk_max_pacing_rate;
}

SEC("struct_ops") void BPF_PROG(far_init, struct sock *sk)
{
	on_init(sk, EK_FAR);
	resume(sk);
	/* Where fq paces already, it goes on. */
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	if (tcp_sk(sk)->srtt_us)
		pace(sk);
}

SEC("struct_ops") void BPF_PROG(far_rtt, struct sock *sk, const struct ack_sample *sample) { on_pkts_acked(sk, sample, EK_FAR); }

SEC("struct_ops") void far_acked(u64 *context)
{
	struct sock *sk = (void *)context[0];
	const struct rate_sample *rate = control_sample(context);
	const struct ek_tunables *parameters = tunables();
	struct tcp_sock *tp = tcp_sk(sk);
	struct ek_window before = window(tp);
	struct ek_path path;
	u32 jumped;
	struct ek_sample sample = {
		.now_us = tp->tcp_mstamp,
		.delivered = tp->delivered,
		.delivered_before = rate->prior_delivered,
		.delivered_now = rate->acked_sacked,
		.lost = tp->lost,
		.lost_now = rate->losses > 0 ? (u32)rate->losses : 0,
		.was_in_flight = rate->prior_in_flight,
		.rtt_us = rate->rtt_us > 0 ? (u32)rate->rtt_us : 0,
		.srtt_us = tp->srtt_us >> 3,
		.mss = tp->mss_cache,
		.is_valid = rate->delivered >= 0 && rate->interval_us > 0,
		.is_app_limited = rate->is_app_limited,
		.is_marked = HAS_FIELD(rate->delivered_ce) && rate->delivered_ce > 0,
	};

	/* The handshake is acknowledged before the algorithm starts. */
	if (!parameters || !connection(sk)->round_end_us)
		return;
	if (connection(sk)->state.far.flags & EK_FAR_KNOWN)
		resume(sk);
	jumped = connection(sk)->state.far.flags & EK_FAR_JUMPS;
	tp->snd_cwnd = ek_min(ek_far_sample(&parameters->far, &connection(sk)->state.far, &sample), tp->snd_cwnd_clamp);
	pace(sk);
	if (!jumped && connection(sk)->state.far.flags & EK_FAR_JUMPS) {
		struct ek_path *used = known_path(sk);

		if (used)
			ek_far_claim(used, tp->tcp_mstamp);
	}
	if (ek_far_learnt(&connection(sk)->state.far, tp->tcp_mstamp, &path)) {
		struct path_key key = path_key(sk);

		bpf_map_update_elem(&ekiden_paths, &key, &path, BPF_ANY);
	}
	tell(sk, EK_FAR, EK_EVENT_ACKED, rate->acked_sacked, &before);
}

/* Something is sent with nothing in flight. The last round trip ended when the next was due. Linux 7.1 tells of it by a call of its own,
 * which is not made here: there a pause means nothing. */
SEC("struct_ops") void BPF_PROG(far_event, struct sock *sk, u32 event)
{
	struct ek_window before = window(tcp_sk(sk));
	u64 due = connection(sk)->round_end_us, now = tcp_sk(sk)->tcp_mstamp;

	/* After a timeout nothing is in flight either. */
	if (event != CA_EVENT_TX_START || !due || tcp_sk(sk)->packets_out)
		return;
	if (due > 1 && now > due) {
		struct ek_window after = before;

		ek_idle(EK_FAR, &connection(sk)->state, &after, now - due);
		tcp_sk(sk)->snd_cwnd = after.cwnd;
		tell(sk, EK_FAR, EK_EVENT_IDLE, 0, &before);
	}
	resume(sk);
	pace(sk);
}

SEC("struct_ops") u32 BPF_PROG(far_loss, struct sock *sk) { return on_ssthresh(sk, EK_FAR); }

SEC("struct_ops") void BPF_PROG(far_state, struct sock *sk, u8 state) { on_set_state(sk, state, EK_FAR); }

SEC("struct_ops") u32 BPF_PROG(far_undo, struct sock *sk)
{
	struct ek_window before = window(tcp_sk(sk));
	u32 cwnd;

	ek_undo(EK_FAR, &connection(sk)->state);
	cwnd = connection(sk)->state.far.window / EK_FAR_UNIT;
	tell(sk, EK_FAR, EK_EVENT_UNDO, cwnd, &before);
	return cwnd;
}

SEC("struct_ops") void BPF_PROG(far_end, struct sock *sk)
{
	struct ek_path *path = known_path(sk);

	/* Kernels before 6.13 release what was never established, too. */
	if (path && connection(sk)->round_end_us)
		ek_far_end(&connection(sk)->state.far, path);
	on_release(sk, EK_FAR);
}

SEC(".struct_ops.link") struct tcp_congestion_ops far = {
	.init = (void *)far_init,
	.pkts_acked = (void *)far_rtt,
	.cong_control = (void *)far_acked,
	.ssthresh = (void *)far_loss,
	.set_state = (void *)far_state,
	.cwnd_event = (void *)far_event,
	.undo_cwnd = (void *)far_undo,
	.release = (void *)far_end,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "ekiden_far",
};
