//! What came out of one load over a real path: `ekiden measure client` writes it.

use ekiden_units::quantile;
use serde::{Deserialize, Serialize};

use crate::series::SeriesFiles;

/// The version of the format of measurements that this program writes.
pub const MEASUREMENT_FORMAT: u32 = 1;

/// One load, or two at once, between this end and a measuring server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// [`MEASUREMENT_FORMAT`] of the program that wrote it.
    pub measurement_format: u32,
    /// Version of ekiden.
    pub version: String,
    /// The command line, program first.
    pub command: Vec<String>,
    /// When it was started, in milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
    /// This end's address.
    pub from: String,
    /// The server's address and port.
    pub to: String,
    /// What was asked for.
    pub settings: LoadSettings,
    /// What this end is like.
    pub near: EndSettings,
    /// What the server's is like; absent where the server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<EndSettings>,
    /// One per direction that was loaded.
    pub loads: Vec<Load>,
    /// Round trips of small messages on a connection of their own; absent where the server does not answer such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// The samples of the senders, in a file beside the record; absent if none was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesFiles>,
}

/// Which way data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the end that asks to the server.
    Forth,
    /// From the server to the end that asks.
    Back,
}

impl Way {
    /// As users write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Forth => "forth",
            Self::Back => "back",
        }
    }
}

/// What a load is to be. What is absent is left to the kernels of the ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadSettings {
    /// The directions that are loaded, at once if both.
    pub ways: Vec<Way>,
    /// Connections in each direction.
    pub streams: u32,
    /// How long data is sent; absent if `bytes` says how much.
    pub duration_us: Option<u64>,
    /// How many bytes are sent in each direction, over all its streams; absent if `duration_us` says how long. Where both are there, what
    /// is reached first ends the load.
    pub bytes: Option<u64>,
    /// Bytes that the program hands over at a time, which go at once (TCP_NODELAY).
    pub data_bytes: Option<u32>,
    /// The senders' SO_SNDBUF; the kernel doubles it.
    pub send_buffer_bytes: Option<u64>,
    /// The receivers' SO_RCVBUF; the kernel doubles it.
    pub receive_buffer_bytes: Option<u64>,
    /// The most that receivers advertise (TCP_WINDOW_CLAMP).
    pub window_bytes: Option<u32>,
    /// The largest segment (TCP_MAXSEG).
    pub mss_bytes: Option<u32>,
    /// The senders' congestion control.
    pub congestion: Option<String>,
    /// The most that each stream sends, in bit/s, evenly spaced (SO_MAX_PACING_RATE).
    pub pacing_bit_s: Option<u64>,
    /// The most that the program of each stream hands over, in bit/s.
    #[serde(default)]
    pub offered_bit_s: Option<u64>,
    /// How often each end looks at its connections, in microseconds.
    pub sample_us: u32,
}

/// What an end's kernel is like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EndSettings {
    /// The version of ekiden.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// The congestion control of its senders; its default where it sends nothing.
    pub congestion: String,
    /// net.ipv4.tcp_rmem: least, initial and most.
    pub tcp_rmem: String,
    /// net.ipv4.tcp_wmem: least, initial and most.
    pub tcp_wmem: String,
}

/// What one direction carried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The direction.
    pub way: Way,
    /// Bytes that arrived at the receiver in the time that counts.
    pub bytes: u64,
    /// The time that counts at the receiver, from its first byte.
    pub duration_us: u64,
    /// `bytes` over `duration_us`.
    pub goodput_bit_s: u64,
    /// Bytes that arrived in each tenth of a second, one after the other from the first byte.
    pub tenths_bytes: Vec<u64>,
    /// Segments sent again.
    pub retransmits: u64,
    /// Segments delivered, over all streams.
    pub delivered_segments: u64,
    /// Least round trip that the senders saw, in microseconds.
    pub rtt_min_us: u64,
    /// Smoothed round trips at the samples.
    pub rtt: Delays,
    /// Congestion windows at the samples, median over all, in segments.
    pub cwnd_p50_segments: u64,
    /// From handing a byte to the kernel to its acknowledgement: what a program on the loaded connection waits.
    pub write_to_ack: Option<Delays>,
    /// What limited the senders, the mean over all streams.
    pub shares: Option<Shares>,
    /// Why the path limited it, where it did and that can be told.
    pub path_limit: Option<PathLimit>,
    /// The payload of segments that the path drops and says nothing of (a black hole of path MTU discovery), if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_segment_bytes: Option<u32>,
    /// Each stream.
    pub streams: Vec<StreamLoad>,
    /// How late the samples of the senders were taken.
    pub sampler_late: Delays,
    /// Processor time of the sender's threads that moved the bytes, in microseconds; 0 where it is not known.
    pub sender_cpu_us: u64,
    /// The same of the receiver.
    pub receiver_cpu_us: u64,
}

/// What one stream carried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamLoad {
    /// Bytes that arrived in the time that counts.
    pub bytes: u64,
    /// Their rate.
    pub goodput_bit_s: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// What limited its sender.
    pub shares: Option<Shares>,
}

/// The shares of a time in which each thing kept a sender from sending more. They sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Shares {
    /// The program had nothing to send.
    pub application: f64,
    /// The receiver's window.
    pub receive_window: f64,
    /// The sender's own buffer.
    pub send_buffer: f64,
    /// The path: its line, its losses or a policer, by way of the congestion window.
    pub path: f64,
}

impl Shares {
    /// The mean of several streams'; `None` of none.
    pub fn mean(of: &[Self]) -> Option<Self> {
        let mean = |share: fn(&Self) -> f64| of.iter().map(share).sum::<f64>() / of.len() as f64;
        (!of.is_empty()).then(|| Self {
            application: mean(|shares| shares.application),
            receive_window: mean(|shares| shares.receive_window),
            send_buffer: mean(|shares| shares.send_buffer),
            path: mean(|shares| shares.path),
        })
    }

    /// The shares with their names, in tenths of a percent that sum to 1000, the greatest first.
    pub fn permille(&self) -> [(&'static str, u32); 4] {
        let shares = [
            ("application", self.application),
            ("receive window", self.receive_window),
            ("send buffer", self.send_buffer),
            ("path", self.path),
        ];
        let mut rounded = shares.map(|(name, share)| (name, (share * 1000.0).floor() as u32, (share * 1000.0).fract()));
        // What rounding down leaves goes to those that have lost most by it.
        rounded.sort_by(|a, b| b.2.total_cmp(&a.2));
        let left = 1000_u32.saturating_sub(rounded.iter().map(|(_, permille, _)| permille).sum());
        rounded.iter_mut().take(left as usize).for_each(|(_, permille, _)| *permille += 1);
        rounded.sort_by_key(|(_, permille, _)| std::cmp::Reverse(*permille));
        rounded.map(|(name, permille, _)| (name, permille))
    }
}

/// What of a path limits a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathLimit {
    /// The line's rate: a queue grows, and drops when it is full.
    Line,
    /// Single losses: by chance, or of a buffer of few packets.
    Loss,
    /// A limit that drops what is faster, without a queue.
    Policer,
    /// Such a limit, or a buffer of few packets: losses of much at once, or at one window, without a queue that could be seen.
    ShortBufferOrPolicer,
    /// The sender was still growing its window when the load ended.
    SlowStart,
    /// None of it: the pacing that was asked for.
    Pacing,
}

/// A distribution of times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Delays {
    /// How many there are.
    pub count: u64,
    /// The least.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile, by the nearest rank.
    pub p99_us: f64,
    /// Largest.
    pub max_us: f64,
}

impl Delays {
    /// From times in any order; all 0 of none.
    pub fn of(mut times_us: Vec<f64>) -> Self {
        times_us.sort_by(f64::total_cmp);
        let at = |percent| quantile::nearest(&times_us, percent).unwrap_or_default();
        Self {
            count: times_us.len() as u64,
            min_us: at(0),
            p50_us: at(50),
            p99_us: at(99),
            max_us: times_us.last().copied().unwrap_or_default(),
        }
    }
}

/// Round trips of small messages, on a connection of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Before the load.
    pub idle: Delays,
    /// Beside it.
    pub loaded: Delays,
    /// What messages to the server took longer beside the load than the fastest before it. The clocks of the ends need not agree.
    pub added_forth: Delays,
    /// What messages from the server took longer.
    pub added_back: Delays,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_shares_sum_to_all() {
        let third = 1.0 / 3.0;
        let shares = Shares { application: third, receive_window: third, send_buffer: third, path: 0.0 };
        assert_eq!(shares.permille().map(|(_, permille)| permille), [334, 333, 333, 0]);
        let shares = Shares { application: 0.0004, receive_window: 0.0, send_buffer: 0.0, path: 0.9996 };
        assert_eq!(shares.permille()[0], ("path", 1000));
        let shares = Shares { path: 1.0, ..Shares::default() };
        assert_eq!(shares.permille(), [("path", 1000), ("application", 0), ("receive window", 0), ("send buffer", 0)]);
    }
}
