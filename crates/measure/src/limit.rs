//! What limited a sender, as shares of a time that sum to one.

use ekiden_net::tcp_info::TcpInfo;
pub use ekiden_record::Shares;

/// Adds up what limited a sender, sample by sample.
///
/// The kernel counts the time with data under way (busy), and what of it the receiver's window and the send buffer took; the rest of
/// busy is the path's, where the congestion window was full. Where it was not, and nothing waited to be sent, the program was the limit,
/// although its last bytes were still under way.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    last: Option<(u64, TcpInfo)>,
    application_us: f64,
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
            let busy = grown(info.busy_us, before.busy_us).min(elapsed);
            let window = grown(info.window_limited_us, before.window_limited_us).min(busy);
            let buffer = grown(info.buffer_limited_us, before.buffer_limited_us).min(busy - window);
            let rest = busy - window - buffer;
            let starved = info.unsent_bytes == 0 && info.unacked_segments < info.cwnd_segments && buffer == 0.0;
            let (path, program) = if starved { (0.0, rest) } else { (rest, 0.0) };
            self.window_us += window;
            self.buffer_us += buffer;
            self.path_us += path;
            self.application_us += elapsed - busy + program;
        }
        self.last = Some((at_us, *info));
    }

    /// The shares; `None` without two samples at different times.
    pub fn shares(&self) -> Option<Shares> {
        let all = self.application_us + self.window_us + self.buffer_us + self.path_us;
        (all > 0.0).then(|| Shares {
            application: self.application_us / all,
            receive_window: self.window_us / all,
            send_buffer: self.buffer_us / all,
            path: self.path_us / all,
        })
    }
}
