//! What a schedule has, by its seed: the line, what its hosts do, and its faults.

use std::time::Duration;

use ekiden_stream::expiry::Limits;
use ekiden_units::random::Random;

use super::end::Line;

/// How kernel and event loop behave: each disturbance as a rate per thousand calls, beside the jitter and the length of TLS records.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuning {
    pub jitter_ms: u64,
    pub not_now: u64,
    pub partial: u64,
    pub scarce: u64,
    pub urgent: u64,
    pub no_pipe: u64,
    pub spurious: u64,
    /// The longest TLS record, in bytes.
    pub record: usize,
}

/// What a host does when it has written all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finish {
    /// It says its end and reads on.
    #[default]
    ShutsDown,
    /// It reads up to the other's end, and then closes.
    Waits,
    /// It closes, whatever it has not read.
    Closes,
    Resets,
}

/// What a host does.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Pauses, and how many bytes it writes after each.
    pub writes: Vec<(u64, usize)>,
    pub finish: Finish,
    /// How much it reads at a time, and how long it pauses then.
    pub reads: (usize, u64),
    /// After how many bytes it stops reading, and for how many milliseconds.
    pub stalls: Option<(usize, u64)>,
    /// It reads nothing before it has written all.
    pub writes_first: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The kernel closes what a process had.
    Kill(usize),
    /// A process drops its streams and ends.
    Stop(usize),
    /// A connection is reset at both ends.
    Cut(usize),
    /// Nothing passes any more.
    CutOff(usize),
    HostResets(usize),
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub nodes: usize,
    pub lines: Vec<Line>,
    pub hosts: [Script; 2],
    /// How many of the client's bytes were read together with its request.
    pub first: usize,
    /// Faults, each with the number of steps after which it happens.
    pub faults: Vec<(usize, Fault)>,
    pub limits: Limits,
    /// Whether there is a place for what a client, or a dialler, has left behind.
    pub has_place: bool,
    pub tuning: Tuning,
    pub second: Option<Second>,
}

/// A stream that follows over the legs of the first one.
#[derive(Debug, Clone)]
pub struct Second {
    pub hosts: [Script; 2],
    /// As [`Plan::first`].
    pub first: usize,
    /// The lines of the two hosts.
    pub lines: [Line; 2],
    /// How long the legs rest before, in milliseconds.
    pub after_ms: u64,
    /// Faults, each with the number of steps since the legs rest. After none it happens before the stream is opened.
    pub faults: Vec<(usize, Fault)>,
}

impl Script {
    /// Whether it says its end, and takes all, though it may pause for minutes.
    pub fn behaves(&self) -> bool {
        self.finish == Finish::ShutsDown && self.stalls.is_none_or(|(_, pause)| pause <= 200_000)
    }

    /// Whether it takes all that there is for it, and soon.
    pub fn reads_on(&self) -> bool {
        matches!(self.finish, Finish::ShutsDown | Finish::Waits) && self.reads.0 >= 16 && self.stalls.is_none()
    }

    pub fn bytes(&self) -> usize {
        self.writes.iter().map(|write| write.1).sum()
    }
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let nodes = pick(random, &[1, 1, 2, 2, 2, 2, 3]);
        let kind = random.up_to(7);
        let (polite, faults) = match kind {
            0 | 1 => (true, 0),
            2 => (true, 1),
            3 => (false, 0),
            4 | 5 => (false, 1),
            _ => (false, 2),
        };
        let most = pick(random, &[0, 40, 300, 300, 1000, 3000]);
        let hosts = [script(random, polite, most), script(random, polite, most)];
        let first = hosts[0].bytes().min(random.up_to(60) as usize) * random.up_to(1) as usize;
        let faults = (0..faults).map(|_| (steps(random), fault(random, nodes))).collect();
        let limits = if polite || random.up_to(3) > 0 { Limits::default() } else { limits(random) };
        let mut lines: Vec<Line> = (0..=nodes).map(|number| line(random, (1..nodes).contains(&number))).collect();
        let has_place = random.up_to(1) > 0;
        let tuning = tuning(random);
        // Clients may speak TLS to their node.
        lines[0].is_sealed = random.up_to(2) == 0;
        // Drawn last, so that all else is the same without it.
        let second = (nodes > 1).then(|| second(random, nodes));
        Self { nodes, lines, hosts, first, faults, limits, has_place, tuning, second }
    }

    /// Without faults, limits and disturbances, over as many nodes as there are lines but one.
    pub fn calm(lines: Vec<Line>, hosts: [Script; 2]) -> Self {
        let (nodes, limits, tuning) = (lines.len() - 1, Limits::default(), Tuning::default());
        Self { nodes, lines, hosts, first: 0, faults: Vec::new(), limits, has_place: true, tuning, second: None }
    }

    /// What the hosts of a stream do.
    pub fn hosts(&self, stream: usize) -> &[Script; 2] {
        self.second.as_ref().filter(|_| stream > 0).map_or(&self.hosts, |second| &second.hosts)
    }

    /// How many of its client's bytes were read together with the request.
    pub fn first(&self, stream: usize) -> usize {
        self.second.as_ref().filter(|_| stream > 0).map_or(self.first, |second| second.first)
    }

    pub fn is_limited(&self) -> bool {
        self.limits.idle.is_some() || self.limits.lifetime.is_some()
    }
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.up_to(of.len() as u64 - 1) as usize]
}

fn script(random: &mut Random, polite: bool, most: usize) -> Script {
    let mut left = random.up_to(most as u64) as usize;
    let mut writes = Vec::new();
    while left > 0 {
        let n = (1 + random.up_to(most as u64)) as usize;
        writes.push((pick(random, &[0, 0, 1, 10, 100, 3000]), n.min(left)));
        left -= n.min(left);
    }
    let finish = match polite {
        true => Finish::ShutsDown,
        false => {
            use Finish::{Closes, Resets, ShutsDown, Waits};
            pick(random, &[ShutsDown, ShutsDown, Waits, Closes, Closes, Resets, Resets])
        }
    };
    let chunk = if polite { pick(random, &[16, 50, 200, 4000]) } else { pick(random, &[1, 16, 50, 200, 4000]) };
    let reads = (chunk, pick(random, &[0, 0, 1, 20]));
    let stalls = (!polite && random.up_to(2) == 0).then(|| {
        (random.up_to(most as u64) as usize, pick(random, &[100, 1500, 5000, 30_000, 200_000, 2_000_000, 2_000_000]))
    });
    Script { writes, finish, reads, stalls, writes_first: false }
}

fn second(random: &mut Random, nodes: usize) -> Second {
    let (polite, most) = (random.up_to(2) > 0, pick(random, &[0, 40, 300, 300]));
    let hosts = [script(random, polite, most), script(random, polite, most)];
    let first = hosts[0].bytes().min(random.up_to(60) as usize) * random.up_to(1) as usize;
    let mut lines = [line(random, false), line(random, false)];
    lines[0].is_sealed = random.up_to(2) == 0;
    let after_ms = pick(random, &[0, 0, 0, 1, 50, 3000, 100_000]);
    let is_calm = random.up_to(2) < 2;
    let mut fault = || {
        let is_between = random.up_to(2) == 0;
        (if is_between { 0 } else { steps(random) }, fault(random, nodes))
    };
    let faults = if is_calm { Vec::new() } else { vec![fault()] };
    Second { hosts, first, lines, after_ms, faults }
}

/// Early ones are as many as late ones.
fn steps(random: &mut Random) -> usize {
    let most = 1 << random.up_to(10);
    random.up_to(most) as usize
}

fn fault(random: &mut Random, nodes: usize) -> Fault {
    let (node, connection) = (random.up_to(nodes as u64 - 1) as usize, random.up_to(nodes as u64) as usize);
    match random.up_to(6) {
        0 | 1 => Fault::Kill(node),
        2 => Fault::Stop(node),
        3 | 4 => Fault::Cut(connection),
        5 => Fault::CutOff(connection),
        _ => Fault::HostResets(random.up_to(1) as usize),
    }
}

fn limits(random: &mut Random) -> Limits {
    // Short ones are as many as long ones.
    let mut time = || {
        let most = 1 << random.up_to(15);
        (random.up_to(1) > 0).then(|| Duration::from_millis(4 * (1 + random.up_to(most))))
    };
    Limits { idle: time(), lifetime: time() }
}

fn line(random: &mut Random, is_leg: bool) -> Line {
    let mut buffer = || pick(random, &[16, 60, 200, 1000, 4000]);
    let (send_most, receive_most) = ([buffer(), buffer()], [buffer(), buffer()]);
    let segment = pick(random, &[20, 100, 500, 1460]);
    let delay_ms = pick(random, &[0, 0, 1, 10, 50]);
    Line { send_most, receive_most, segment, delay_ms, is_sealed: is_leg && random.up_to(2) == 0 }
}

fn tuning(random: &mut Random) -> Tuning {
    let mut rate = |rates: &[u64]| pick(random, rates);
    Tuning {
        jitter_ms: rate(&[0, 0, 1, 10]),
        not_now: rate(&[0, 0, 20, 300]),
        partial: rate(&[0, 0, 100, 700]),
        scarce: rate(&[0, 0, 0, 300, 1000]),
        urgent: rate(&[0, 0, 0, 100]),
        no_pipe: rate(&[0, 0, 0, 200, 1000]),
        spurious: rate(&[0, 0, 0, 100]),
        record: rate(&[3, 30, 100, 1000]) as usize,
    }
}
