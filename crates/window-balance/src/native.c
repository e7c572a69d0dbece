/* The native build of the header: what crates/window-balance/src/native.rs calls. */
#include "ekiden/window_balance.h"

ekb_u32 ekiden_window_balance_observe(const struct ekb_settings *settings, struct ekb_group *group, struct ekb_stream *stream,
			       ekb_u32 index, const struct ekb_packet *packet)
{
	return ekb_observe(settings, group, stream, index, packet);
}

ekb_u32 ekiden_window_balance_flow(const struct ekb_settings *settings, const struct ekb_stream *stream, ekb_u64 now_us)
{
	return ekb_flow(settings, stream, now_us);
}

/* The sizes of the structures above, in the order of their declaration. */
void ekiden_window_balance_sizes(ekb_u64 sizes[4])
{
	sizes[0] = sizeof(struct ekb_settings);
	sizes[1] = sizeof(struct ekb_packet);
	sizes[2] = sizeof(struct ekb_group);
	sizes[3] = sizeof(struct ekb_stream);
}
