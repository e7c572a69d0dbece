//! What a stream says about the nodes in between: what its entry has sent and received, compared with its exit's receipts.
//!
//! Both ends count what they read of each direction, and its end as one more byte. So both counts are exact, and a node that
//! keeps the last byte back is detected as one that keeps all of them.

use ekiden_units::Time;

use crate::receipt::{End, Receipt};

/// The age at which the exit is first asked about a stream.
const FIRST: Time = Time::secs(1);
/// The interval until the next question, besides four round trips. It doubles each time, up to `AGAIN_MOST`.
const AGAIN: Time = Time::secs(2);
const AGAIN_MOST: Time = Time::secs(64);
/// The threshold in bytes per second: what waits on a path that moves less is held back.
const LEAST_BYTES_S: f64 = 1024.0;
/// A stream that has stood still for at least this time may have been broken off by a limit of a node in between.
const STOOD_STILL: Time = Time::secs(5);
/// If the exit cannot be asked, a stream is silent when nothing has come on it for this time.
const SILENT: Time = Time::secs(2);
/// What the entry counts as the end of a direction.
const END: u64 = 1;

/// The entry's counts of a stream. The end of a direction counts as one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Bytes that the client has sent; `None` if the stream does not carry them unchanged.
    pub sent: Option<u64>,
    /// Bytes that have come for the client. Where `sent` is not known: whether any have.
    pub got: u64,
    /// Whether the end of the direction towards the client has come.
    pub has_got_end: bool,
    /// Whether the client does not read the data that is there for it.
    pub is_full: bool,
    /// For how long nothing has moved.
    pub still: Time,
}

impl Counts {
    /// Whether the client has sent something and only the end has come back.
    pub fn is_hollow(&self) -> bool {
        self.has_got_end && self.got == END && self.sent.is_some_and(|sent| sent > END)
    }
}

/// How a stream has ended at its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Both directions have ended.
    Done,
    /// The connection to the next node broke, or that node gave it up.
    Leg,
    /// Otherwise: its client, or this node, broke it off.
    Entry,
}

/// Whether streams arrive over the nodes of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// One has ended, and all of it has arrived.
    Arrived,
    /// All of one has arrived so far.
    Delivered,
    /// One was held back by a node in between, or invented.
    HeldBack,
    /// One was broken off in between, or not opened in time: by a node that is sick, or has ended, or whose line is bad.
    BrokenOff,
    /// Something came, and the exit was not asked, or could not be, whether it was all.
    Came,
    /// Nothing came for what was sent, and the exit could not be asked why.
    Silent,
    /// One has ended without any answer to what was sent, and the exit could not be asked whether the destination had ended
    /// it so.
    Hollow,
}

/// A stream over other nodes, as its entry looks after it.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    begun: Time,
    rtt: Time,
    next: Time,
    pause: Time,
    asked: Option<(Time, Counts)>,
    before: Option<(Time, Counts, Receipt)>,
}

/// A stream that was to be opened on a path, and was opened on another one.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// When the path was asked.
    pub begun: Time,
    /// When it was given up.
    pub ended: Time,
    /// Its round trip, as far as is known.
    pub rtt: Time,
    /// Whether the path said that the destination refuses; else it said nothing.
    pub was_refused: bool,
}

impl Delivery {
    /// Of a stream that begins now, on a path of this round trip.
    pub fn new(now: Time, rtt: Time) -> Self {
        Self { begun: now, rtt, next: now + FIRST, pause: pause(rtt), asked: None, before: None }
    }

    /// When the stream began.
    pub fn begun(&self) -> Time {
        self.begun
    }

    /// Whether its exit is to be asked now.
    pub fn is_due(&self, now: Time) -> bool {
        self.asked.is_none() && now >= self.next
    }

    /// Its exit is asked now; `counts` are from before that.
    pub fn ask(&mut self, counts: Counts, now: Time) {
        self.asked = Some((now, counts));
        self.next = now + self.pause;
        self.pause = Time(self.pause.0.saturating_mul(2)).min(AGAIN_MOST.max(self.pause));
    }

    /// Its exit could not be asked.
    pub fn unanswered(&mut self, now: Time) -> Option<Verdict> {
        let (_, counts) = self.asked.take()?;
        self.by_sight(&counts, now)
    }

    /// What the counts say by themselves.
    pub fn by_sight(&self, counts: &Counts, now: Time) -> Option<Verdict> {
        let is_silent = counts.sent.is_none_or(|sent| sent > END) && now.since(self.begun) >= SILENT;
        match counts.got {
            0 => is_silent.then_some(Verdict::Silent),
            // The end alone says nothing while the stream runs.
            END if counts.has_got_end => None,
            _ => Some(Verdict::Came),
        }
    }

    /// Takes the exit's answer while the stream runs. Returns `None` if it says nothing about the path.
    pub fn answered(&mut self, receipt: Option<Receipt>, remembers: Time, now: Time) -> Option<Verdict> {
        let (at, counts) = self.asked.take()?;
        let Some(receipt) = receipt else { return unknown(self.begun, remembers, now, Verdict::HeldBack) };
        match self.before.replace((at, counts, receipt)) {
            None => has_all(&counts, &receipt).then_some(Verdict::Delivered),
            Some((then, had, said)) => between((then, had, said), (at, counts, receipt)),
        }
    }

    /// Takes the exit's answer to a question about the stream after its end.
    pub fn ended(
        &self,
        counts: &Counts,
        ended: Ended,
        receipt: Option<Receipt>,
        remembers: Time,
        now: Time,
    ) -> Option<Verdict> {
        let Some(receipt) = receipt else { return unknown(self.begun, remembers, now, Verdict::HeldBack) };
        let (is_done, has_come) = (receipt.end == Some(End::Done), counts.got >= receipt.from_host);
        // By its own end the exit has received all that it will ever receive.
        let is_cut = is_done && ended == Ended::Done && counts.sent.is_some_and(|sent| receipt.to_host < sent);
        let is_short = counts.sent.is_some() && counts.has_got_end && !has_come;
        let is_stuck = ended != Ended::Done && is_stuck(counts, &receipt, pause(self.rtt));
        if is_invented(counts, &receipt) || is_short || is_cut || is_stuck {
            return Some(Verdict::HeldBack);
        }
        // The destination may have broken the stream off when both ends had been read, and the last one was not passed on
        // yet.
        let by_exit = receipt.end == Some(End::Exit) || is_done && counts.got.saturating_add(END) >= receipt.from_host;
        match ended {
            Ended::Leg if by_exit || counts.still >= STOOD_STILL => None,
            Ended::Leg => Some(Verdict::BrokenOff),
            // The end of what was sent may still be on its way.
            Ended::Done if has_all(counts, &receipt) => {
                let has_gone = counts.sent.is_none_or(|sent| receipt.to_host.saturating_add(END) >= sent);
                has_gone.then_some(Verdict::Arrived)
            }
            Ended::Done | Ended::Entry => has_all(counts, &receipt).then_some(Verdict::Delivered),
        }
    }
}

impl Attempt {
    /// Takes the exit's answer. If the exit received the request in time and has not answered it either, or has answered as
    /// the path did, the cause is the destination: perhaps one of several hosts behind a balancer is down.
    pub fn answered(&self, receipt: Option<Receipt>, remembers: Time, now: Time) -> Option<Verdict> {
        let why = if self.was_refused { Verdict::HeldBack } else { Verdict::BrokenOff };
        let Some(receipt) = receipt else { return unknown(self.begun, remembers, now, why) };
        if self.was_refused {
            return (receipt.end != Some(End::Failed)).then_some(Verdict::HeldBack);
        }
        // At the latest.
        let answered = now.since(Time((receipt.answered_s? * 1e9) as u64));
        (answered + pause(self.rtt) < self.ended).then_some(Verdict::HeldBack)
    }
}

/// The time in which everything under way has arrived.
fn pause(rtt: Time) -> Time {
    AGAIN + Time(rtt.0.saturating_mul(4))
}

/// The exit does not know a stream that a node in between has accepted.
fn unknown(begun: Time, remembers: Time, now: Time, verdict: Verdict) -> Option<Verdict> {
    (remembers > now.since(begun)).then_some(verdict)
}

/// Whether more has come than the destination has sent. The exit has counted later than the entry. It does not count what it
/// passes on after a stream was broken off.
fn is_invented(counts: &Counts, receipt: &Receipt) -> bool {
    let is_counted = matches!(receipt.end, None | Some(End::Done));
    is_counted && counts.sent.is_some() && counts.got > receipt.from_host
}

/// Whether something has not come although nothing has moved at either end for `pause`, in which it should have.
fn is_stuck(counts: &Counts, receipt: &Receipt, pause: Time) -> bool {
    let is_still = counts.still >= pause && receipt.still_s >= pause.as_secs();
    let misses_up = counts.sent.is_some_and(|sent| sent > receipt.to_host);
    let misses_down = receipt.from_host > counts.got;
    is_still && (misses_up && !receipt.is_full && receipt.end != Some(End::Exit) || misses_down && !counts.is_full)
}

/// Whether all that the destination has sent by now has come.
fn has_all(counts: &Counts, receipt: &Receipt) -> bool {
    receipt.from_host > 0 && counts.got >= receipt.from_host
}

/// What two looks at a stream say. The pause between them is long enough for all that was under way at the first look to
/// arrive by the second.
fn between((then, had, said): (Time, Counts, Receipt), (now, has, says): (Time, Counts, Receipt)) -> Option<Verdict> {
    let is_slow =
        |before: u64, after: u64| (after.saturating_sub(before) as f64) < LEAST_BYTES_S * now.since(then).as_secs();
    let is_taken = !had.is_full && !has.is_full;
    let misses_up = had.sent.is_some_and(|sent| sent > says.to_host);
    let is_held_up = misses_up && is_slow(said.to_host, says.to_host) && !said.is_full && !says.is_full;
    let misses_down = said.from_host > has.got;
    // The exit is finished with the stream, and the end does not come. What is sent to the exit is lost.
    let is_over = said.end.is_some();
    let is_kept_open = is_over && (has.sent.is_some() || has.got == 0);
    let is_held_down = (misses_down || is_kept_open) && is_slow(had.got, has.got) && is_taken;
    if is_held_up && !is_over || is_held_down || is_invented(&had, &says) {
        return Some(Verdict::HeldBack);
    }
    let has_come = said.from_host > 0 && !misses_down;
    let has_gone = had.sent.is_some_and(|sent| sent > 0) && !misses_up;
    (has_come || has_gone).then_some(Verdict::Delivered)
}

#[cfg(test)]
mod tests;
