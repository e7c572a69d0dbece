//! Frames as a gateway sees them pass: what is read lies within them, and a group of streams lowers windows alone.
#![no_main]

use ekiden_window_balance::frame::{Passing, parse};
use std::time::Duration;

use ekiden_window_balance::{BalanceSettings, Direction, Policy, StreamGroup};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Several frames, each behind its length and how it passes.
    let policy = if data.first().is_some_and(|byte| byte & 1 == 0) { Policy::Paper } else { Policy::Delivered };
    let mut group = StreamGroup::new(BalanceSettings { policy, repeats: 2, missing: 1, shortest_rtt: Duration::ZERO, ..BalanceSettings::default() });
    let (mut rest, mut time_us) = (data.get(1..).unwrap_or_default(), 0);
    while let [length, how, after @ ..] = rest {
        let (frame, next) = after.split_at(after.len().min(usize::from(*length)));
        rest = next;
        time_us += u64::from(how >> 2) << 8;
        let direction = if how & 1 == 0 { Direction::Data } else { Direction::Acks };
        let passing = Passing { time_us, direction, segment: if how & 2 == 0 { 0 } else { 1448 } };
        let Ok(read) = parse(frame, passing) else { continue };
        assert!(read.checksum_at + 2 <= frame.len() && read.packet.length as usize <= frame.len());
        let number = u32::from(read.source.port() ^ read.destination.port());
        if let Some(field) = group.observe(number, &read.packet) {
            assert!(field > 0 && field < read.packet.window && direction == Direction::Acks);
        }
    }
});
