/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* HighSpeed TCP, RFC 3649: the larger the window, the faster it grows and the less a loss takes.
 *
 * w += a(w)/w per segment acknowledged, w -= b(w)*w per loss event (section 5), from a table as in Appendix B. */
#ifndef EKIDEN_HSTCP_H
#define EKIDEN_HSTCP_H

#include "reno.h"

/* The RFC's table has 73 rows; with other parameters a(w) may grow by more than 1 from row to row. A power of two. */
#define EK_HSTCP_ROWS 128
#define EK_HSTCP_UNUSED 0xffffffffu /* the window of a row that is not used */

/* A row holds for windows from its own up to the next row's. Unused rows follow. */
struct ek_hstcp_row {
	ek_u32 window;
	ek_u32 increase; /* a(w), in segments per round trip */
	ek_u32 decrease; /* b(w), in 65536ths */
};

struct ek_hstcp_table {
	struct ek_hstcp_row row[EK_HSTCP_ROWS];
};

/* The row of a window: the last one whose window is not larger, or the first. */
EK_FN ek_u32 ek_hstcp_row_of(const struct ek_hstcp_table *table, ek_u32 cwnd)
{
	ek_u32 at = 0, step;

	cwnd = ek_min(cwnd, EK_HSTCP_UNUSED - 1);
	for (step = EK_HSTCP_ROWS / 2; step; step /= 2) {
		ek_u32 next = (at + step) & (EK_HSTCP_ROWS - 1);

		if (table->row[next].window <= cwnd)
			at = next;
	}
	return at;
}

EK_FN ek_u32 ek_hstcp_increase(const struct ek_hstcp_table *table, ek_u32 cwnd)
{
	return table->row[ek_hstcp_row_of(table, cwnd) & (EK_HSTCP_ROWS - 1)].increase;
}

EK_FN ek_u32 ek_hstcp_decrease(const struct ek_hstcp_table *table, ek_u32 cwnd)
{
	return table->row[ek_hstcp_row_of(table, cwnd) & (EK_HSTCP_ROWS - 1)].decrease;
}

EK_FN void ek_hstcp_acked(const struct ek_hstcp_table *table, struct ek_window *window, ek_u32 acked)
{
	acked = ek_slow_start(window, acked);
	if (acked)
		ek_grow(window, (ek_u64)acked * ek_hstcp_increase(table, window->cwnd), 1);
}

EK_FN ek_u32 ek_hstcp_ssthresh(const struct ek_hstcp_table *table, ek_u32 cwnd)
{
	return ek_decreased(cwnd, ek_hstcp_decrease(table, cwnd));
}

#endif
