/* The native build of the headers: what crates/congestion/src/native.rs calls. */
#include "ekiden/algorithms.h"

_Static_assert(sizeof(union ek_state) <= 96, "the kernel keeps 104 bytes per connection, 8 of them for tracing");

void ekiden_init(ek_u32 algorithm, union ek_state *state) { ek_init(algorithm, state); }

int ekiden_rtt(ek_u32 algorithm, const struct ek_tunables *tunables, union ek_state *state,
	       const struct ek_window *window, ek_u64 now_us, ek_u32 rtt_us)
{
	return ek_rtt(algorithm, tunables, state, window, now_us, rtt_us);
}

void ekiden_acked(ek_u32 algorithm, const struct ek_tunables *tunables, union ek_state *state,
		  struct ek_window *window, ek_u32 acked)
{
	ek_acked(algorithm, tunables, state, window, acked);
}

ek_u32 ekiden_ssthresh(ek_u32 algorithm, const struct ek_tunables *tunables, union ek_state *state, ek_u32 cwnd)
{
	return ek_ssthresh(algorithm, tunables, state, cwnd);
}

void ekiden_timeout(ek_u32 algorithm, union ek_state *state) { ek_timeout(algorithm, state); }

int ekiden_undo(ek_u32 algorithm, union ek_state *state) { return ek_undo(algorithm, state); }

int ekiden_idle(ek_u32 algorithm, union ek_state *state, struct ek_window *window, ek_u64 idle_us)
{
	return ek_idle(algorithm, state, window, idle_us);
}

/* Of EK_FAR. */
void ekiden_resume(const struct ek_tunables *tunables, union ek_state *state, const struct ek_path *path, ek_u64 now_us)
{
	ek_far_resume(&tunables->far, &state->far, path, now_us);
}

/* Of EK_FAR: whether there is something to remember of the path. */
int ekiden_learnt(union ek_state *state, ek_u64 now_us, struct ek_path *path)
{
	return ek_far_learnt(&state->far, now_us, path);
}

/* Of EK_FAR: whether what is known of the path is being confirmed. */
int ekiden_confirms(const union ek_state *state) { return !!(state->far.flags & EK_FAR_KNOWN); }

/* Of EK_FAR: whether the window has jumped. */
int ekiden_jumps(const union ek_state *state) { return !!(state->far.flags & EK_FAR_JUMPS); }

/* Of EK_FAR. */
void ekiden_claim(struct ek_path *path, ek_u64 now_us) { ek_far_claim(path, now_us); }

/* Of EK_FAR. */
void ekiden_end(const union ek_state *state, struct ek_path *path) { ek_far_end(&state->far, path); }

/* Of EK_FAR: the window, in segments. */
ek_u32 ekiden_sample(const struct ek_tunables *tunables, union ek_state *state, const struct ek_sample *sample)
{
	return ek_far_sample(&tunables->far, &state->far, sample);
}

/* Of EK_FAR: the rate, in bytes per second. */
ek_u64 ekiden_pace(const union ek_state *state, ek_u32 srtt_us, ek_u32 mss)
{
	return ek_far_pace(&state->far, srtt_us, mss);
}

void ekiden_hystart_init(struct ek_hystart *state) { ek_hystart_init(state); }

void ekiden_hystart_rtt(struct ek_hystart *state, ek_u32 rtt_us) { ek_hystart_rtt(state, rtt_us); }

ek_u32 ekiden_slow_start(const struct ek_slow_start_tunables *tunables, struct ek_hystart *state,
			 struct ek_window *window, ek_u32 acked)
{
	return ek_slow_start(tunables, state, window, acked);
}

ek_u32 ekiden_mode(const union ek_state *state) { return state->ghstcp.mode; }

ek_u32 ekiden_hstcp_increase(const struct ek_tunables *tunables, ek_u32 cwnd)
{
	return ek_hstcp_increase(&tunables->hstcp, cwnd);
}

ek_u32 ekiden_hstcp_decrease(const struct ek_tunables *tunables, ek_u32 cwnd)
{
	return ek_hstcp_decrease(&tunables->hstcp, cwnd);
}

/* r^2 of at most EK_TREND_MOST pairs; *rises says what the test decides. */
ek_u32 ekiden_trend(const struct ek_tunables *tunables, const ek_u32 *departures, const ek_u32 *rtts, ek_u32 count,
		    ek_u32 *rises)
{
	struct ek_trend trend;
	ek_u32 i;

	ek_trend_clear(&trend);
	for (i = 0; i < count; i++)
		ek_trend_add(&trend, departures[i], rtts[i]);
	*rises = ek_trend_rises(&trend, tunables->ghstcp.critical);
	return ek_trend_r2(&trend);
}

ek_u64 ekiden_tunables_size(void) { return sizeof(struct ek_tunables); }
ek_u64 ekiden_state_size(void) { return sizeof(union ek_state); }
ek_u64 ekiden_sample_size(void) { return sizeof(struct ek_sample); }
ek_u64 ekiden_path_size(void) { return sizeof(struct ek_path); }
ek_u64 ekiden_hystart_size(void) { return sizeof(struct ek_hystart); }
