//! `ekiden_far` on paths that are known from an earlier connection (Careful Resume, RFC 9959).

use ekiden_record::{Flow, Kept, Outcome};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

/// What the receiver does: its window never limits the sender.
const RECEIVER: &str = "tcp = { profile = \"rfc\" }";

/// Two downloads one after the other over 100 Mbit/s: what became of the later one. Half a bandwidth-delay product fits the queue.
struct Downloads<'a> {
    rtt_ms: u64,
    remember_s: u32,
    first: &'a str,
    start_s: u32,
    bytes: u64,
    line: &'a str,
}

impl Default for Downloads<'_> {
    fn default() -> Self {
        Self { rtt_ms: 200, remember_s: 600, first: "bytes = \"100MB\"", start_s: 30, bytes: 1_000_000, line: "" }
    }
}

impl Downloads<'_> {
    fn later(&self) -> Flow {
        let Self { rtt_ms, remember_s, first, start_s, bytes, line } = self;
        let (delay, queue) = (rtt_ms * 500, rtt_ms * 12_500 / 2);
        let text = format!(
            "name = \"t\"\n[congestion.far]\nremember = {remember_s}\n[tcp]\ncongestion = \"ekiden_far\"\nsend_buffer = \"64MiB\"\n\
             receive_buffer = \"64MiB\"\n[node.a]\n[node.b]\n{RECEIVER}\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"100Mbit/s\"\n\
             delay = \"{delay}us\"\nqueue = \"{queue}B\"\n{line}\n[flow.first]\nfrom = \"a\"\nto = \"b\"\n{first}\n\
             [flow.later]\nfrom = \"a\"\nto = \"b\"\nbytes = \"{bytes}B\"\nstart = \"{start_s}s\"\n"
        );
        let scenario = Scenario::parse(&text, "t.toml").unwrap();
        let record = simulate(&scenario, &Options::default(), &mut Kept::default(), &mut |_| {}).unwrap();
        let flow = record.flows.into_iter().nth(1).unwrap();
        assert_eq!(flow.outcome, Outcome::Complete);
        flow
    }

    /// The same without memory.
    fn unknown(&self) -> Flow {
        Self { remember_s: 0, ..*self }.later()
    }
}

/// Two round trips and a half until what it sends after the jump arrives, and the time that the line takes. A file that is longer than
/// the jump, half a bandwidth-delay product, waits for half a round trip more.
#[test]
fn a_file_on_a_known_path_takes_its_round_trips_and_the_lines_time() {
    for (rtt_ms, bytes) in [(20, 1_000_000), (80, 1_000_000), (200, 1_000_000), (200, 10_000_000)] {
        let downloads = Downloads { rtt_ms, bytes, ..Default::default() };
        let waits_us = if bytes > rtt_ms * 12_500 / 2 { rtt_ms * 500 } else { 0 };
        let least_us = rtt_ms * 2_500 + bytes * 8 / 96 + waits_us;
        let known = downloads.later();
        assert!(
            known.duration_us < least_us * 105 / 100,
            "{rtt_ms} ms, {bytes} B: {} of {least_us} us",
            known.duration_us
        );
        assert_eq!(known.retransmits, 0);
        assert!(downloads.unknown().duration_us > known.duration_us * 5 / 4, "{rtt_ms} ms, {bytes} B");
    }
}

/// The first segments tell a path that has become slower, and one that is longer or loses them is not the one that was known.
#[test]
fn a_path_that_has_changed_loses_about_as_much_as_an_unknown_one() {
    for change in ["rate = \"10Mbit/s\"", "rate = \"50Mbit/s\"", "delay = \"200ms\""] {
        for bytes in [1_000_000, 10_000_000] {
            let line = format!("changes = [{{ at = \"25s\", {change} }}]");
            let downloads = Downloads { bytes, line: &line, ..Default::default() };
            let (known, unknown) = (downloads.later(), downloads.unknown());
            // Where nothing is known any more, the first segments have left at another rate all the same.
            let most = unknown.retransmits * 6 / 5;
            assert!(known.retransmits <= most, "{change}: {} of {most} sent again", known.retransmits);
            let most_us = unknown.duration_us * 105 / 100;
            assert!(known.duration_us <= most_us, "{change}: {} of {most_us} us", known.duration_us);
        }
    }
}

/// What an earlier connection carried is no room while it still carries it; and what is old is forgotten.
#[test]
fn a_path_in_use_and_one_of_long_ago_are_unknown() {
    let in_use = Downloads { first: "duration = \"60s\"", ..Default::default() };
    let long_ago = Downloads { remember_s: 10, ..Default::default() };
    for downloads in [in_use, long_ago] {
        assert_eq!(downloads.later(), downloads.unknown());
    }
}
