/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The types of the algorithms. No kernel types and no floating point: the same source is compiled natively and for eBPF. */
#ifndef EKIDEN_TYPES_H
#define EKIDEN_TYPES_H

typedef unsigned char ek_u8;
typedef unsigned int ek_u32;
typedef unsigned long long ek_u64;

#define EK_FN static inline __attribute__((always_inline))

/* A function that the kernel's verifier checks once, apart from its callers: a program of which all is one function has more ways through
 * than it looks at. Its pointers may be null to the verifier. It takes five arguments at most, and returns a number. */
#ifdef __bpf__
#define EK_APART __attribute__((noinline))
#else
#define EK_APART static inline
#endif

/* The state of a connection that a congestion control reads and changes. Windows count segments. */
struct ek_window {
	ek_u32 cwnd;
	ek_u32 cwnd_cnt; /* how far the next segment of growth has come, in 1 / (EK_SEGMENT * cwnd) */
	ek_u32 ssthresh;
	ek_u32 clamp; /* upper limit of cwnd */
};

/* The least slow start threshold: RFC 5681, equation 4. */
#define EK_SSTHRESH_LEAST 2

/* No threshold (Linux: TCP_INFINITE_SSTHRESH). */
#define EK_SSTHRESH_INFINITE 0x7fffffffu

/* Parts of a window are kept in 65536ths. */
#define EK_ONE 65536u

/* Growth per round trip is kept in 1024ths of a segment. */
#define EK_SEGMENT 1024u

EK_FN ek_u32 ek_min(ek_u32 a, ek_u32 b) { return a < b ? a : b; }
EK_FN ek_u32 ek_max(ek_u32 a, ek_u32 b) { return a > b ? a : b; }

/* The window after a loss takes `part` 65536ths of it, and at least a segment. */
EK_FN ek_u32 ek_decreased(ek_u32 cwnd, ek_u32 part)
{
	ek_u32 taken = ek_max((ek_u32)(((ek_u64)cwnd * part) >> 16), 1);

	return cwnd > taken ? ek_max(cwnd - taken, EK_SSTHRESH_LEAST) : EK_SSTHRESH_LEAST;
}

/* Grows the window after `acked` segments such that it grows by `per_round` 1024ths of a segment per round trip. Of windows
 * above four million segments a fraction is lost. */
EK_FN void ek_grow(struct ek_window *window, ek_u32 acked, ek_u32 per_round)
{
	ek_u64 whole = (ek_u64)ek_max(window->cwnd, 1) * EK_SEGMENT;
	ek_u64 count = window->cwnd_cnt + (ek_u64)acked * per_round;

	if (count >= whole) {
		ek_u64 cwnd = window->cwnd + count / whole;

		window->cwnd = cwnd < window->clamp ? (ek_u32)cwnd : ek_max(window->clamp, 1);
		count %= whole;
	}
	window->cwnd_cnt = (ek_u32)count;
}

#endif
