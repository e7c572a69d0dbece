//! TCP connections in virtual time, as their two kernels have them: buffers, windows, ends, resets, and errors that are reported once.

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::task::Waker;

use ekiden_units::random::Random;

use super::end::{End, Line};
use super::plan::Tuning;

thread_local! {
    /// The world of the schedule that runs.
    pub static WORLD: RefCell<World> = RefCell::new(World::default());
}

/// How long a connection is silent before it is probed.
const KEEPALIVE_MS: u64 = 60_000;
pub fn world<T>(act: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(act)
}

/// All connections, and what is on its way.
pub struct World {
    pub now_ms: u64,
    pub random: Random,
    pub tuning: Tuning,
    pub ends: Vec<End>,
    pub killed: [bool; 4],
    events: BinaryHeap<Reverse<Due>>,
    count: u64,
    /// Ends of which their event loops do not know the newest yet.
    pub news: Vec<usize>,
    pub is_traced: bool,
}

struct Due {
    /// When it happens, and its number among those at this time.
    key: (u64, u64),
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

/// What happens at a time.
#[derive(Debug)]
pub enum Event {
    Arrives(usize, Segment),
    /// The event loop is told of the end once more.
    Tells(usize),
    TimesOut(usize),
    /// The kernel checks a closed socket; with the number of bytes that had been acknowledged when the check was scheduled.
    Forgets(usize, u64),
}

#[derive(Debug)]
pub enum Segment {
    Data(Vec<u8>),
    /// The end; whether close_notify stands before it.
    End(bool),
    Reset,
    /// An acknowledgement: how much has arrived, up to where there is room, and whether the end has arrived.
    Ack(u64, u64, bool),
}

impl Default for World {
    fn default() -> Self {
        Self {
            now_ms: 0,
            random: Random::new(0),
            tuning: Tuning::default(),
            ends: Vec::new(),
            killed: [false; 4],
            events: BinaryHeap::new(),
            count: 0,
            news: Vec::new(),
            is_traced: false,
        }
    }
}

impl World {
    /// A connection between two ends, of these nodes or of hosts.
    pub fn connect(&mut self, nodes: [Option<usize>; 2], line: Line) -> [usize; 2] {
        let first = self.ends.len();
        for (side, node) in nodes.into_iter().enumerate() {
            self.ends.push(End {
                node,
                receive_most: line.receive_most[side],
                send_most: line.send_most[side],
                told_edge: line.receive_most[side] as u64,
                edge: line.receive_most[1 - side] as u64,
                resets_on_close: node.is_some(),
                // Nodes have a keepalive, which shortens the kernel's pauses.
                is_patient: node.is_none(),
                segment: line.segment,
                delay_ms: line.delay_ms,
                is_sealed: line.is_sealed,
                is_with_host: nodes.contains(&None),
                ..End::default()
            });
            self.tell(first + side);
        }
        [first, first + 1]
    }

    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{:>8} ms  {}", self.now_ms, what());
        }
    }

    pub fn chance(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.random.up_to(999) < per_mille
    }

    pub fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse(Due { key: (at, self.count), event }));
    }

    /// When the next event is due.
    pub fn next_at(&self) -> Option<u64> {
        self.events.peek().map(|due| due.0.key.0)
    }

    /// Takes the next event, which is due.
    pub fn pop(&mut self) -> Option<Event> {
        self.events.pop().map(|due| due.0.event)
    }

    /// Something of the end has changed: its event loop is to be told.
    pub fn tell(&mut self, end: usize) {
        if !std::mem::replace(&mut self.ends[end].has_news, true) {
            self.news.push(end);
        }
    }

    /// The event loop asks the kernel what there is, as epoll does.
    pub fn learn(&mut self, end: usize) {
        let of = &mut self.ends[end];
        of.has_news = false;
        let has_error = of.error.is_some();
        let hung_up = of.is_broken || (of.has_end && of.is_shut);
        let can_read = !of.received.is_empty() || of.has_end || of.is_broken;
        let can_write = of.is_broken || of.is_shut || of.room() * 3 >= of.send_most;
        of.readable |= can_read;
        of.read_closed |= hung_up || of.has_end;
        of.writable |= can_write;
        of.write_closed |= hung_up || has_error;
        of.has_error |= has_error;
        if can_read {
            of.reader.take().into_iter().for_each(Waker::wake);
        }
        of.wants_room = !can_write;
        if can_write {
            of.writer.take().into_iter().for_each(Waker::wake);
        }
        if of.has_error || of.read_closed {
            of.watchers.drain(..).for_each(Waker::wake);
        }
    }

    /// Puts a segment on the line to the other end.
    fn put(&mut self, from: usize, segment: Segment) {
        let jitter = self.random.up_to(self.tuning.jitter_ms);
        let to = &mut self.ends[from ^ 1];
        to.last_arrival = to.last_arrival.max(self.now_ms + to.delay_ms + jitter);
        let at = to.last_arrival;
        self.at(at, Event::Arrives(from ^ 1, segment));
    }

    /// Sends what the window allows.
    fn push(&mut self, end: usize) {
        loop {
            let of = &mut self.ends[end];
            let allowed = (of.edge - of.sent.min(of.edge)) as usize;
            let n = of.queued.len().min(allowed).min(of.segment);
            if of.is_broken || of.is_gone || n == 0 {
                break;
            }
            let bytes: Vec<u8> = of.queued.drain(..n).collect();
            of.sent += n as u64;
            of.sent_at = self.now_ms;
            of.busy_since.get_or_insert(self.now_ms);
            self.put(end, Segment::Data(bytes));
        }
        let of = &mut self.ends[end];
        if of.is_shut && !of.end_sent && of.queued.is_empty() && !of.is_broken && !of.is_gone {
            of.end_sent = true;
            let has_said_close = of.has_said_close;
            self.put(end, Segment::End(has_said_close));
        }
    }

    fn ack(&mut self, end: usize) {
        let of = &mut self.ends[end];
        of.told_edge = of.received_total + of.receive_room() as u64;
        let segment = Segment::Ack(of.received_total, of.told_edge, of.has_end);
        self.put(end, segment);
    }

    pub fn arrives(&mut self, end: usize, segment: Segment) {
        if self.ends[end].is_cut_off {
            return;
        }
        let of = &mut self.ends[end];
        if of.is_gone || of.is_broken {
            if matches!(segment, Segment::Data(_) | Segment::End(_)) {
                self.put(end, Segment::Reset);
            }
            return;
        }
        match segment {
            Segment::Data(_) if of.is_closed => {
                self.put(end, Segment::Reset);
                self.ends[end].is_gone = true;
            }
            Segment::Data(bytes) => {
                of.received_total += bytes.len() as u64;
                of.received.extend(bytes);
                assert!(of.received.len() <= of.receive_most, "the model sends beyond a window");
                self.ack(end);
                self.tell(end);
            }
            Segment::End(has_said_close) => {
                (of.has_end, of.was_told_close) = (true, has_said_close);
                of.is_gone |= of.is_closed && of.end_acked;
                self.ack(end);
                self.tell(end);
            }
            Segment::Reset => self.breaks(end, ErrorKind::ConnectionReset),
            Segment::Ack(acked, edge, has_end) => {
                if acked > of.acked {
                    (of.acked, of.progress_ms) = (acked, self.now_ms);
                }
                of.edge = of.edge.max(edge);
                of.end_acked |= has_end;
                of.is_gone |= of.is_closed && of.end_acked && of.has_end;
                if of.sent == of.acked && of.queued.is_empty() {
                    of.busy_ms += of.busy_since.take().map_or(0, |since| self.now_ms - since);
                }
                let may_write = of.wants_room && of.room() * 3 >= of.send_most;
                self.push(end);
                if may_write {
                    self.tell(end);
                }
            }
        }
    }

    /// The connection breaks at this end. What has come can still be read.
    pub fn breaks(&mut self, end: usize, why: ErrorKind) {
        let of = &mut self.ends[end];
        if of.is_gone || of.is_broken || (of.end_acked && of.has_end) {
            return;
        }
        let is_behind_end = of.has_end && !of.is_shut && why == ErrorKind::ConnectionReset;
        of.broke_ms = self.now_ms;
        of.error = Some(if is_behind_end { ErrorKind::BrokenPipe } else { why });
        of.stale = of.queued.len();
        of.queued.clear();
        (of.is_broken, of.sent) = (true, of.acked);
        of.is_gone |= of.is_closed;
        self.tell(end);
    }

    /// From now on nothing passes. Each end notices in its own time.
    pub fn cut_off(&mut self, connection: usize) {
        for end in [2 * connection, 2 * connection + 1] {
            self.ends[end].is_cut_off = true;
            let patience = 10_000 + self.random.up_to(90) * 1000;
            self.at(self.now_ms + patience, Event::TimesOut(end));
        }
    }

    /// Both ends are reset from the middle.
    pub fn cut(&mut self, connection: usize) {
        for end in [2 * connection, 2 * connection + 1] {
            self.put(end, Segment::Reset);
        }
    }

    /// The kernel looks whether a closed socket is worth keeping.
    pub fn forgets(&mut self, end: usize, acked: u64) {
        let of = &mut self.ends[end];
        if of.is_gone {
            return;
        }
        if of.acked == acked {
            of.is_gone = true;
            // The other kernel finds out by a probe.
            self.at(self.now_ms + KEEPALIVE_MS, Event::Arrives(end ^ 1, Segment::Reset));
            return;
        }
        let (acked, at) = (of.acked, self.now_ms + of.orphan_ms());
        self.at(at, Event::Forgets(end, acked));
    }

    pub fn receive(&mut self, end: usize, into: &mut [u8]) -> io::Result<usize> {
        if self.chance(self.tuning.not_now) {
            return Err(self.not_now(end));
        }
        let n = into.len().min(self.ends[end].received.len());
        let n = self.part(n);
        if n == 0 {
            return self.ends[end].nothing();
        }
        let of = &mut self.ends[end];
        for (slot, byte) in into.iter_mut().zip(of.received.drain(..n)) {
            *slot = byte;
        }
        let room = of.received_total + of.receive_room() as u64 - of.told_edge;
        if room >= of.segment.min(of.receive_most / 2).max(1) as u64 && !of.has_end && !of.is_broken {
            self.ack(end);
        }
        Ok(n)
    }

    /// Whether the kernel takes something to send now.
    fn may_send(&mut self, end: usize) -> io::Result<()> {
        let of = &mut self.ends[end];
        if of.is_broken || of.is_shut || of.error.is_some() {
            return Err(of.error.take().unwrap_or(ErrorKind::BrokenPipe).into());
        }
        if of.room() == 0 {
            of.wants_room = true;
            of.writable = false;
            return Err(ErrorKind::WouldBlock.into());
        }
        if self.chance(self.tuning.not_now) {
            self.ends[end].writable = false;
            return Err(self.not_now(end));
        }
        Ok(())
    }

    pub fn send(&mut self, end: usize, bytes: &[u8]) -> io::Result<usize> {
        self.may_send(end)?;
        let n = bytes.len().min(self.ends[end].room());
        let n = self.part(n);
        self.ends[end].queued.extend(&bytes[..n]);
        self.push(end);
        Ok(n)
    }

    /// The kernel lacks something; it tells when it has it.
    fn not_now(&mut self, end: usize) -> io::Error {
        let at = self.now_ms + self.random.up_to(5);
        self.at(at, Event::Tells(end));
        ErrorKind::WouldBlock.into()
    }

    /// All of it, or a part.
    fn part(&mut self, n: usize) -> usize {
        if n > 1 && self.chance(self.tuning.partial) { 1 + self.random.up_to(n as u64 - 2) as usize } else { n }
    }

    pub fn shut_down(&mut self, end: usize) -> io::Result<()> {
        let of = &mut self.ends[end];
        if of.is_broken || (of.end_acked && of.has_end) {
            return Err(ErrorKind::NotConnected.into());
        }
        of.is_shut = true;
        self.push(end);
        self.tell(end);
        Ok(())
    }

    pub fn end_cleanly(&mut self, end: usize) {
        self.ends[end].resets_on_close = false;
        self.says_close(end);
    }

    /// Sends close_notify, if the kernel takes it at once.
    pub fn says_close(&mut self, end: usize) {
        let of = &mut self.ends[end];
        let is_taken = of.pending.is_empty() && (!of.is_with_host || of.room() > 0);
        of.has_said_close |= !of.is_shut && is_taken;
        of.owes_close &= !of.has_said_close;
    }

    /// The same, if the event loop knows that it may.
    pub fn sends_close(&mut self, end: usize) -> io::Result<()> {
        self.may_send(end)?;
        let of = &mut self.ends[end];
        (of.has_said_close, of.owes_close) = (true, false);
        Ok(())
    }

    pub fn leave_to_kernel(&mut self, end: usize) {
        self.end_cleanly(end);
        self.ends[end].is_patient = true;
    }

    /// A process is killed: the kernel closes what it had.
    pub fn kill(&mut self, node: usize) {
        for end in 0..self.ends.len() {
            if self.ends[end].node == Some(node) && !self.ends[end].is_closed {
                self.close(end);
            }
        }
        self.killed[node] = true;
    }

    /// When something was last acknowledged on one of these connections.
    pub fn progress_ms(&self, path: &[usize]) -> u64 {
        let ends = path.iter().flat_map(|connection| &self.ends[2 * connection..][..2]);
        ends.map(|end| end.progress_ms).max().unwrap_or(0)
    }

    /// A host resets.
    pub fn reset(&mut self, end: usize) {
        self.ends[end].resets_on_close = true;
        self.ends[end].received.clear();
        self.close(end);
    }

    /// The process closes it, or ends. Whether the kernel goes on to say the end.
    pub fn close(&mut self, end: usize) -> bool {
        let of = &mut self.ends[end];
        of.is_closed = true;
        if of.is_gone || of.is_broken || (of.end_acked && of.has_end) {
            of.is_gone = true;
            return false;
        }
        let is_closing = of.is_shut && of.has_end;
        if !of.received.is_empty() || of.resets_on_close && (!is_closing || !of.queued.is_empty()) {
            (of.is_gone, of.has_reset) = (true, true);
            of.queued.clear();
            self.put(end, Segment::Reset);
            return false;
        }
        if of.resets_on_close {
            of.is_gone = true;
            return false;
        }
        of.is_shut = true;
        self.push(end);
        let of = &self.ends[end];
        let (acked, at) = (of.acked, self.now_ms + of.orphan_ms());
        self.at(at, Event::Forgets(end, acked));
        true
    }

    /// A reset comes in the middle of a splice that has moved something, and is reported to nobody.
    pub fn swallows_reset(&mut self, end: usize) {
        if self.ends[end ^ 1].has_reset && !self.ends[end].is_cut_off && self.chance(200) {
            self.breaks(end, ErrorKind::ConnectionReset);
            self.ends[end].error = None;
        }
    }
}
