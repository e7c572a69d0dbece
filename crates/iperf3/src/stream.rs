//! The connections that carry data: a thread for each, which counts and stops when it is told to.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ekiden_net::blocking::{Block, discard};
use ekiden_net::tcp_info::tcp_info_with_memory;
use ekiden_tcp_info::TcpInfo;

use crate::message::COOKIE_BYTES;
use ekiden_diagnosis::limit::Limits;

/// How soon a thread that waits for its socket sees that it is to stop.
const WAKE: Duration = Duration::from_millis(100);
/// How much is taken out of a socket at a time.
const TAKE: usize = 1 << 20;

/// A connection that carries data in one direction.
#[derive(Debug)]
pub struct Stream {
    pub socket: TcpStream,
    pub is_sent: bool,
    /// Its number among those of its direction.
    pub connection: u32,
    /// Bytes handed to the kernel, or received from it.
    pub moved: AtomicU64,
}

/// What the threads of all streams share.
#[derive(Debug)]
pub struct Shared {
    pub stop: AtomicBool,
    /// Bytes that are still to be sent, over all streams.
    pub left: AtomicU64,
    /// Bytes that may still be received, over all streams; `None` without a limit.
    room: Option<Mutex<u64>>,
    /// Whether that limit on received bytes is reached.
    is_full: AtomicBool,
    /// The thread that is woken when it is reached.
    watcher: Thread,
    /// Why a stream broke: the first.
    pub broken: Mutex<Option<Option<io::Error>>>,
}

impl Shared {
    /// Streams send, and receive, `most` bytes together in each direction. The thread that calls this is woken when they have received
    /// them.
    pub fn new(most: Option<u64>) -> Self {
        Self {
            stop: AtomicBool::new(false),
            left: AtomicU64::new(most.unwrap_or(u64::MAX)),
            room: most.map(Mutex::new),
            is_full: AtomicBool::new(false),
            watcher: thread::current(),
            broken: Mutex::new(None),
        }
    }

    /// Waits for `time`, or until the limit on received bytes is reached.
    pub fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_full.load(Relaxed) {
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return,
                left => thread::park_timeout(left),
            }
        }
    }

    /// Takes at most as many bytes out of a socket as may still be received; 0 is the end of the stream, `None` that the limit is reached.
    fn discard(&self, socket: &TcpStream) -> io::Result<Option<usize>> {
        let Some(room) = &self.room else { return discard(socket, TAKE).map(Some) };
        // No thread waits for data while it holds the lock: other streams might have some.
        if socket.peek(&mut [0])? == 0 {
            return Ok(Some(0));
        }
        let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
        if *room == 0 {
            return Ok(None);
        }
        let taken = discard(socket, usize::try_from(*room).map_or(TAKE, |room| room.min(TAKE)))?;
        *room = room.saturating_sub(taken as u64);
        Ok(Some(taken))
    }

    /// Wakes the watcher if the limit on received bytes is reached.
    fn tell_if_full(&self) {
        let room = self.room.as_ref().map(|room| *room.lock().unwrap_or_else(PoisonError::into_inner));
        if room == Some(0) && !self.is_full.swap(true, Relaxed) {
            self.watcher.unpark();
        }
    }

    /// Takes up to `most` of what is left to be sent.
    fn take(&self, most: u64) -> u64 {
        let taken = self.left.fetch_update(Relaxed, Relaxed, |left| Some(left - left.min(most)));
        taken.map_or(0, |left| left.min(most))
    }

    fn fail(&self, why: Option<io::Error>) {
        if let Ok(mut broken) = self.broken.lock() {
            broken.get_or_insert(why);
        }
    }
}

impl Stream {
    pub fn new(socket: TcpStream, is_sent: bool, connection: u32) -> io::Result<Self> {
        socket.set_read_timeout(Some(WAKE))?;
        socket.set_write_timeout(Some(WAKE))?;
        Ok(Self { socket, is_sent, connection, moved: AtomicU64::new(0) })
    }

    /// Moves data until there is no more to be moved, or `shared` says stop.
    pub fn carry(&self, shared: &Shared, block: &Block, block_bytes: u64) {
        let end = match self.is_sent {
            true => self.send(shared, block, block_bytes),
            false => self.receive(shared),
        };
        if let Err(why) = end {
            shared.fail(why);
        }
    }

    /// Sends blocks. The error is why the connection broke.
    fn send(&self, shared: &Shared, block: &Block, block_bytes: u64) -> Result<(), Option<io::Error>> {
        let (mut from, mut to) = (0, 0);
        while !shared.stop.load(Relaxed) {
            if from == to {
                (from, to) = (0, shared.take(block_bytes) as usize);
                if to == 0 {
                    return Ok(());
                }
            }
            match block.send(&self.socket, from, to - from) {
                Ok(sent) => {
                    from += sent;
                    self.moved.fetch_add(sent as u64, Relaxed);
                }
                Err(error) if goes_on(&error) => {}
                Err(error) => return Err(Some(error)),
            }
        }
        Ok(())
    }

    fn receive(&self, shared: &Shared) -> Result<(), Option<io::Error>> {
        while !shared.stop.load(Relaxed) {
            match shared.discard(&self.socket) {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return Err(None),
                Ok(Some(taken)) => {
                    self.moved.fetch_add(taken as u64, Relaxed);
                    shared.tell_if_full();
                }
                Err(error) if goes_on(&error) => {}
                Err(error) => return Err(Some(error)),
            }
        }
        Ok(())
    }
}

fn goes_on(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// What is known of a stream from samples.
#[derive(Debug, Default)]
pub struct Watched {
    /// The state at the last sample.
    pub info: TcpInfo,
    /// What had been moved at the last sample, in bytes.
    pub moved: u64,
    /// What had been moved when counting began.
    pub moved_before: u64,
    /// What had been retransmitted when counting began.
    pub retransmits_before: u32,
    /// The largest smoothed round-trip time since, in microseconds.
    pub rtt_max_us: u32,
    pub limits: Limits,
}

impl Watched {
    /// Counting begins: what was before does not count.
    pub fn begin(&mut self, at_us: u64) {
        self.moved_before = self.moved;
        self.retransmits_before = self.info.retransmits;
        self.rtt_max_us = 0;
        self.limits = Limits::default();
        self.limits.add(at_us, &self.info);
    }

    /// Takes a sample.
    pub fn sample(&mut self, stream: &Stream, at_us: u64) -> io::Result<()> {
        // In this order: what was moved is in the kernel's account then.
        self.moved = stream.moved.load(Relaxed);
        self.info = tcp_info_with_memory(&stream.socket)?;
        self.rtt_max_us = self.rtt_max_us.max(self.info.rtt_us);
        self.limits.add(at_us, &self.info);
        Ok(())
    }

    /// What has been moved since counting began, in bytes.
    pub fn counted_bytes(&self) -> u64 {
        self.moved.saturating_sub(self.moved_before)
    }

    /// Segments sent again since counting began.
    pub fn counted_retransmits(&self) -> u32 {
        self.info.retransmits.saturating_sub(self.retransmits_before)
    }

    /// What of a sent stream's blocks the peer has acknowledged, in bytes: the kernel's count has the cookie too, and one for the SYN.
    pub fn acked_bytes(&self) -> u64 {
        self.info.acked_bytes.saturating_sub(COOKIE_BYTES as u64 + 1)
    }

    /// Least round-trip time in microseconds; `None` if none was measured.
    pub fn rtt_min_us(&self) -> Option<u64> {
        Some(self.info.rtt_min_us).filter(|&rtt| rtt > 0 && rtt < u32::MAX).map(u64::from)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn receivers_stop_at_the_limit_and_wake_the_watcher() {
        const LIMIT: u64 = 1_000_003;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let streams = [0, 1, 2].map(|number| {
            let receiver = TcpStream::connect(address).unwrap();
            let (mut sender, _) = listener.accept().unwrap();
            // Ends when the receiver is closed.
            thread::spawn(move || while sender.write_all(&[0; 100_000]).is_ok() {});
            Stream::new(receiver, false, number).unwrap()
        });
        let shared = Shared::new(Some(LIMIT));
        let block = Block::new(&[0]).unwrap();
        let start = Instant::now();
        thread::scope(|scope| {
            for stream in &streams {
                scope.spawn(|| stream.carry(&shared, &block, 1));
            }
            shared.wait(Duration::from_secs(60));
        });
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        assert_eq!(streams.iter().map(|stream| stream.moved.load(Relaxed)).sum::<u64>(), LIMIT);
    }
}
