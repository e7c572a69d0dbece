//! One end of a load: a thread for each stream that sends or receives, and one that samples all of them.

mod batch;
mod calls;
mod evenness;
mod payload;
mod sampler;
mod stream;

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ekiden_net::clock::{monotonic_ns, thread_processor_us};
use ekiden_record::Way;

use ekiden_measure_proto::message::{StreamEnd, Trace};
use ekiden_measure_proto::seen::{LoadSeen, Side};
use ekiden_measure_proto::settings::Asked;
use payload::Payload;
use stream::Stream;

/// A connection of a load.
#[derive(Debug)]
pub struct Link {
    /// The direction of its data.
    pub way: Way,
    /// Its number among those of its direction.
    pub stream: u32,
    /// The connection, which waits.
    pub socket: TcpStream,
}

/// Limits on what may be moved, whatever was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Most {
    /// Bytes in each direction.
    pub bytes: Option<u64>,
    /// System calls a second that move little, of all streams together.
    pub calls_s: Option<u32>,
}

/// An end of a load. Receivers take what comes from the beginning; senders wait for [`Running::begin`]. All threads end when it is dropped.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<StreamEnd>>,
    /// `None` before it is started, and after it is joined.
    sampler: Option<JoinHandle<sampler::Sampled>>,
}

/// What all threads of an end share.
struct Shared {
    streams: Vec<Stream>,
    /// When the load began, by the monotonic clock; 0 before.
    began_ns: AtomicU64,
    /// When the first byte came on any stream, by the monotonic clock; 0 before. The time of all receivers counts from it.
    arrived_ns: AtomicU64,
    begun: Mutex<bool>,
    begins: Condvar,
    /// Whether all threads are to end now.
    stop: AtomicBool,
    /// Streams that have not ended yet.
    left: AtomicU64,
}

impl Running {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system's, if it has no more memory or threads.
    pub fn start(asked: &Asked, links: Vec<Link>, side: Side, trace: Trace, most: Most) -> io::Result<Self> {
        let count = links.len() as u64;
        let streams: io::Result<_> =
            links.into_iter().map(|link| Stream::new(asked, link, side, trace, most)).collect();
        let shared = Arc::new(Shared {
            streams: streams?,
            began_ns: AtomicU64::new(0),
            arrived_ns: AtomicU64::new(0),
            begun: Mutex::new(false),
            begins: Condvar::new(),
            stop: AtomicBool::new(false),
            left: AtomicU64::new(count),
        });
        let payload = Arc::new(Payload::new(monotonic_ns())?);
        let mut running = Self { shared: shared.clone(), threads: Vec::new(), sampler: None };
        for number in 0..shared.streams.len() {
            let (shared, payload) = (shared.clone(), payload.clone());
            let work = move || {
                let stream = &shared.streams[number];
                let mut end = match stream.sends {
                    true => {
                        shared.await_begin();
                        stream.send(&shared, &payload)
                    }
                    false => stream.receive(&shared),
                };
                end.cpu_us = thread_processor_us();
                shared.left.fetch_sub(1, Ordering::AcqRel);
                end
            };
            running.threads.push(thread::Builder::new().name("stream".into()).spawn(work)?);
        }
        let (of_sampler, interval_us) = (shared.clone(), asked.get().sample_us);
        let pause_ns = calls::pause_ns(most, count);
        let sample = move || sampler::run(&of_sampler, interval_us, trace.is_close(), pause_ns);
        running.sampler = Some(thread::Builder::new().name("sampler".into()).spawn(sample)?);
        Ok(running)
    }

    /// Lets the senders begin.
    pub fn begin(&self) {
        self.shared.began_ns.store(monotonic_ns(), Ordering::Release);
        self.shared.wake();
    }

    /// Whether all streams of this end have finished: its receivers have received, and its senders have sent, everything that counts.
    pub fn is_over(&self) -> bool {
        self.shared.left.load(Ordering::Acquire) == 0
    }

    /// Bytes moved so far at this end in a direction: received, or acknowledged.
    pub fn moved(&self, way: Way) -> u64 {
        let of = self.shared.streams.iter().filter(|stream| stream.way == way);
        of.map(Stream::moved).sum()
    }

    /// Ends everything that still runs, and returns what was seen.
    pub fn finish(mut self) -> Vec<LoadSeen> {
        self.shared.stop();
        let sampled = self.sampler.take().and_then(|sampler| sampler.join().ok()).unwrap_or_default();
        let (mut rows, mut segments) = (sampled.rows.into_iter(), sampled.segments.into_iter());
        let ends = std::mem::take(&mut self.threads).into_iter().map(|thread| thread.join().unwrap_or_default());
        let seen = self.shared.streams.iter().zip(ends).map(|(stream, end)| LoadSeen {
            way: stream.way,
            stream: stream.number,
            end: StreamEnd { late_us: sampled.late_us.clone(), segments: segments.next(), ..end },
            rows: rows.next().unwrap_or_default(),
        });
        seen.collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Shared {
    /// Makes all threads end, also senders that have not begun.
    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.begins.notify_all();
    }

    fn await_begin(&self) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        while !*begun {
            begun = self.begins.wait(begun).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// When the first byte arrived on any stream.
    fn first_arrival_ns(&self) -> Option<u64> {
        Some(self.arrived_ns.load(Ordering::Acquire)).filter(|first| *first > 0)
    }

    /// When the first byte arrived on any stream, if another one arrives at `now_ns`.
    fn arrived(&self, now_ns: u64) -> u64 {
        let first = self.arrived_ns.compare_exchange(0, now_ns, Ordering::AcqRel, Ordering::Acquire);
        first.err().map_or(now_ns, |first| first.min(now_ns))
    }

    /// Microseconds since the load began; 0 before.
    fn since_begin_us(&self, at_ns: u64) -> u64 {
        match self.began_ns.load(Ordering::Acquire) {
            0 => 0,
            began => at_ns.saturating_sub(began) / 1_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use ekiden_record::LoadSettings;

    use super::*;

    #[test]
    fn a_traced_sender_hands_over_its_budget_and_no_more() {
        let settings = LoadSettings {
            ways: vec![Way::Forth],
            streams: 1,
            duration_us: Some(2_000_000),
            bytes: None,
            ..Asked::default().get().clone()
        };
        let asked = Asked::new(settings).unwrap();
        let trace = Trace::UntilLoss { bdps_most: 0.0, bytes_least: 300_000 };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        let start = |socket, side| {
            let link = Link { way: Way::Forth, stream: 0, socket };
            Running::start(&asked, vec![link], side, trace, Most::default()).unwrap()
        };
        let (receives, sends) = (start(receiver, Side::Far), start(sender, Side::Near));
        let began = Instant::now();
        receives.begin();
        sends.begin();
        while !(receives.is_over() && sends.is_over()) && began.elapsed() < Duration::from_secs(3) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(sends.is_over() && began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
        assert_eq!(receives.finish()[0].end.bytes, 300_000);
    }
}
