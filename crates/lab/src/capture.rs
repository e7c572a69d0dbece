//! Captures: the headers of the packets at the ends of links, as pcap files for Wireshark and tcpdump.
//!
//! The emulator sees every frame. It gives the kept part of each to a thread that writes the files, through a bounded queue:
//! a slow disk costs packets of the capture, which are counted, and never the emulation's time.
//!
//! A file has its packets in the order of time. Only headers are kept.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use ekiden_net::packet::ETHERNET_HEADER;
use ekiden_packet::pcap::{PcapWriter, header_bytes};
use ekiden_scenario::Scenario;
use ekiden_units::Time;

/// The maximum number of bytes kept of a packet: an IP and a TCP header with all their options.
const HEADERS_MOST: usize = 120;
/// Packets handed over at a time.
const CHUNK: usize = 256;
/// The maximum number of chunks that wait to be written: about 20 MB.
const CHUNKS: usize = 512;
/// The maximum delay of a frame from its timestamp to its arrival at a socket, in nanoseconds.
const STAMP_MARGIN_NS: u64 = 1_000_000;

/// What receives a file.
type File = Box<dyn Write + Send>;

/// Files for the packets at ends of links: what leaves a node, before the link's queue, and what arrives at it. One pcap file
/// for each end, given to [`Lab::build_captured`](crate::Lab::build_captured).
///
/// Only headers are kept. Times count from the start of the run, as in the record: the kernel's receive timestamp of what leaves a
/// node, and the time of the delivery of what arrives. Packets of before the start are left out.
pub struct Capture {
    /// By link, then by its end.
    files: Vec<Option<PcapWriter<File>>>,
}

/// A capture that goes on while its lab lives.
pub struct Capturing {
    thread: JoinHandle<io::Result<()>>,
    missing: Arc<AtomicU64>,
}

/// A packet, as it is kept.
#[derive(Clone, Copy)]
struct SeenPacket {
    /// Since the start of the run.
    at_ns: u64,
    /// Where: twice the link's number and the end's.
    end: u32,
    /// Of the IP packet, in bytes.
    length: u32,
    kept: usize,
    headers: [u8; HEADERS_MOST],
}

/// Where the emulator puts the frames that it sees. A tap without files takes nothing.
#[derive(Default)]
pub(crate) struct Tap {
    /// For each end that has a file: frames that were delivered to it, while an earlier frame sent there may still come.
    ends: Vec<Option<VecDeque<SeenPacket>>>,
    /// When the run began, by the monotonic clock; 0 before.
    began_ns: u64,
    chunk: Vec<SeenPacket>,
    to_writer: Option<SyncSender<Vec<SeenPacket>>>,
    missing: Arc<AtomicU64>,
}

impl Capture {
    /// A capture at the ends of links for which `open` gives a file, asked for each with the names of node and link.
    ///
    /// Each packet is one write: give it [`BufWriter`](io::BufWriter)s.
    ///
    /// # Errors
    /// Those of `open`, and of writing to a file.
    pub fn new(scenario: &Scenario, mut open: impl FnMut(&str, &str) -> io::Result<Option<File>>) -> io::Result<Self> {
        let mut files = Vec::new();
        for (link, described) in &scenario.links {
            for node in &described.ends {
                files.push(open(node, link)?.map(PcapWriter::new).transpose()?);
            }
        }
        Ok(Self { files })
    }

    /// Starts the thread that writes.
    pub(crate) fn start(self) -> io::Result<(Tap, Capturing)> {
        let ends = self.files.iter().map(|file| file.is_some().then(VecDeque::new)).collect();
        let (to_writer, chunks) = sync_channel(CHUNKS);
        let missing = Arc::new(AtomicU64::new(0));
        let thread = thread::Builder::new().name("capture".into()).spawn(move || write(self.files, &chunks))?;
        let tap =
            Tap { ends, began_ns: 0, chunk: Vec::new(), to_writer: Some(to_writer), missing: Arc::clone(&missing) };
        Ok((tap, Capturing { thread, missing }))
    }
}

impl Capturing {
    /// Completes the files, when the lab is no more. Returns how many packets are missing because they came faster than they
    /// could be written.
    ///
    /// # Errors
    /// The first of writing. After it, nothing more was written.
    pub fn finish(self) -> io::Result<u64> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes them has failed")))?;
        Ok(self.missing.load(Ordering::Relaxed))
    }
}

/// Writes what comes, until nothing more will come. What cannot be written is still taken, so that the queue does not stop.
fn write(mut files: Vec<Option<PcapWriter<File>>>, chunks: &Receiver<Vec<SeenPacket>>) -> io::Result<()> {
    let mut write = |seen: &SeenPacket| match files.get_mut(seen.end as usize) {
        Some(Some(file)) => file.write_bytes(Time(seen.at_ns), &seen.headers[..seen.kept], seen.length),
        _ => Ok(()),
    };
    let mut written = Ok(());
    for chunk in chunks {
        if written.is_ok() {
            written = chunk.iter().try_for_each(&mut write);
        }
    }
    written.and_then(|()| files.into_iter().flatten().try_for_each(PcapWriter::finish))
}

impl Tap {
    /// The run began at this time of the monotonic clock. Nothing is kept before.
    pub(crate) fn begin(&mut self, began_ns: u64) {
        self.began_ns = began_ns;
    }

    /// A frame was sent at an end of a link, at a time of the monotonic clock that is no earlier than the last one there.
    pub(crate) fn sent(&mut self, end: usize, at_ns: u64, frame: &[u8]) {
        if let Some(seen) = self.look(end, at_ns, frame) {
            self.give_until(end, seen.at_ns);
            self.give(seen);
        }
    }

    /// A frame was delivered to an end of a link, at a time that is no earlier than the last one there.
    pub(crate) fn delivered(&mut self, end: usize, at_ns: u64, frame: &[u8]) {
        if let Some(seen) = self.look(end, at_ns, frame)
            && let Some(Some(waiting)) = self.ends.get_mut(end)
        {
            waiting.push_back(seen);
        }
    }

    /// All that was sent at this end before a time of the monotonic clock has been taken.
    pub(crate) fn taken_until(&mut self, end: usize, at_ns: u64) {
        if self.began_ns > 0 {
            self.give_until(end, at_ns.saturating_sub(self.began_ns + STAMP_MARGIN_NS));
        }
    }

    /// The part of a frame to keep, if its end has a file and the run has begun.
    fn look(&self, end: usize, at_ns: u64, frame: &[u8]) -> Option<SeenPacket> {
        self.ends.get(end)?.as_ref()?;
        let at_ns = at_ns.checked_sub(self.began_ns).filter(|_| self.began_ns > 0)?;
        let packet = frame.get(ETHERNET_HEADER..)?;
        // Nothing but IP goes over links; a file of raw IP packets could hold nothing else.
        if !matches!(packet.first()? >> 4, 4 | 6) {
            return None;
        }
        let kept = header_bytes(packet).min(HEADERS_MOST);
        let mut headers = [0; HEADERS_MOST];
        headers[..kept].copy_from_slice(&packet[..kept]);
        Some(SeenPacket { at_ns, end: end as u32, length: packet.len() as u32, kept, headers })
    }

    /// Passes on what was delivered to an end up to a time of the run.
    fn give_until(&mut self, end: usize, at_ns: u64) {
        while let Some(Some(waiting)) = self.ends.get_mut(end)
            && waiting.front().is_some_and(|seen| seen.at_ns <= at_ns)
            && let Some(seen) = waiting.pop_front()
        {
            self.give(seen);
        }
    }

    fn give(&mut self, seen: SeenPacket) {
        self.chunk.push(seen);
        if self.chunk.len() >= CHUNK {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        let Some(to_writer) = &self.to_writer else { return };
        if let Err(TrySendError::Full(chunk) | TrySendError::Disconnected(chunk)) = to_writer.try_send(chunk) {
            self.missing.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        for end in 0..self.ends.len() {
            self.give_until(end, u64::MAX);
        }
        // Nothing waits for this thread any more, so it may wait for the writer.
        let last = std::mem::take(&mut self.chunk);
        if let Some(to_writer) = &self.to_writer {
            let _ = to_writer.send(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    const BEGAN_NS: u64 = 1_000_000_000;

    /// A file in memory that takes this number of writes.
    struct Memory(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = self.1.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A capture at the second of four ends, and its file.
    fn capture(writes: usize) -> (Capture, Arc<Mutex<Vec<u8>>>) {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let file: File = Box::new(Memory(Arc::clone(&kept), writes));
        (Capture { files: vec![None, Some(PcapWriter::new(file).unwrap()), None, None] }, kept)
    }

    /// An Ethernet frame with an IPv4 packet of 28 bytes, which ends with `mark`.
    fn frame(mark: u8) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET_HEADER];
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2, 0, 1, 0, 2, 0, 8, 0, mark]);
        frame
    }

    /// Time in ns and mark of each packet.
    fn packets(file: &[u8]) -> Vec<(u32, u8)> {
        let record = |record: &[u8]| (u32::from_le_bytes(record[4..8].try_into().unwrap()), record[16 + 27]);
        file[24..].chunks(16 + 28).map(record).collect()
    }

    #[test]
    fn what_was_sent_and_what_was_delivered_is_in_the_order_of_time() {
        let (capture, file) = capture(usize::MAX);
        let (mut tap, capturing) = capture.start().unwrap();
        tap.sent(1, BEGAN_NS, &frame(1));
        tap.begin(BEGAN_NS);
        tap.delivered(1, BEGAN_NS - 1, &frame(2));
        tap.delivered(0, BEGAN_NS, &frame(3));
        tap.delivered(1, BEGAN_NS + 20, &frame(4));
        // Taken later, although it was sent before.
        tap.sent(1, BEGAN_NS + 10, &frame(5));
        tap.delivered(1, BEGAN_NS + 30, &frame(6));
        tap.taken_until(1, BEGAN_NS + 30 + STAMP_MARGIN_NS);
        tap.sent(1, BEGAN_NS + 40, &frame(7));
        tap.delivered(1, BEGAN_NS + 50, &frame(8));
        tap.sent(7, BEGAN_NS + 60, &frame(9));
        drop(tap);
        assert_eq!(capturing.finish().unwrap(), 0);
        assert_eq!(packets(&file.lock().unwrap()), [(10, 5), (20, 4), (30, 6), (40, 7), (50, 8)]);
    }

    #[test]
    fn a_full_disk_is_told_and_holds_nothing_up() {
        let (capture, _) = capture(3);
        let (mut tap, capturing) = capture.start().unwrap();
        tap.begin(BEGAN_NS);
        for number in 0..10 * CHUNK as u64 {
            tap.sent(1, BEGAN_NS + number, &frame(0));
        }
        drop(tap);
        assert_eq!(capturing.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn what_a_slow_disk_has_no_time_for_is_counted() {
        let (to_writer, chunks) = sync_channel(1);
        let mut tap = Tap::default();
        (tap.ends, tap.to_writer) = (vec![Some(VecDeque::new())], Some(to_writer));
        let missing = Arc::clone(&tap.missing);
        tap.begin(BEGAN_NS);
        for number in 0..3 * CHUNK as u64 {
            tap.sent(0, BEGAN_NS + number, &frame(0));
        }
        assert_eq!(missing.load(Ordering::Relaxed), 2 * CHUNK as u64);
        assert_eq!(chunks.recv().unwrap().len(), CHUNK);
    }
}
