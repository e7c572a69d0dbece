// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only
/* HSTCP, gentle HSTCP and BIC for the running kernel. The arithmetic is crates/congestion's; this connects it to sockets. */
#include "sockets.h"

extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

/* Whether the window is what limits the sender (RFC 7661; the kernel's tcp_is_cwnd_limited is not callable). */
INLINE bool limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

INLINE void on_cong_avoid(struct sock *sk, u32 acked, u32 algorithm)
{
	const struct ek_tunables *parameters = tunables();
	struct tcp_sock *tp = tcp_sk(sk);
	struct ek_window before = window(tp), after = before;

	if (!parameters || !limited(tp))
		return;
	ek_acked(algorithm, parameters, &connection(sk)->state, &after, acked);
	tp->snd_cwnd = after.cwnd;
	tp->snd_cwnd_cnt = after.cwnd_cnt;
	/* HyStart++ ends slow start. */
	if (after.ssthresh != before.ssthresh)
		tp->snd_ssthresh = after.ssthresh;
	tell(sk, algorithm, EK_EVENT_ACKED, acked, &before);
}

INLINE u32 on_undo_cwnd(struct sock *sk, u32 algorithm)
{
	struct ek_window before = window(tcp_sk(sk));
	u32 cwnd = tcp_reno_undo_cwnd(sk);
	int changed = ek_undo(algorithm, &connection(sk)->state);

	/* The kernel restores the threshold. */
	tell(sk, algorithm, EK_EVENT_UNDO, cwnd, &before);
	if (changed)
		tell(sk, algorithm, EK_EVENT_MODE, connection(sk)->state.ghstcp.mode, &before);
	return cwnd;
}

/* Nothing was sent for longer than a retransmission timeout; the window may start anew (tcp_slow_start_after_idle) or not. Linux
 * 7.1 tells of CA_EVENT_TX_START by a call of its own, which is not made here: there only a new start counts. */
INLINE bool idle(struct sock *sk, u32 event)
{
	u32 passed = (u32)bpf_jiffies64() - tcp_sk(sk)->lsndtime;

	return event == CA_EVENT_CWND_RESTART ||
	       (event == CA_EVENT_TX_START && passed > ((struct inet_connection_sock *)sk)->icsk_rto);
}

INLINE void on_cwnd_event(struct sock *sk, u32 event, u32 algorithm)
{
	struct ek_window before = window(tcp_sk(sk));
	int changed;

	if (!connection(sk)->round_end_us || !idle(sk, event))
		return;
	changed = ek_idle(algorithm, &connection(sk)->state, &before, 0);
	tell(sk, algorithm, EK_EVENT_IDLE, 0, &before);
	if (changed)
		tell(sk, algorithm, EK_EVENT_MODE, connection(sk)->state.ghstcp.mode, &before);
}

/* Each algorithm has its own programs, which differ in one constant. */
#define ALGORITHM(NAME, KERNEL_NAME, NUMBER) \
	SEC("struct_ops") void BPF_PROG(NAME##_init, struct sock *sk) { on_init(sk, NUMBER); } \
	SEC("struct_ops") void BPF_PROG(NAME##_rtt, struct sock *sk, const struct ack_sample *sample) \
	{ \
		on_pkts_acked(sk, sample, NUMBER); \
	} \
	SEC("struct_ops") void BPF_PROG(NAME##_acked, struct sock *sk, u32 ack, u32 acked) \
	{ \
		on_cong_avoid(sk, acked, NUMBER); \
	} \
	SEC("struct_ops") u32 BPF_PROG(NAME##_loss, struct sock *sk) { return on_ssthresh(sk, NUMBER); } \
	SEC("struct_ops") void BPF_PROG(NAME##_state, struct sock *sk, u8 state) { on_set_state(sk, state, NUMBER); } \
	SEC("struct_ops") void BPF_PROG(NAME##_event, struct sock *sk, u32 event) { on_cwnd_event(sk, event, NUMBER); } \
	SEC("struct_ops") u32 BPF_PROG(NAME##_undo, struct sock *sk) { return on_undo_cwnd(sk, NUMBER); } \
	SEC("struct_ops") void BPF_PROG(NAME##_end, struct sock *sk) { on_release(sk, NUMBER); } \
	SEC(".struct_ops.link") struct tcp_congestion_ops NAME = { \
		.init = (void *)NAME##_init, \
		.pkts_acked = (void *)NAME##_rtt, \
		.cong_avoid = (void *)NAME##_acked, \
		.ssthresh = (void *)NAME##_loss, \
		.set_state = (void *)NAME##_state, \
		.cwnd_event = (void *)NAME##_event, \
		.undo_cwnd = (void *)NAME##_undo, \
		.release = (void *)NAME##_end, \
		.flags = TCP_CONG_NON_RESTRICTED, \
		.name = KERNEL_NAME, \
	}

ALGORITHM(hstcp, "ekiden_hstcp", EK_HSTCP);
ALGORITHM(ghstcp, "ekiden_ghstcp", EK_GHSTCP);
ALGORITHM(bic, "ekiden_bic", EK_BIC);
