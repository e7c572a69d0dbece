//! What limited a sender, as shares of an interval that sum to one.

use crate::TcpInfo;

/// Shares of a time. They sum to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// The program had nothing to send.
    pub application: f64,
    /// The receiver's window.
    pub receive_window: f64,
    /// The send buffer.
    pub send_buffer: f64,
    /// The path: its line, its losses, a policer.
    pub path: f64,
}

/// Adds up what limited a sender, sample by sample.
///
/// The kernel counts the time with data under way (busy), and the parts of it that the receiver's window and the send buffer
/// took. The rest of busy is the path's, if data waited to be sent or to be retransmitted. If none did, either the send
/// buffer was full and the program could write nothing, or the program was the limit, although its last bytes were still
/// under way. The kernel counts only a little of the time that a send buffer takes: the time after it has sent something
/// while the program already waits (`tcp_cwnd_validate`). So the buffer itself is sampled, too.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    last: Option<(u64, TcpInfo)>,
    elapsed_us: f64,
    busy_us: f64,
    /// The program was the limit although something was under way.
    program_us: f64,
    window_us: f64,
    buffer_us: f64,
    path_us: f64,
}

impl Limits {
    /// Takes the state at a time, in microseconds of any clock.
    pub fn add(&mut self, at_us: u64, info: &TcpInfo) {
        if let Some((before_us, before)) = self.last {
            let elapsed = at_us.saturating_sub(before_us) as f64;
            let grown = |now: u64, then: u64| now.saturating_sub(then) as f64;
            // The kernel's counts grow by its clock's ticks, which may be longer than the time between two looks: only their sums can be held
            // against the time that has passed.
            let busy = grown(info.busy_us, before.busy_us);
            let window = grown(info.window_limited_us, before.window_limited_us).min(busy);
            let buffer = grown(info.buffer_limited_us, before.buffer_limited_us).min(busy - window);
            let rest = busy - window - buffer;
            // A last piece that fills no segment does not count as waiting; what waits to be sent again is the path's.
            let is_mending = info.lost_segments > 0 || info.sacked_segments > 0;
            let is_starved = info.unsent_bytes < info.mss_bytes.max(1) && !is_mending;
            let is_buffer_full = match info.send_memory_most_bytes {
                // Not known.
                0 => buffer > 0.0,
                _ => info.is_send_buffer_full(),
            };
            let (path, full, program) = match (is_starved, is_buffer_full) {
                (false, _) => (rest, 0.0, 0.0),
                (true, true) => (0.0, rest, 0.0),
                (true, false) => (0.0, 0.0, rest),
            };
            self.window_us += window;
            self.buffer_us += buffer + full;
            self.path_us += path;
            self.program_us += program;
            self.busy_us += busy;
            self.elapsed_us += elapsed;
        }
        self.last = Some((at_us, *info));
    }

    /// The shares; `None` without two samples at different times.
    pub fn shares(&self) -> Option<Shares> {
        let idle_us = (self.elapsed_us - self.busy_us).max(0.0);
        let all = idle_us + self.program_us + self.window_us + self.buffer_us + self.path_us;
        (all > 0.0).then(|| Shares {
            application: (idle_us + self.program_us) / all,
            receive_window: self.window_us / all,
            send_buffer: self.buffer_us / all,
            path: self.path_us / all,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a second of which all was busy counts as.
    fn of(info: TcpInfo) -> Shares {
        let mut limits = Limits::default();
        limits.add(0, &TcpInfo::default());
        limits.add(1_000_000, &TcpInfo { busy_us: 1_000_000, cwnd_segments: 10, ..info });
        limits.shares().unwrap()
    }

    #[test]
    fn looks_between_the_ticks_of_the_kernels_clock_change_nothing() {
        let mut limits = Limits::default();
        for ms in 0..1_000_u64 {
            // A clock of 250 ticks a second.
            let info = TcpInfo { busy_us: ms / 4 * 4_000, unsent_bytes: 1, cwnd_segments: 10, ..TcpInfo::default() };
            limits.add(ms * 1_000, &info);
        }
        let shares = limits.shares().unwrap();
        assert!(shares.path > 0.99, "{shares:?}");
    }

    #[test]
    fn what_the_kernel_does_not_count_is_told_by_the_queue() {
        let waiting = TcpInfo { unacked_segments: 10, unsent_bytes: 1, ..TcpInfo::default() };
        assert_eq!(of(waiting).path, 1.0);
        let starved = TcpInfo { unacked_segments: 3, send_memory_most_bytes: 90, ..TcpInfo::default() };
        assert_eq!(of(TcpInfo { send_memory_bytes: 60, ..starved }).application, 1.0);
        assert_eq!(of(TcpInfo { send_memory_bytes: 61, ..starved }).send_buffer, 1.0);
        // An old kernel, which says nothing of the queue.
        let old = TcpInfo { send_memory_most_bytes: 0, ..starved };
        assert_eq!(of(old).application, 1.0);
        assert_eq!(of(TcpInfo { buffer_limited_us: 1, ..old }).send_buffer, 1.0);
        let mixed = of(TcpInfo { window_limited_us: 600_000, buffer_limited_us: 100_000, ..waiting });
        assert_eq!([mixed.receive_window, mixed.send_buffer, mixed.path, mixed.application], [0.6, 0.1, 0.3, 0.0]);
    }
}
