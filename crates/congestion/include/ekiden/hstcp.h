/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* HighSpeed TCP, RFC 3649: the larger the window, the faster it grows and the less a loss takes.
 *
 * w += a(w)/w per segment acknowledged, w -= b(w)*w per loss event (section 5). a(w) and b(w) are continuous functions there.
 * They are computed for rows of a table, and between two rows they are on the straight line. The table of Appendix B has rows
 * where a(w) has grown by 1. Read as steps it makes the mean window a fifth too small or too large. */
#ifndef EKIDEN_HSTCP_H
#define EKIDEN_HSTCP_H

#include "reno.h"

#define EK_HSTCP_ROWS 128 /* a power of two */
#define EK_HSTCP_UNUSED 0xffffffffu /* the window of a row that is not used */

/* Windows rise from row to row. Unused rows follow. */
struct ek_hstcp_row {
	ek_u32 window;
	ek_u32 increase; /* a(w), in 1024ths of a segment per round trip */
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

/* What lies between `from` and `to` as `cwnd` lies between the windows of two rows. */
EK_FN ek_u32 ek_hstcp_between(const struct ek_hstcp_row *row, const struct ek_hstcp_row *next, ek_u32 cwnd, ek_u32 from,
			      ek_u32 to)
{
	ek_u64 part, whole;

	if (cwnd <= row->window || next->window <= row->window || next->window == EK_HSTCP_UNUSED)
		return from;
	part = cwnd - row->window;
	whole = next->window - row->window;
	if (to >= from)
		return from + (ek_u32)((to - from) * part / whole);
	return from - (ek_u32)((from - to) * part / whole);
}

/* a(w), in 1024ths of a segment per round trip; Reno's where that is more. */
EK_FN ek_u32 ek_hstcp_increase(const struct ek_hstcp_table *table, ek_u32 cwnd)
{
	ek_u32 at = ek_hstcp_row_of(table, cwnd), after = at + 1 < EK_HSTCP_ROWS ? at + 1 : at;
	const struct ek_hstcp_row *row = &table->row[at & (EK_HSTCP_ROWS - 1)];
	const struct ek_hstcp_row *next = &table->row[after & (EK_HSTCP_ROWS - 1)];

	return ek_max(ek_hstcp_between(row, next, cwnd, row->increase, next->increase), EK_SEGMENT);
}

/* b(w), in 65536ths. */
EK_FN ek_u32 ek_hstcp_decrease(const struct ek_hstcp_table *table, ek_u32 cwnd)
{
	ek_u32 at = ek_hstcp_row_of(table, cwnd), after = at + 1 < EK_HSTCP_ROWS ? at + 1 : at;
	const struct ek_hstcp_row *row = &table->row[at & (EK_HSTCP_ROWS - 1)];
	const struct ek_hstcp_row *next = &table->row[after & (EK_HSTCP_ROWS - 1)];

	return ek_hstcp_between(row, next, cwnd, row->decrease, next->decrease);
}

/* Congestion avoidance. */
EK_FN void ek_hstcp_avoid(const struct ek_hstcp_table *table, struct ek_window *window, ek_u32 acked)
{
	ek_grow(window, acked, ek_hstcp_increase(table, window->cwnd));
}

EK_FN ek_u32 ek_hstcp_ssthresh(const struct ek_hstcp_table *table, ek_u32 cwnd)
{
	return ek_decreased(cwnd, ek_hstcp_decrease(table, cwnd));
}

#endif
