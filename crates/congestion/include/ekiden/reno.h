/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Reno: RFC 5681, section 3.1, counting segments that were acknowledged (RFC 3465 without a limit, as Linux does). */
#ifndef EKIDEN_RENO_H
#define EKIDEN_RENO_H

#include "types.h"

/* Congestion avoidance. */
EK_FN void ek_reno_avoid(struct ek_window *window, ek_u32 acked) { ek_grow(window, acked, EK_SEGMENT); }

EK_FN ek_u32 ek_reno_ssthresh(ek_u32 cwnd) { return ek_decreased(cwnd, EK_ONE / 2); }

#endif
