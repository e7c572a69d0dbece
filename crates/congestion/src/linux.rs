//! Congestion controls of Linux that the simulator imitates, written from their arithmetic. The lab has the kernel's own.
//!
//! Both count whole segments and keep how many acknowledged segments make the window grow by one, as the kernel does.

mod bbr;
mod bic;
mod cubic;
mod hystart;

pub use bbr::LinuxBbr;
pub(crate) use bbr::{Aggregation, segments_us};
pub use bic::LinuxBic;
pub use cubic::LinuxCubic;

use crate::Window;

/// While the window stands, the growth is looked at anew only after this time (HZ / 32).
const STANDSTILL_US: u64 = 1_000_000 / 32;

/// Grows the window by a segment for every `per_segment` that are acknowledged (`tcp_cong_avoid_ai`).
fn grow(window: &mut Window, per_segment: u32, acked: u32) {
    // Fewer may be asked for than have been counted: they were counted for a slower growth, and make one segment.
    if window.cwnd_cnt >= per_segment {
        window.cwnd_cnt = 0;
        window.cwnd = window.cwnd.saturating_add(1);
    }
    let counted = window.cwnd_cnt.saturating_add(acked);
    window.cwnd = window.cwnd.saturating_add(counted / per_segment).min(window.clamp.max(1));
    window.cwnd_cnt = counted % per_segment;
}
