/* The native build of the headers: what crates/window-balance/src/native.rs calls. */
#include "ekiden/frame.h"
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

/* Reads the headers of a frame of `total` bytes, of which `length` are there; `total` is not less. Returns enum ekb_found. */
ekb_u32 ekiden_window_balance_parse(const ekb_u8 *bytes, ekb_u64 length, ekb_u32 total, ekb_u32 segment, ekb_u32 direction,
				    ekb_u64 time_us, struct ekb_frame *frame, struct ekb_packet *packet)
{
	struct ekb_options options = { .length = 0 };
	const ekb_u8 *from;
	ekb_u32 found = ekb_find(bytes, bytes + length, total, segment, frame);

	if (found == EKB_TCP)
		found = ekb_read_tcp(bytes, bytes + length, frame);
	if (found != EKB_TCP)
		return found;
	if (ekb_wants_options(frame, direction)) {
		from = ekb_at(bytes, bytes + length, frame->tcp + EKB_TCP_LEAST, frame->options);
		if (!from)
			return EKB_CUT;
		options.length = frame->options;
		__builtin_memcpy(options.bytes, from, frame->options);
		found = ekb_read_options(&options);
	}
	ekb_to_packet(frame, options.length ? &options : 0, direction, segment, time_us, packet);
	return found;
}

/* The sizes of the structures above, in the order of their declaration. */
void ekiden_window_balance_sizes(ekb_u64 sizes[5])
{
	sizes[0] = sizeof(struct ekb_settings);
	sizes[1] = sizeof(struct ekb_packet);
	sizes[2] = sizeof(struct ekb_group);
	sizes[3] = sizeof(struct ekb_stream);
	sizes[4] = sizeof(struct ekb_frame);
}
