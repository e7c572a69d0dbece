/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* All algorithms behind one set of entry points, for the native build. */
#ifndef EKIDEN_ALGORITHMS_H
#define EKIDEN_ALGORITHMS_H

#include "bic.h"
#include "far.h"
#include "ghstcp.h"

/* Raised whenever the layout below changes: parameters of a loaded program with another layout are not written. */
#define EK_TUNABLES_LAYOUT 4
#define EK_TUNABLES_GIVEN 22

struct ek_tunables {
	ek_u64 given[EK_TUNABLES_GIVEN]; /* the parameters as set, as bits of doubles; for tools, not for the algorithms */
	ek_u32 layout; /* EK_TUNABLES_LAYOUT */
	struct ek_hstcp_table hstcp;
	struct ek_ghstcp_tunables ghstcp;
	struct ek_bic_tunables bic;
	struct ek_slow_start_tunables slow_start;
	struct ek_far_tunables far;
};

enum ek_algorithm {
	EK_RENO = 0,
	EK_HSTCP = 1,
	EK_GHSTCP = 2,
	EK_BIC = 3,
	EK_FAR = 4,
};

/* The state of a connection. The kernel has 104 bytes for it. All but the last begin with slow start's. */
union ek_state {
	struct ek_hystart hystart;
	struct ek_ghstcp ghstcp;
	struct ek_bic bic;
	struct ek_far far;
};

EK_FN void ek_init(ek_u32 algorithm, union ek_state *state)
{
	if (algorithm == EK_GHSTCP)
		ek_ghstcp_init(&state->ghstcp);
	else if (algorithm == EK_BIC)
		ek_bic_init(&state->bic);
	else if (algorithm == EK_FAR)
		ek_far_init(&state->far);
	else
		ek_hystart_init(&state->hystart);
}

/* A round-trip time was measured. Returns whether the mode changed. A sample brings its own to EK_FAR. */
EK_FN int ek_rtt(ek_u32 algorithm, const struct ek_tunables *tunables, union ek_state *state,
		 const struct ek_window *window, ek_u64 now_us, ek_u32 rtt_us)
{
	if (algorithm == EK_FAR)
		return 0;
	ek_hystart_rtt(&state->hystart, rtt_us);
	if (algorithm == EK_GHSTCP)
		return ek_ghstcp_rtt(&tunables->ghstcp, &state->ghstcp, window, now_us, rtt_us);
	return 0;
}

/* Segments were acknowledged while the window limits the sender, outside of recovery. Not for EK_FAR, which ek_far_sample tells. */
EK_FN void ek_acked(ek_u32 algorithm, const struct ek_tunables *tunables, union ek_state *state,
		    struct ek_window *window, ek_u32 acked)
{
	/* Reno stands for the kernel's own, which reads no parameters. */
	const struct ek_slow_start_tunables standard = { 0, 0 };

	acked = ek_slow_start(algorithm == EK_RENO ? &standard : &tunables->slow_start, &state->hystart, window, acked);
	if (!acked)
		return;
	if (algorithm == EK_HSTCP)
		ek_hstcp_avoid(&tunables->hstcp, window, acked);
	else if (algorithm == EK_GHSTCP)
		ek_ghstcp_avoid(&tunables->hstcp, &state->ghstcp, window, acked);
	else if (algorithm == EK_BIC)
		ek_bic_avoid(&tunables->bic, &state->bic, window, acked);
	else
		ek_reno_avoid(window, acked);
}

/* A loss event. Returns the slow start threshold that follows. */
EK_FN ek_u32 ek_ssthresh(ek_u32 algorithm, const struct ek_tunables *tunables, union ek_state *state, ek_u32 cwnd)
{
	if (algorithm == EK_HSTCP)
		return ek_hstcp_ssthresh(&tunables->hstcp, cwnd);
	if (algorithm == EK_GHSTCP)
		return ek_ghstcp_ssthresh(&tunables->hstcp, &tunables->ghstcp, &state->ghstcp, cwnd);
	if (algorithm == EK_BIC)
		return ek_bic_ssthresh(&tunables->bic, &state->bic, cwnd);
	if (algorithm == EK_FAR)
		return EK_SSTHRESH_INFINITE;
	return ek_reno_ssthresh(cwnd);
}

/* A retransmission timeout, after ek_ssthresh: the path may have changed, so what was learnt about it is forgotten. */
EK_FN void ek_timeout(ek_u32 algorithm, union ek_state *state)
{
	if (algorithm == EK_GHSTCP)
		ek_ghstcp_timeout(&state->ghstcp);
	else if (algorithm == EK_BIC)
		ek_bic_timeout(&state->bic);
	else if (algorithm == EK_FAR)
		ek_far_timeout(&state->far);
}

/* The last loss event was none (RFC 3522, RFC 5682): back to what was known before. The caller restores window and threshold.
 * Returns whether the mode changed. */
EK_FN int ek_undo(ek_u32 algorithm, union ek_state *state)
{
	if (algorithm == EK_GHSTCP)
		return ek_ghstcp_undo(&state->ghstcp);
	if (algorithm == EK_BIC)
		ek_bic_undo(&state->bic);
	else if (algorithm == EK_FAR)
		ek_far_undo(&state->far);
	return 0;
}

/* Nothing was sent for longer than a retransmission timeout, and now something is. Returns whether the mode changed. */
EK_FN int ek_idle(ek_u32 algorithm, union ek_state *state, struct ek_window *window, ek_u64 idle_us)
{
	if (algorithm == EK_FAR)
		ek_far_idle(&state->far, window, idle_us);
	return algorithm == EK_GHSTCP ? ek_ghstcp_idle(&state->ghstcp) : 0;
}

#endif
