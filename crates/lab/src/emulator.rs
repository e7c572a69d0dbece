//! The emulator: one thread that moves frames between the ends of all links of a lab at the times that [`Line`] says.
//!
//! A frame's delay counts from the kernel's receive timestamp, so it matters little when the thread reads the frame. With
//! few frames it wakes for each, and busy-waits the last microseconds before one is due. Under load it wakes at most every
//! [`TICK_NS`] and sends the frames due within half a turn from now, so that frames are as often early as late.
//!
//! What a node sends in answer to a frame (a router passes it on, a host acknowledges it) waits in the emulator's sockets
//! when the sending returns. It is taken in the same turn, and counts as sent when the frame was due ([`Sent`]). So an
//! error is not passed on from link to link.

mod counters;
mod sent;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use ekiden_link::{Fate, Line, put};
use ekiden_net::clock::{monotonic_ns, realtime_ns, sleep_until};
use ekiden_net::namespace::Namespace;
use ekiden_net::packet::{BATCH, Batch, ETHERNET_HEADER, PacketSocket};
use ekiden_net::processors::{Awake, Busy};
use ekiden_net::schedule;
use ekiden_record::LinkDirection;
use ekiden_scenario::Link;
use ekiden_units::random;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::{TimeSpec, TimeValLike};

use crate::capture::Tap;
use counters::Counters;
use sent::Sent;

/// The shortest time between two turns of the thread under load.
const TICK_NS: u64 = 200_000;
/// With few frames, the thread stops sleeping this long before a frame is due, and busy-waits: a timer may be that late.
const SPIN_NS: u64 = 50_000;
/// Load is this many frames within [`LOAD_WINDOW_NS`]: from there on ticks cost less than waking for each frame.
const LOAD_FRAMES: u64 = 10;
const LOAD_WINDOW_NS: u64 = 10_000_000;
/// Frames taken from one device before the others have their turn.
const TURN: usize = 8 * BATCH;

/// A link and the devices in the emulator's namespace that lead to its ends.
pub(crate) struct EmulatedLink<'a> {
    pub name: &'a str,
    pub link: &'a Link,
    pub devices: [String; 2],
}

/// The running emulation of all links of a lab. Dropping it stops it.
pub(crate) struct Emulator {
    shared: Arc<Shared>,
    links: Vec<(String, Link)>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
    _awake: Option<Awake>,
    _busy: Busy,
}

struct Shared {
    /// Two per link: the ends in the order of the scenario.
    sockets: Vec<PacketSocket>,
    /// In the same order: of the direction that starts at that end.
    counters: Mutex<Vec<Counters>>,
    /// When the run began; 0 before.
    began_ns: AtomicU64,
    stopped: AtomicBool,
}

/// What the thread owns.
struct Driver {
    shared: Arc<Shared>,
    directions: Vec<EmulatedDirection>,
    /// The directions that lead to each node, by their number.
    leading_to: Vec<Vec<usize>>,
    batch: Batch,
    sent: Sent,
    tap: Tap,
    load: Load,
    /// The maximum time for which arrivals may stay unseen under load: half the shortest delay, so that none is due before
    /// it is seen.
    unseen_most_ns: u64,
    /// As the lines know it.
    began_ns: u64,
    stop: PipeReader,
}

struct EmulatedDirection {
    line: Line,
    /// Frames under way and when they are due, in order.
    under_way: VecDeque<(u64, Box<[u8]>)>,
}

/// Whether the thread is under load, and how long its turns take then.
struct Load {
    since_ns: u64,
    frames: u64,
    heavy: bool,
    last_turn_ns: u64,
    /// A moving average; longer than [`TICK_NS`] by what waking and working take.
    turn_ns: u64,
}

impl Emulator {
    /// Starts emulating `links`, whose devices are in `namespace`. Shows `tap` the frames.
    pub fn start(namespace: &Namespace, links: &[EmulatedLink<'_>], seed: u64, tap: Tap) -> io::Result<Self> {
        let sockets = namespace
            .run(|| links.iter().flat_map(|link| &link.devices).map(|device| PacketSocket::open(device)).collect())?;
        let mut directions = Vec::new();
        for EmulatedLink { name, link, .. } in links {
            for end in 0..2 {
                let line = Line::new(link.from_end(end), random::derive(seed, name, end as u64));
                directions.push(EmulatedDirection { line, under_way: VecDeque::new() });
            }
        }
        let counters = Mutex::new(directions.iter().map(|_| Counters::default()).collect());
        let shared =
            Arc::new(Shared { sockets, counters, began_ns: AtomicU64::new(0), stopped: AtomicBool::new(false) });
        let mtu = links.iter().map(|emulated| emulated.link.mtu()).max().unwrap_or_default();
        let (stop, stopping) = io::pipe()?;
        let load = Load::new(monotonic_ns());
        let batch = Batch::new(mtu as usize);
        let unseen_most_ns = links
            .iter()
            .flat_map(|emulated| [&emulated.link.forth, &emulated.link.back])
            .map(|direction| direction.least_delay().0 / 2)
            .min()
            .unwrap_or_default();
        let leading_to = leading_to(links);
        let shared_too = Arc::clone(&shared);
        let sent = Sent::default();
        let driver = Driver {
            shared: shared_too,
            directions,
            leading_to,
            batch,
            sent,
            tap,
            load,
            unseen_most_ns,
            began_ns: 0,
            stop,
        };
        let thread = thread::Builder::new().name("emulator".into()).spawn(move || driver.run())?;
        let links = links.iter().map(|EmulatedLink { name, link, .. }| ((*name).into(), (*link).clone())).collect();
        // If neither is available, processors may sleep; the counters record how late that makes frames.
        Ok(Self {
            shared,
            links,
            stop: Some(stopping),
            thread: Some(thread),
            _awake: Awake::keep().ok(),
            _busy: Busy::keep(),
        })
    }

    /// What every direction of every link has done so far, in the order of the scenario.
    pub fn counters(&self) -> Vec<LinkDirection> {
        let mut counters = lock(&self.shared.counters);
        for (counters, socket) in counters.iter_mut().zip(&self.shared.sockets) {
            counters.overruns += u64::from(socket.missed().unwrap_or_default());
        }
        let ends = self.links.iter().flat_map(|(name, link)| {
            let [a, b] = &link.ends;
            [(name, &link.forth, a, b), (name, &link.back, b, a)]
        });
        ends.zip(counters.iter())
            .map(|((name, direction, from, to), of)| of.report(name, direction, from, to))
            .collect()
    }

    /// The run begins: counts anew, and changes and outages of links count from now on. Returns the time by the monotonic clock.
    pub fn begin(&self) -> u64 {
        lock(&self.shared.counters).fill_with(Counters::default);
        let began_ns = monotonic_ns();
        self.shared.began_ns.store(began_ns, Ordering::Relaxed);
        began_ns
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Driver {
    fn run(mut self) {
        // Needs a privilege; without it frames may be late, and the record says by how much.
        let _ = schedule::prefer_this_thread();
        while !self.shared.stopped.load(Ordering::Relaxed) {
            self.turn();
            self.rest();
        }
    }

    /// Takes what has arrived, sends what is due, and again what the nodes have answered, until nothing is due any more; for
    /// at most one tick, because on links faster than this thread something is always due.
    fn turn(&mut self) {
        let began_ns = monotonic_ns();
        self.begin();
        let taken = self.take_arrivals();
        self.load.note(began_ns, taken);
        while self.deliver(self.load.early_ns()) && monotonic_ns() < began_ns + TICK_NS {}
    }

    /// Tells the lines that the run has begun, once.
    fn begin(&mut self) {
        let began_ns = self.shared.began_ns.load(Ordering::Relaxed);
        if began_ns != self.began_ns {
            self.began_ns = began_ns;
            self.directions.iter_mut().for_each(|direction| direction.line.begin(began_ns));
            self.tap.begin(began_ns);
        }
    }

    /// Hands every waiting frame to its line and returns how many there were.
    fn take_arrivals(&mut self) -> u64 {
        let mut counters = lock(&self.shared.counters);
        self.sent.clear();
        let directions = self.shared.sockets.iter().zip(&mut self.directions).zip(&mut *counters).enumerate();
        let taken = directions.map(|(i, ((socket, direction), of))| {
            direction.take(socket, &mut self.batch, &self.sent, of, (&mut self.tap, i))
        });
        taken.sum()
    }

    /// Sends the frames due by `early_ns` from now, to each node in the order in which they are due: a router drops the
    /// frames that reach it last more often, because they find its queues full. Takes what each node has answered, and
    /// returns whether anything was sent.
    fn deliver(&mut self, early_ns: u64) -> bool {
        let mut counters = lock(&self.shared.counters);
        let mut any = false;
        for leading_to_it in &self.leading_to {
            self.sent.clear();
            loop {
                let now_ns = monotonic_ns();
                let Some((i, due)) = first_due(&self.directions, leading_to_it, now_ns + early_ns) else { break };
                let (direction, counters) = (&mut self.directions[i], &mut counters[i]);
                let dues_ns = [0, due - 1].map(|at| direction.under_way[at].0);
                let frames = direction.under_way.iter().take(due).map(|(_, frame)| &**frame);
                let sent = self.shared.sockets[i ^ 1].send(frames).unwrap_or_default();
                self.sent.note([now_ns, monotonic_ns()], dues_ns);
                for (due_ns, frame) in direction.under_way.drain(..sent) {
                    self.tap.delivered(i ^ 1, now_ns, &frame);
                    counters.delivered(frame.len() - ETHERNET_HEADER, now_ns as i64 - due_ns as i64);
                }
                if sent < due {
                    // The device refused this one: its far end is down or gone.
                    direction.under_way.pop_front();
                    counters.overruns += 1;
                }
            }
            if self.sent.is_empty() {
                continue;
            }
            any = true;
            for from_it in leading_to_it.iter().map(|i| i ^ 1) {
                let (direction, socket) = (&mut self.directions[from_it], &self.shared.sockets[from_it]);
                let (counters, seen) = (&mut counters[from_it], (&mut self.tap, from_it));
                self.load.frames += direction.take(socket, &mut self.batch, &self.sent, counters, seen);
            }
        }
        any
    }

    /// Waits until there may be something to do.
    fn rest(&mut self) {
        let now_ns = monotonic_ns();
        let next = self.directions.iter().filter_map(|direction| Some(direction.under_way.front()?.0)).min();
        if self.load.heavy {
            let look_ns = now_ns + self.unseen_most_ns.min(LOAD_WINDOW_NS);
            return sleep_until(next.map_or(look_ns, |due_ns| due_ns.min(look_ns)).max(now_ns + TICK_NS));
        }
        match next {
            Some(due_ns) if due_ns <= now_ns + SPIN_NS => {
                while monotonic_ns() < due_ns {
                    std::hint::spin_loop();
                }
            }
            next => self.await_frame(next.map(|due_ns| due_ns - SPIN_NS - now_ns)),
        }
    }

    /// Sleeps until a frame arrives, the lab ends, or `timeout_ns` have passed.
    fn await_frame(&self, timeout_ns: Option<u64>) {
        let timeout = timeout_ns.map(|ns| TimeSpec::nanoseconds(ns.min(i64::MAX as u64) as i64));
        let sockets = self.shared.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        let stop = PollFd::new(self.stop.as_fd(), PollFlags::POLLIN);
        let mut waited: Vec<_> = sockets.chain([stop]).collect();
        // A signal may end the sleep early: the caller looks for frames in any case.
        let _ = ppoll(&mut waited, timeout, None);
    }
}

/// The directions that lead to each node, by their number.
fn leading_to(links: &[EmulatedLink<'_>]) -> Vec<Vec<usize>> {
    let mut nodes = BTreeMap::<&str, Vec<usize>>::new();
    for (at, EmulatedLink { link, .. }) in links.iter().enumerate() {
        let [a, b] = &link.ends;
        nodes.entry(b).or_default().push(2 * at);
        nodes.entry(a).or_default().push(2 * at + 1);
    }
    nodes.into_values().collect()
}

/// Which of these directions has the frame that is due first, and how many, at most [`BATCH`], it has that are due by
/// `until_ns` and no later than any other direction's; `None` if nothing is due.
fn first_due(directions: &[EmulatedDirection], these: &[usize], until_ns: u64) -> Option<(usize, usize)> {
    let front_ns = |i: &usize| directions[*i].under_way.front().map_or(u64::MAX, |(due_ns, _)| *due_ns);
    let first = *these.iter().min_by_key(|i| front_ns(i))?;
    let others_ns = these.iter().filter(|i| **i != first).map(front_ns).min().unwrap_or(u64::MAX);
    let until_ns = until_ns.min(others_ns);
    let due = directions[first].under_way.iter().take(BATCH).take_while(|(due_ns, _)| *due_ns <= until_ns).count();
    (due > 0).then_some((first, due))
}

impl EmulatedDirection {
    /// Hands the frames that wait in its socket to the line, shows them to a tap as seen at an end, and returns how many there
    /// were.
    fn take(
        &mut self,
        socket: &PacketSocket,
        batch: &mut Batch,
        sent: &Sent,
        counters: &mut Counters,
        (tap, end): (&mut Tap, usize),
    ) -> u64 {
        // The difference of the clocks is read anew each time, because the realtime clock may be set.
        let realtime_ahead_ns = realtime_ns().wrapping_sub(monotonic_ns());
        let mut taken = 0;
        for _ in 0..TURN / BATCH {
            let before_ns = monotonic_ns();
            let count = socket.receive(batch).unwrap_or_default();
            let now_ns = monotonic_ns();
            for (frame, stamp) in batch.frames() {
                let arrival_ns = stamp.map_or(now_ns, |stamp| stamp.wrapping_sub(realtime_ahead_ns)).min(now_ns);
                tap.sent(end, arrival_ns, frame);
                self.accept(frame, sent.meant_ns(arrival_ns), counters);
            }
            taken += count as u64;
            if count < BATCH {
                tap.taken_until(end, before_ns);
                break;
            }
        }
        taken
    }

    fn accept(&mut self, frame: &[u8], arrival_ns: u64, counters: &mut Counters) {
        let Some(bytes) = frame.len().checked_sub(ETHERNET_HEADER) else { return };
        let fate = self.line.offer(arrival_ns, bytes as u32);
        counters.offered(bytes, fate, &self.line);
        if let Fate::Arrives { due_ns } = fate {
            put(&mut self.under_way, due_ns, frame.into());
        }
    }
}

impl Load {
    fn new(now_ns: u64) -> Self {
        Self { since_ns: now_ns, frames: 0, heavy: false, last_turn_ns: now_ns, turn_ns: TICK_NS }
    }

    /// How much too early frames may be sent now: half a turn, so that they are as often early as late.
    fn early_ns(&self) -> u64 {
        if self.heavy { self.turn_ns / 2 } else { 0 }
    }

    /// Records a turn that begins now with this number of frames.
    fn note(&mut self, now_ns: u64, frames: u64) {
        let turn_ns = now_ns - self.last_turn_ns;
        // A longer turn was one in which nothing was due.
        if self.heavy && turn_ns < 2 * TICK_NS {
            self.turn_ns = (self.turn_ns * 15 + turn_ns) / 16;
        }
        self.last_turn_ns = now_ns;
        self.frames += frames;
        if self.frames >= LOAD_FRAMES {
            self.heavy = true;
        }
        if now_ns - self.since_ns >= LOAD_WINDOW_NS {
            self.heavy = self.frames >= LOAD_FRAMES;
            (self.since_ns, self.frames) = (now_ns, 0);
        }
    }
}

/// The counters are plain numbers: valid even if a thread panicked while it held them.
fn lock(counters: &Mutex<Vec<Counters>>) -> MutexGuard<'_, Vec<Counters>> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use ekiden_scenario::Scenario;

    use super::*;

    const SCENARIO: &str = "name = \"star\"\n[node.a]\n[node.b]\n[node.c]\n[node.router]\nkind = \"router\"\n\
        [link.a]\nrate = \"1Mbit/s\"\nends = [\"a\", \"router\"]\n[link.b]\nrate = \"1Mbit/s\"\nends = [\"b\", \"router\"]\n[link.c]\nrate = \"1Mbit/s\"\nends = [\"router\", \"c\"]\n\
        [flow.f]\nfrom = \"a\"\nto = \"c\"\nbytes = \"1KB\"\n";

    #[test]
    fn a_node_gets_frames_in_the_order_in_which_they_are_due_whatever_link_they_come_by() {
        let scenario = Scenario::parse(SCENARIO, "star.toml").unwrap();
        let direction = |dues: &[u64]| EmulatedDirection {
            line: Line::new(&scenario.links["a"].forth, 1),
            under_way: dues.iter().map(|due_ns| (*due_ns, Box::default())).collect(),
        };
        let mut directions = [direction(&[10, 40, 50]), direction(&[1]), direction(&[20, 30, 60])];
        let mut order = Vec::new();
        while let Some((i, due)) = first_due(&directions, &[0, 2], 55) {
            order.extend(directions[i].under_way.drain(..due).map(|(due_ns, _)| due_ns));
        }
        assert_eq!(order, [10, 20, 30, 40, 50]);
        assert_eq!(first_due(&directions, &[], 55), None);
    }

    #[test]
    fn directions_are_put_together_by_the_node_they_lead_to() {
        let scenario = Scenario::parse(SCENARIO, "star.toml").unwrap();
        let emulated = |link| EmulatedLink { name: "", link, devices: Default::default() };
        let links: Vec<_> = scenario.links.values().map(emulated).collect();
        // To a, b, c and the router.
        assert_eq!(leading_to(&links), [vec![1], vec![3], vec![4], vec![0, 2, 5]]);
    }
}
