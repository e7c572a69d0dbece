//! Loads of a path in virtual time, for tests: the project's TCP engine over its links, looked at as `ekiden measure path` looks at them.

mod line;
mod sampled;
mod transfer;

use ekiden_congestion::{CongestionControl, linux_control};
use ekiden_measure_proto::message::{Segments, StreamEnd};
use ekiden_measure_proto::seen::LoadSeen;
use ekiden_record::{EndSettings, Way};
use ekiden_tcp::TcpSettings;

use crate::measured::Measured;

/// IPv4 and TCP with timestamps.
const HEADERS: u64 = 52;
const TIMESTAMPS: u32 = 12;
/// What the devices at both ends carry.
const MTU: u32 = 1_500;
/// Buffers of a traced load.
const BUFFER_BYTES: u64 = 256 << 20;

/// A token bucket: a rate in bit/s and its depth in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    pub rate_bit_s: f64,
    pub depth_bytes: f64,
}

/// What lies between the ends.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    pub rate_bit_s: f64,
    pub rtt_us: f64,
    pub buffer_bytes: f64,
    /// Drops, in front of the line.
    pub policer: Option<Bucket>,
    /// Delays, behind the line, and drops what its queue has no room for.
    pub shaper: Option<Bucket>,
    pub shaper_queue_bytes: f64,
    /// Parts of the packets.
    pub lost: f64,
    pub late: f64,
    /// How many packets are lost in a row in the mean (Gilbert's model).
    pub loss_run: u32,
    /// The most that a packet is delayed by chance on each way, order kept, and that a late one is delayed, in microseconds.
    pub jitter_us: f64,
    pub late_us: f64,
    /// User data in a segment, in bytes.
    pub mss: u64,
    /// Whether the load is by Linux's BBR, which does not heed losses, instead of Reno.
    pub by_bbr: bool,
    pub seed: u64,
}

impl Path {
    pub const PLAIN: Self = Self {
        rate_bit_s: 20e6,
        rtt_us: 40_000.0,
        buffer_bytes: 100_000.0,
        policer: None,
        shaper: None,
        shaper_queue_bytes: f64::INFINITY,
        lost: 0.0,
        late: 0.0,
        loss_run: 1,
        jitter_us: 0.0,
        late_us: 3_000.0,
        mss: 1_448,
        by_bbr: false,
        seed: 1,
    };

    /// A full packet, in bytes.
    pub fn packet(&self) -> f64 {
        (self.mss + HEADERS) as f64
    }

    pub fn load(self) -> Measured {
        self.load_and_tell().0
    }

    /// A load, and whether the policer dropped the first packet that was lost.
    pub fn load_and_tell(self) -> (Measured, bool) {
        let transfer::Told { senders, receivers, answers, began_ns, is_policed_first } = transfer::run(&self);
        let segments = Segments { longest_bytes: self.mss as u32, whole_bytes: u64::MAX, mtu_probing: 0 };
        let seen = |rows: Vec<_>, bytes: u64| {
            let end = StreamEnd {
                bytes,
                mss_bytes: self.mss as u32,
                path_mtu_bytes: MTU,
                has_timestamps: true,
                segments: Some(segments),
                late_us: vec![50; 100],
                ..StreamEnd::default()
            };
            vec![LoadSeen { way: Way::Forth, stream: 0, end, rows }]
        };
        let came = receivers.last().map_or(0, |row| row.kernel_bytes);
        let measured = Measured {
            from: ([127, 0, 0, 1], 1).into(),
            far: EndSettings::default(),
            near_seen: seen(senders, came),
            far_seen: seen(receivers, came),
            answers,
            began_ns,
            ended_ns: u64::MAX,
            bytes_most: None,
        };
        (measured, is_policed_first)
    }

    /// Linux's TCP with the options of a traced load.
    fn settings(&self) -> TcpSettings {
        TcpSettings {
            mss: self.mss as u32 + TIMESTAMPS,
            send_buffer: BUFFER_BYTES,
            receive_buffer: BUFFER_BYTES,
            autotunes_window: false,
            nagle: false,
            ..TcpSettings::linux()
        }
    }

    fn control(&self) -> Box<dyn CongestionControl + Send> {
        let name = if self.by_bbr { "bbr" } else { "reno" };
        linux_control(name, &std::sync::Arc::default()).expect("there are both")
    }
}
