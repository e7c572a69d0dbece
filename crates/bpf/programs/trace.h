/* SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0-only */
/* The events that the programs report. src/trace.rs reads them. */
#ifndef EKIDEN_TRACE_H
#define EKIDEN_TRACE_H

enum ek_event_kind {
	EK_EVENT_START = 0,
	EK_EVENT_ROUND = 1, /* once per round trip, and at most every millisecond */
	EK_EVENT_LOSS = 2, /* `value` is the new threshold */
	EK_EVENT_TIMEOUT = 3,
	EK_EVENT_MODE = 4, /* `value` is enum ek_ghstcp_mode */
	EK_EVENT_UNDO = 5, /* a spurious loss event is undone; `value` is the window restored */
	EK_EVENT_END = 6,
	/* At level 2 also every call with its inputs: enough to compute it again. */
	EK_EVENT_RTT = 7, /* `value` is the round-trip time */
	EK_EVENT_ACKED = 8, /* `value` segments */
	EK_EVENT_IDLE = 9, /* something is sent after an idle time */
};

struct ek_event {
	u64 at_us; /* the connection's clock, monotonic */
	u64 connection; /* the same for all events of a connection while it lives */
	u64 namespace; /* the network namespace's cookie, as SO_NETNS_COOKIE tells it */
	u32 kind;
	u32 algorithm;
	u32 value;
	u32 mode; /* enum ek_ghstcp_mode or ek_far_phase; of other algorithms 0 */
	u32 cwnd_before, cwnd_cnt_before;
	u32 cwnd, cwnd_cnt, ssthresh, clamp;
	u32 srtt_us;
	u32 family;
	u32 local[4], remote[4]; /* network order; IPv4 in the first */
	u32 local_port, remote_port; /* host order */
	struct ek_far_model model; /* of other algorithms 0 */
};

/* Set by the reader of events, which renews it. If the reader is killed, the programs soon stop reporting. */
struct ek_lease {
	u64 until_us; /* monotonic */
	u64 owner; /* a number of the reader's own */
	u32 level; /* 1, or 2 for every call */
	u32 unused;
};

#endif
