/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* Whether round-trip times rise with the time of departure: a one-sided t-test on Pearson's correlation
 * (Zhang, Hasegawa, Murata, MASCOTS 2004), r * sqrt((n - 2) / (1 - r^2)) > t(n - 2).
 *
 * Sums are exact, the comparison is r^2 > t^2 / (df + t^2) for r > 0, exact to about 2^-27. */
#ifndef EKIDEN_TREND_H
#define EKIDEN_TREND_H

#include "types.h"

#define EK_TREND_MOST 1024 /* samples in a test; a power of two */
#define EK_TREND_BITS 21 /* of a sample: sums of products then fit into 64 bits */
#define EK_TREND_LIMIT ((1u << EK_TREND_BITS) - 1)
#define EK_TREND_ONE (1u << 28) /* r^2 = 1 */

struct ek_trend {
	ek_u64 sum_dd, sum_tt, sum_dt;
	ek_u32 sum_d, sum_t;
	ek_u32 n;
};

/* Adds a sample; both at most EK_TREND_LIMIT, beyond that they are taken as the limit. At most EK_TREND_MOST count. */
EK_FN void ek_trend_add(struct ek_trend *trend, ek_u32 departure, ek_u32 rtt)
{
	ek_u32 d = ek_min(departure, EK_TREND_LIMIT), t = ek_min(rtt, EK_TREND_LIMIT);

	if (trend->n >= EK_TREND_MOST)
		return;
	trend->sum_dd += (ek_u64)d * d;
	trend->sum_tt += (ek_u64)t * t;
	trend->sum_dt += (ek_u64)d * t;
	trend->sum_d += d;
	trend->sum_t += t;
	trend->n += 1;
}

EK_FN void ek_trend_clear(struct ek_trend *trend)
{
	trend->sum_dd = 0;
	trend->sum_tt = 0;
	trend->sum_dt = 0;
	trend->sum_d = 0;
	trend->sum_t = 0;
	trend->n = 0;
}

/* The number of significant bits; 0 for 0. Without branches: the verifier explores both sides of each, through five calls in
 * a row. */
EK_FN ek_u32 ek_bits(ek_u64 value)
{
	value |= value >> 1;
	value |= value >> 2;
	value |= value >> 4;
	value |= value >> 8;
	value |= value >> 16;
	value |= value >> 32;
	/* Every bit below the highest is set now: count them, in pairs, fours, eights, and all bytes at once. */
	value -= (value >> 1) & 0x5555555555555555ull;
	value = (value & 0x3333333333333333ull) + ((value >> 2) & 0x3333333333333333ull);
	value = (value + (value >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (ek_u32)((value * 0x0101010101010101ull) >> 56);
}

/* How far a number must be shifted down to fit into 31 bits. */
EK_FN ek_u32 ek_excess(ek_u64 value)
{
	ek_u32 bits = ek_bits(value);

	return bits > 31 ? bits - 31 : 0;
}

/* r^2 of the samples in units of 1 / EK_TREND_ONE if they are correlated positively, else 0. */
EK_FN ek_u32 ek_trend_r2(const struct ek_trend *trend)
{
	ek_u64 n = trend->n;
	ek_u64 with = n * trend->sum_dt, against = (ek_u64)trend->sum_d * trend->sum_t;
	ek_u64 d = n * trend->sum_dd - (ek_u64)trend->sum_d * trend->sum_d;
	ek_u64 t = n * trend->sum_tt - (ek_u64)trend->sum_t * trend->sum_t;
	ek_u64 c, above, below, quotient;
	ek_u32 up, shift_c, shift_d, shift_t, above_up, below_up, down;

	if (with <= against || !d || !t)
		return 0;
	c = with - against;
	shift_c = ek_excess(c);
	shift_d = ek_excess(d);
	shift_t = ek_excess(t);
	above = (c >> shift_c) * (c >> shift_c);
	below = (d >> shift_d) * (t >> shift_t);
	/* r^2 = above * 2^(2 shift_c) / (below * 2^(shift_d + shift_t)); both normalised to 64 bits first. */
	above_up = 64 - ek_bits(above);
	below_up = 64 - ek_bits(below);
	above <<= above_up & 63;
	below <<= below_up & 63;
	quotient = above / (below >> 32); /* above / below, times 2^32 */
	/* Times 2^28 is down by 4; the rest undoes the shifts. */
	up = 2 * shift_c + below_up;
	down = 4 + shift_d + shift_t + above_up;
	if (up >= down)
		quotient <<= (up - down) & 63;
	else
		quotient = down - up > 63 ? 0 : quotient >> ((down - up) & 63);
	return quotient > EK_TREND_ONE ? EK_TREND_ONE : (ek_u32)quotient;
}

/* Whether the samples rise; critical[df] is t^2 / (df + t^2) in units of 1 / EK_TREND_ONE. */
EK_FN int ek_trend_rises(const struct ek_trend *trend, const ek_u32 *critical)
{
	if (trend->n < 3)
		return 0;
	return ek_trend_r2(trend) > critical[(trend->n - 2) & (EK_TREND_MOST - 1)];
}

#endif
