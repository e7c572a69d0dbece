//! Whether a stream arrives: what its entry has sent and got, beside what its exit says that it has.
//!
//! A node in between ends the leg's TLS, so it can say OPENED, acknowledge and stay silent on its own account. Whether a silence is its
//! own, the destination's or the client's, only the exit can tell. So the entry asks the exit, on a connection between these two.

use ekiden_units::Time;
use serde::{Deserialize, Serialize};

/// The version of questions and receipts.
pub const RECEIPTS_FORMAT: u32 = 1;
/// The most streams in one question.
pub const STREAMS_MOST: usize = 32;
/// A stream is asked about when it is so old ...
const FIRST: Time = Time::secs(1);
/// ... and again after so long and four round trips, then after twice as long each time, up to the second.
const AGAIN: Time = Time::secs(2);
const AGAIN_MOST: Time = Time::secs(64);
/// What waits on a path that moves fewer bytes in a second is held back.
const LEAST_BYTES_S: f64 = 1024.0;
/// A stream that is broken off later may have been so by a limit of a node in between.
const BROKEN_OFF: Time = Time::secs(60);
/// Where the exit cannot be asked, a stream on which nothing has come for so long is silent.
const SILENT: Time = Time::secs(2);
/// Kernels count an end as a byte.
const END: u64 = 1;

/// A stream as both its ends know it: the address from which the exit has connected, as OPENED says it, and the destination, as OPEN does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamId {
    /// `address:port`.
    pub bound: String,
    /// `host:port`.
    pub to: String,
}

/// The streams of which an exit is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// [`RECEIPTS_FORMAT`].
    pub receipts_format: u32,
    /// At most [`STREAMS_MOST`].
    pub streams: Vec<StreamId>,
}

/// What an exit says of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipts {
    /// [`RECEIPTS_FORMAT`].
    pub receipts_format: u32,
    /// For how long it remembers streams that have ended, in seconds.
    pub remembers_s: f64,
    /// In the order of the question; none for a stream that it does not know.
    pub streams: Vec<Option<Receipt>>,
}

impl Asked {
    /// Of these streams.
    pub fn new(streams: Vec<StreamId>) -> Self {
        Self { receipts_format: RECEIPTS_FORMAT, streams }
    }

    /// Reads a question.
    ///
    /// # Errors
    /// What of it cannot be.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let asked: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match asked.streams.len() {
            _ if asked.receipts_format != RECEIPTS_FORMAT => {
                Err(format!("a question of format {}", asked.receipts_format))
            }
            0..=STREAMS_MOST => Ok(asked),
            many => Err(format!("a question about {many} streams, of {STREAMS_MOST} at most")),
        }
    }
}

impl Receipts {
    /// Reads what an exit says of so many streams.
    ///
    /// # Errors
    /// What of it cannot be.
    pub fn read(bytes: &[u8], streams: usize) -> Result<Self, String> {
        let said: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let can_be = said.receipts_format == RECEIPTS_FORMAT && said.streams.len() == streams;
        // More than that is longer than any node runs.
        let is_time = (0.0..=1e9).contains(&said.remembers_s);
        if can_be && is_time { Ok(said) } else { Err("it is no answer to what was asked".into()) }
    }
}

/// What an exit has of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Bytes that have come for the destination.
    pub to_host: u64,
    /// Bytes that the destination has sent.
    pub from_host: u64,
    /// Whether the destination does not take what there is for it.
    pub is_full: bool,
    /// How it has ended, if it has.
    pub end: Option<End>,
}

/// How a stream has ended at its exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// By an end in each direction, by its destination, or by this node.
    Exit,
    /// The node before the exit gave it up, or its connection broke.
    Leg,
}

/// What the entry has of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Bytes that the client has sent, as far as that is known: perhaps more than that.
    pub sent: Option<u64>,
    /// Bytes that have come for the client: perhaps fewer.
    pub got: u64,
    /// Whether the client does not take what there is for it.
    pub is_full: bool,
}

/// Whether streams arrive over the nodes of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// One has.
    Delivered,
    /// One was held back by a node in between, or invented.
    HeldBack,
    /// Something came, and the exit could not be asked whether it was all.
    Came,
    /// Nothing came for what was sent, and the exit could not be asked why.
    Silent,
}

/// A stream over other nodes, as its entry looks after it.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    begun: Time,
    next: Time,
    pause: Time,
    asked: Option<(Time, Counts)>,
    before: Option<(Time, Counts, Receipt)>,
}

impl Delivery {
    /// Of a stream that begins now, on a path of this round trip.
    pub fn new(now: Time, rtt: Time) -> Self {
        let pause = AGAIN + Time(rtt.0.saturating_mul(4));
        Self { begun: now, next: now + FIRST, pause, asked: None, before: None }
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
            _ => Some(Verdict::Came),
        }
    }

    /// Takes the exit's answer. `None` says nothing of the path.
    pub fn answered(&mut self, receipt: Option<Receipt>, remembers: Time, now: Time) -> Option<Verdict> {
        let (at, counts) = self.asked.take()?;
        let Some(receipt) = receipt else { return self.is_unknown(remembers, now) };
        let before = self.before.replace((at, counts, receipt));
        match before {
            None => has_all(&counts, &receipt).then_some(Verdict::Delivered),
            Some((then, had, said)) => between((then, had, said), (at, counts, receipt)),
        }
    }

    /// Takes the exit's answer to a question about the stream after its end. `has_broken`: the connection to the next node broke, or that
    /// node gave the stream up.
    pub fn ended(
        &self,
        counts: &Counts,
        has_broken: bool,
        receipt: Option<Receipt>,
        remembers: Time,
        now: Time,
    ) -> Option<Verdict> {
        let Some(receipt) = receipt else { return self.is_unknown(remembers, now) };
        if has_broken && receipt.end != Some(End::Exit) && now.since(self.begun) < BROKEN_OFF {
            return Some(Verdict::HeldBack);
        }
        has_all(counts, &receipt).then_some(Verdict::Delivered)
    }

    /// The exit does not know a stream that is said to be open there.
    fn is_unknown(&self, remembers: Time, now: Time) -> Option<Verdict> {
        (remembers > now.since(self.begun)).then_some(Verdict::HeldBack)
    }
}

/// Whether all that the destination has sent by now has come.
fn has_all(counts: &Counts, receipt: &Receipt) -> bool {
    receipt.from_host > 0 && counts.got.saturating_add(END) >= receipt.from_host
}

/// What two looks at a stream say, the pause between which is long enough for all that was under way at the first to have come by the
/// second.
fn between((then, had, said): (Time, Counts, Receipt), (now, has, says): (Time, Counts, Receipt)) -> Option<Verdict> {
    let is_slow =
        |before: u64, after: u64| (after.saturating_sub(before) as f64) < LEAST_BYTES_S * now.since(then).as_secs();
    let is_taken = !had.is_full && !has.is_full;
    let misses_up = had.sent.is_some_and(|sent| sent > says.to_host.saturating_add(END));
    let is_held_up = misses_up && is_slow(said.to_host, says.to_host) && !said.is_full && !says.is_full;
    let misses_down = said.from_host > has.got.saturating_add(END);
    let is_held_down = misses_down && is_slow(had.got, has.got) && is_taken;
    // The exit has done with it, and the end does not come.
    let is_kept_open = said.end.is_some() && is_taken;
    if is_held_up || is_held_down || is_kept_open {
        return Some(Verdict::HeldBack);
    }
    let has_come = said.from_host > 0 && !misses_down;
    let has_gone = had.sent.is_some_and(|sent| sent > END) && !misses_up;
    (has_come || has_gone).then_some(Verdict::Delivered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, streams in 0..40_usize) {
            let _ = (Asked::read(&bytes), Receipts::read(&bytes, streams));
        }

        #[test]
        fn any_counts_are_judged(numbers: [u64; 8], remembers: u64, later: u64) {
            let [sent, got, to_host, from_host, sent_then, got_then, to_host_then, from_host_then] = numbers;
            let mut delivery = Delivery::new(Time(0), Time(later));
            delivery.ask(counts(sent, got), Time(1));
            delivery.answered(receipt(to_host, from_host), Time(remembers), Time(2));
            delivery.ask(counts(sent_then, got_then), Time(later));
            delivery.answered(receipt(to_host_then, from_host_then), Time(remembers), Time(later));
        }
    }

    #[test]
    fn what_cannot_be_asked_or_answered_is_refused() {
        let id = || StreamId { bound: "192.0.2.1:4711".into(), to: "www.example.jp:443".into() };
        let read = |asked: &Asked| Asked::read(&serde_json::to_vec(asked).unwrap());
        let asked = Asked::new(vec![id(); STREAMS_MOST]);
        assert_eq!(read(&asked), Ok(asked.clone()));
        assert!(read(&Asked { receipts_format: 2, ..asked }).unwrap_err().contains("format 2"));
        assert!(read(&Asked::new(vec![id(); STREAMS_MOST + 1])).unwrap_err().contains("33 streams"));
        let said = Receipts { receipts_format: 1, remembers_s: 30.0, streams: vec![receipt(1, 2), None] };
        let bytes = serde_json::to_vec(&said).unwrap();
        assert_eq!(Receipts::read(&bytes, 2), Ok(said));
        assert!(Receipts::read(&bytes, 3).is_err());
    }

    const SECOND: u64 = 1_000_000_000;

    fn counts(sent: u64, got: u64) -> Counts {
        Counts { sent: Some(sent), got, is_full: false }
    }

    fn receipt(to_host: u64, from_host: u64) -> Option<Receipt> {
        Some(Receipt { to_host, from_host, is_full: false, end: None })
    }

    /// What the looks at a stream say, each with what its exit has, 3 s after another.
    fn looks(looks: &[(Counts, Option<Receipt>)]) -> Vec<Option<Verdict>> {
        let mut delivery = Delivery::new(Time(0), Time::ms(100));
        let look = |(number, (counts, receipt)): (usize, &(Counts, Option<Receipt>))| {
            let now = Time((1 + 3 * number as u64) * SECOND);
            delivery.ask(*counts, now);
            delivery.answered(*receipt, Time::secs(1_000), now)
        };
        looks.iter().enumerate().map(look).collect()
    }

    const DELIVERED: Option<Verdict> = Some(Verdict::Delivered);
    const HELD: Option<Verdict> = Some(Verdict::HeldBack);

    #[test]
    fn a_stream_that_its_exit_does_not_know_was_invented() {
        assert_eq!(looks(&[(counts(64, 0), None)]), [HELD]);
        // An exit that has begun since, or had too many, may have forgotten it.
        let mut delivery = Delivery::new(Time(0), Time(0));
        delivery.ask(counts(64, 0), Time::secs(30));
        assert_eq!(delivery.answered(None, Time::secs(29), Time::secs(30)), None);
    }

    #[test]
    fn silence_of_the_destination_or_of_the_client_is_nobodys_fault() {
        // A long poll; a server that speaks first and says nothing; a client that says nothing.
        assert_eq!(looks(&[(counts(300, 0), receipt(300, 0)); 3])[0], None);
        assert_eq!(looks(&[(counts(0, 0), receipt(0, 0)); 3]), [None; 3]);
        // What has arrived at the destination has been delivered.
        assert_eq!(looks(&[(counts(300, 0), receipt(300, 0)); 3])[1..], [DELIVERED, DELIVERED]);
        assert_eq!(looks(&[(counts(20, 90), receipt(20, 90)); 2]), [DELIVERED, DELIVERED]);
    }

    #[test]
    fn what_has_not_arrived_in_time_was_held_back_in_either_direction() {
        // Nothing comes at the exit; nothing of what the exit has comes back; a byte now and then.
        assert_eq!(looks(&[(counts(64, 0), receipt(0, 0)); 2]), [None, HELD]);
        assert_eq!(looks(&[(counts(64, 0), receipt(64, 500)); 2]), [None, HELD]);
        assert_eq!(looks(&[(counts(64, 0), receipt(64, 500)), (counts(64, 3), receipt(64, 500))]), [None, HELD]);
        assert_eq!(looks(&[(counts(9_000, 5), receipt(2, 5)), (counts(9_000, 5), receipt(5, 5))])[1], HELD);
        // What was under way at the first look has come by the second.
        let early = (counts(64, 0), receipt(0, 0));
        assert_eq!(looks(&[early, (counts(128, 0), receipt(64, 0))]), [None, DELIVERED]);
    }

    #[test]
    fn a_slow_line_and_a_receiver_that_reads_late_are_no_fault_of_nodes() {
        let slow = [(counts(900_000, 0), receipt(10_000, 0)), (counts(900_000, 0), receipt(20_000, 0))];
        assert_eq!(looks(&slow), [None, None]);
        let full = Some(Receipt { to_host: 10_000, from_host: 0, is_full: true, end: None });
        assert_eq!(looks(&[(counts(900_000, 0), full); 3]), [None; 3]);
        let client = Counts { is_full: true, ..counts(10, 4_000) };
        assert_eq!(looks(&[(client, receipt(10, 900_000)); 2]), [None, DELIVERED]);
    }

    #[test]
    fn an_end_that_does_not_come_is_held_back() {
        let ended = Some(Receipt { to_host: 64, from_host: 64, is_full: false, end: Some(End::Exit) });
        assert_eq!(looks(&[(counts(64, 64), ended); 2]), [DELIVERED, HELD]);
    }

    #[test]
    fn after_its_end_a_stream_says_whether_it_was_delivered_or_given_up_by_a_node() {
        let delivery = Delivery::new(Time(0), Time(0));
        let ended = |counts: Counts, has_broken, receipt| {
            delivery.ended(&counts, has_broken, receipt, Time::secs(30), Time::secs(2))
        };
        let with = |end| Some(Receipt { to_host: 64, from_host: 64, is_full: false, end });
        assert_eq!(ended(counts(64, 64), false, with(Some(End::Exit))), DELIVERED);
        assert_eq!(ended(counts(64, 0), false, None), HELD);
        assert_eq!(ended(counts(64, 0), true, with(Some(End::Leg))), HELD);
        assert_eq!(ended(counts(64, 0), true, with(None)), HELD);
        let late = delivery.ended(&counts(64, 0), true, with(Some(End::Leg)), Time::secs(90), BROKEN_OFF);
        assert_eq!(late, None);
        // The destination has reset it; the client has left.
        assert_eq!(ended(counts(64, 0), true, with(Some(End::Exit))), None);
        assert_eq!(ended(counts(64, 0), false, with(Some(End::Leg))), None);
    }

    #[test]
    fn an_exit_that_cannot_be_asked_leaves_what_can_be_seen() {
        let unasked = |counts: Counts, seconds: u64| {
            let mut delivery = Delivery::new(Time(0), Time(0));
            delivery.ask(counts, Time::secs(seconds));
            delivery.unanswered(Time::secs(seconds))
        };
        assert_eq!(unasked(counts(64, 1), 1), Some(Verdict::Came));
        assert_eq!(unasked(counts(64, 0), 1), None);
        assert_eq!(unasked(counts(64, 0), 2), Some(Verdict::Silent));
        assert_eq!(unasked(counts(0, 0), 60), None);
    }

    #[test]
    fn a_stream_is_asked_about_ever_more_seldom() {
        let mut delivery = Delivery::new(Time(0), Time::ms(250));
        let mut asked = Vec::new();
        for second in 0..400 {
            if delivery.is_due(Time::secs(second)) {
                delivery.ask(Counts::default(), Time::secs(second));
                asked.push(second);
                delivery.unanswered(Time::secs(second));
            }
        }
        assert_eq!(asked, [1, 4, 10, 22, 46, 94, 158, 222, 286, 350]);
    }
}
