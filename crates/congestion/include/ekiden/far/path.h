/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* What ekiden_far remembers of a path, and how a connection begins with it: Careful Resume (RFC 9959).
 *
 * Reconnaissance: the first segments must arrive without a loss, with about the round trip that is known, and as fast as the path was.
 * Unvalidated: the window jumps to half of what the path carried, paced at the rate of then. Validating: where that arrives, the
 * startup ends at the known window. Safe retreat: where losses or a queue come of it, the window falls to what has arrived, and what
 * was known is forgotten. */
#ifndef EKIDEN_FAR_PATH_H
#define EKIDEN_FAR_PATH_H

#include "window.h"

/* So many segments after the first acknowledgement tell how fast they come through; and so many in one come too fast to tell. Of ten
 * segments one or the other is seen, however many of them an acknowledgement covers. */
#define EK_FAR_TRAIN 6u
#define EK_FAR_AT_ONCE 5u
/* What arrives in less time than this may have been held by a device, which passes it on at once. */
#define EK_FAR_TELLS_US 500u

/* What is known of a path. All zero: nothing. */
struct ek_path {
	ek_u32 window; /* carried in a round trip, in 64ths of a segment; 0: nothing is known */
	ek_u32 base_us; /* the least round trip */
	ek_u32 chance; /* what is lost by chance */
	ek_u32 at_ms; /* when */
	ek_u32 used_ms; /* when a connection has last told it, or has begun with it */
	ek_u32 is_free; /* that one has ended */
};

/* What a connection in startup may begin with. While another one uses what the path carries, nothing. */
EK_FN void ek_far_resume(const struct ek_far_tunables *tunables, struct ek_far *state, const struct ek_path *path, ek_u64 now_us)
{
	ek_u32 now_ms = (ek_u32)(now_us / 1000);
	int is_old = !path->window || (now_ms - path->at_ms) / 1000 >= tunables->remember_s;
	int is_in_use = !path->is_free && now_ms - path->used_ms < path->base_us / 1000 * 4 + 100;

	if (!(state->flags & EK_FAR_STARTUP) || state->timed_out)
		return;
	if (state->flags & EK_FAR_JUMPS) {
		/* What has not been used for so long is not to be. */
		if (is_old) {
			state->flags &= ~EK_FAR_JUMPS;
			state->restore = 0;
			state->window = ek_min(state->window, ek_far_proven(state, 0));
		}
		return;
	}
	if (state->tried && !(state->flags & EK_FAR_KNOWN))
		return;
	if (is_old || is_in_use) {
		ek_far_forget(state);
		state->tried = 0;
		return;
	}
	/* Only once: each flight that is acknowledged as a whole would begin a round anew. */
	if (!state->tried)
		state->flags |= EK_FAR_ANEW;
	state->flags |= EK_FAR_KNOWN;
	state->tried = 1;
	state->own = path->window;
	state->fair = path->base_us;
	state->chance = ek_min(path->chance, EK_FAR_CHANCE);
}

/* Reconnaissance: `arrived` segments, none lost before, `took` us for those after the first. */
EK_FN void ek_far_confirm(const struct ek_far_tunables *tunables, struct ek_far *state, ek_u32 arrived, ek_u32 took_us)
{
	ek_u32 known = state->own, window = known;
	ek_u64 at_train = took_us ? (ek_u64)arrived * EK_FAR_UNIT * state->base_us / took_us : 0;

	/* A window that the startup reaches at once by itself is nothing to know. */
	if (state->base_us < state->fair / 2 || state->base_us > state->fair + ek_far_target(tunables, state) ||
	    known <= 2 * state->window) {
		ek_far_forget(state);
		return;
	}
	if (took_us && at_train < known)
		window = ek_far_bounded(at_train);
	/* The startup ends at the known window, unless the path has become slower, or what was known is the part that one of many
	 * connections had. Then the window goes on doubling. */
	state->restore = window > known / 2 ? known : 0;
	if (took_us >= EK_FAR_TELLS_US && at_train >= 4 * (ek_u64)known)
		state->restore = 0;
	state->window = ek_max(state->window, ek_far_bounded(window / 2));
	state->fair = 0;
	state->flags &= ~EK_FAR_KNOWN;
	state->flags |= EK_FAR_JUMPS | EK_FAR_ANEW;
}

/* Safe retreat: of what was sent, so many segments have arrived. */
EK_FN void ek_far_retreat(struct ek_far *state, ek_u32 delivered)
{
	ek_u32 arrived = ek_far_bounded((ek_u64)delivered * EK_FAR_UNIT);

	state->restore = 0;
	state->chance = 0;
	ek_far_leave_startup(state);
	state->own = state->window = ek_min(state->window, arrived);
	state->fair = state->own / 4;
	/* With EK_FAR_JUMPS: nothing is known any more. */
	state->flags |= EK_FAR_NEWS;
}

/* A round is over after the jump. `is_refuted`: there were losses beyond those by chance, or a queue. */
EK_FN void ek_far_validate(struct ek_far *state, ek_u32 delivered, int is_refuted)
{
	if (is_refuted) {
		ek_far_retreat(state, delivered);
		return;
	}
	/* Not before half of the jump has arrived. */
	if (delivered < ek_max(state->window, state->restore) / EK_FAR_UNIT / 4)
		return;
	/* Else it goes on doubling. */
	if (state->flags & EK_FAR_STARTUP && state->restore)
		ek_far_leave_startup(state);
	state->flags &= ~EK_FAR_JUMPS;
}

/* What there is to remember. Returns whether there is something. */
EK_FN int ek_far_learnt(struct ek_far *state, ek_u64 now_us, struct ek_path *path)
{
	if (!(state->flags & EK_FAR_NEWS))
		return 0;
	state->flags &= ~EK_FAR_NEWS;
	path->window = state->flags & EK_FAR_JUMPS ? 0 : ek_far_carried(state, 0);
	path->base_us = state->base_us;
	path->chance = state->chance;
	path->at_ms = path->used_ms = (ek_u32)(now_us / 1000);
	path->is_free = 0;
	state->flags &= ~EK_FAR_JUMPS;
	return 1;
}

/* The connection begins with what is known: others that begin now do not. */
EK_FN void ek_far_claim(struct ek_path *path, ek_u64 now_us)
{
	path->used_ms = (ek_u32)(now_us / 1000);
	path->is_free = 0;
}

/* The connection has ended: what it used of the path is free. */
EK_FN void ek_far_end(const struct ek_far *state, struct ek_path *path)
{
	if (!(state->flags & EK_FAR_STARTUP) || state->flags & EK_FAR_JUMPS)
		path->is_free = 1;
}

#endif
