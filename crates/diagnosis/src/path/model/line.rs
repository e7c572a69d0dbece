//! What lies between the ends of a modelled path: a line, its queue, and what else drops or delays.

/// IPv4 and TCP with timestamps.
const HEADERS: u64 = 52;
/// The preamble, which is the first segment.
const PREAMBLE: u64 = 23;

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
    pub loss_run: f64,
    /// The most that a packet is delayed by chance on each way, order kept, and that a late one is delayed, in microseconds.
    pub jitter_us: f64,
    pub late_us: f64,
    /// User data in a segment, in bytes.
    pub mss: u64,
    /// What does not heed losses, instead of Reno.
    pub heedless: Option<Heedless>,
    pub seed: u64,
}

/// A sender that does not heed losses.
#[derive(Debug, Clone, Copy)]
pub enum Heedless {
    /// A window of so many segments.
    Window(f64),
    /// About BBR.
    Bbr,
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
        loss_run: 1.0,
        jitter_us: 0.0,
        late_us: 3_000.0,
        mss: 1_448,
        heedless: None,
        seed: 1,
    };

    /// A full packet, in bytes.
    pub fn packet(&self) -> f64 {
        (self.mss + HEADERS) as f64
    }

    /// User data in so many segments, in bytes.
    pub fn payload(&self, segments: u64) -> u64 {
        segments.checked_sub(1).map_or(0, |more| PREAMBLE + more * self.mss)
    }
}

/// Tokens in a bucket, and when they were counted.
struct Tokens {
    bucket: Bucket,
    bytes: f64,
    at_us: f64,
}

impl Tokens {
    fn new(bucket: Bucket) -> Self {
        Self { bucket, bytes: bucket.depth_bytes, at_us: 0.0 }
    }

    fn fill(&mut self, at_us: f64) {
        let more = (at_us - self.at_us).max(0.0) * self.bucket.rate_bit_s / 8e6;
        self.bytes = (self.bytes + more).min(self.bucket.depth_bytes);
        self.at_us = self.at_us.max(at_us);
    }
}

/// One direction that carries a load, and the way back of its acknowledgements.
pub struct Line {
    path: Path,
    random: u64,
    /// When the line is free, and the last packet and its acknowledgement come, in microseconds.
    free_us: f64,
    out_us: f64,
    back_us: f64,
    is_losing: bool,
    policer: Option<Tokens>,
    /// Whether the policer dropped the first packet that was lost.
    pub is_policed_first: Option<bool>,
    shaper: Option<Tokens>,
}

impl Line {
    pub fn new(path: Path) -> Self {
        Self {
            path,
            random: path.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            free_us: 0.0,
            out_us: 0.0,
            back_us: 0.0,
            is_losing: false,
            policer: path.policer.map(Tokens::new),
            is_policed_first: None,
            shaper: path.shaper.map(Tokens::new),
        }
    }

    /// A number between 0 and 1 (xorshift64).
    pub fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether the line loses the next packet: a run ends after each packet with probability 1 / its mean length.
    fn is_lost(&mut self) -> bool {
        let Path { lost, loss_run, .. } = self.path;
        self.is_losing = match self.is_losing && loss_run > 1.0 {
            true => self.draw() >= 1.0 / loss_run,
            false => self.draw() < lost / (loss_run * (1.0 - lost)).max(lost),
        };
        self.is_losing
    }

    /// When a packet that is sent now arrives; `None` if it is lost.
    pub fn carry(&mut self, at_us: f64, bytes: f64) -> Option<f64> {
        if let Some(tokens) = &mut self.policer {
            tokens.fill(at_us);
            if tokens.bytes < bytes {
                self.is_policed_first.get_or_insert(true);
                return None;
            }
            tokens.bytes -= bytes;
        }
        let queued = (self.free_us - at_us).max(0.0) * self.path.rate_bit_s / 8e6;
        // What is being sent has left the buffer.
        if queued > self.path.buffer_bytes {
            self.is_policed_first.get_or_insert(false);
            return None;
        }
        self.free_us = self.free_us.max(at_us) + bytes * 8e6 / self.path.rate_bit_s;
        let mut out_us = self.free_us;
        if let Some(tokens) = &mut self.shaper {
            tokens.fill(out_us);
            if -tokens.bytes > self.path.shaper_queue_bytes {
                self.is_policed_first.get_or_insert(false);
                return None;
            }
            tokens.bytes -= bytes;
            out_us += (-tokens.bytes).max(0.0) * 8e6 / tokens.bucket.rate_bit_s;
        }
        if self.is_lost() {
            self.is_policed_first.get_or_insert(false);
            return None;
        }
        let is_late = self.draw() < self.path.late;
        self.out_us = self.out_us.max(out_us + self.path.rtt_us / 2.0 + self.draw() * self.path.jitter_us);
        Some(self.out_us + if is_late { self.path.late_us } else { 0.0 })
    }

    /// When an acknowledgement that is sent now is back.
    pub fn back(&mut self, at_us: f64) -> f64 {
        self.back_us = self.back_us.max(at_us + self.path.rtt_us / 2.0 + self.draw() * self.path.jitter_us);
        self.back_us
    }

    /// When a message's answer that is sent now is back: on a connection of its own, which waits for nothing.
    pub fn answer(&mut self, at_us: f64) -> f64 {
        at_us + self.path.rtt_us / 2.0 + self.draw() * self.path.jitter_us
    }
}
