//! What a side had said before its connection broke is passed on before the other side is reset.
//!
//! A host that answers and closes without having read all that it was sent resets its connection. Its answer is in the node's kernel
//! then, and on its way to the receiver; to reset the receiver at once would destroy it.
//!
//! How long a receiver that takes nothing, or takes little, is waited for is decided here.

use std::future::{pending, poll_fn};
use std::time::Duration;

use ekiden_tcp_info::TcpInfo;
use ekiden_transport::wire::{self, Wire};
use tokio::time::{Instant, sleep};

use crate::expiry::{self, Expiry};
use crate::framing::Framing;
use crate::output::Output;
use crate::pump::{Pump, PumpError};
use crate::running::acknowledged;

/// A host that takes nothing for so long, and was never slow before, is not waited for: it does not read.
const HOST_STANDS: Duration = Duration::from_secs(2);
/// Whoever takes less in a second is not waited for to the end.
const FLOOR_BYTES_S: u64 = 16 << 10;
/// So many bytes a node takes at a time: what a pipe holds, which is read only when it is empty.
const LUMP_BYTES: u64 = 1 << 20;
/// A node that takes nothing for so long, and everybody else, is not waited for: by then its own receiver has emptied its pipe, if it takes
/// what it must at least.
const LONGEST: Duration = Duration::from_secs(LUMP_BYTES / FLOOR_BYTES_S);
/// All of it ends after so long.
const MOST: Duration = Duration::from_secs(600);
/// How often it is looked whether something was taken.
const LOOK: Duration = Duration::from_millis(500);

/// Passes on what was read from `from`, whose connection has broken, and if it `reads_on` what can still be read; waits until the kernel
/// of `to` has it. Says no end.
pub async fn pass_on<W: Wire>(
    pump: &mut Pump<W>,
    reads_on: bool,
    from: &W,
    to: Output<'_, W>,
    expiry: &mut Option<Box<Expiry>>,
) {
    let standing = if to.framing == Framing::Leg { LONGEST } else { host_stands(to.connection) };
    let to = to.connection;
    if pump.is_done() || pump.is_refused() {
        return;
    }
    pump.cut();
    let passing_on = async {
        // It ends with an error: nothing more can be read, or sent.
        if reads_on && matches!(poll_fn(|cx| pump.poll(cx, from, to)).await, Err(PumpError::Send(_)))
            || poll_fn(|cx| pump.flush(cx, to)).await.is_err()
        {
            return;
        }
        acknowledged(to).await;
    };
    tokio::select! {
        biased;
        () = passing_on => {}
        () = takes_nothing(to, standing) => {}
        () = expiry::passed(expiry, to) => {}
        // What it says itself goes nowhere, but it may read only after it has said it. Last: a flood of it uses up all that the task
        // may do at a time, and no limit behind it would be looked at.
        () = discard(to) => {}
    }
}

/// Reads and discards what comes. Does not complete.
pub async fn discard(from: &impl Wire) {
    let mut sink = vec![0; 4096];
    while !matches!(wire::receive(from, &mut sink).await, Ok(0) | Err(_)) {}
    pending().await
}

/// Completes when the receiver takes nothing for longer than its pace explains, or less in all than it must. How long it has taken nothing
/// already counts: a reset that comes over several nodes is not held up at each of them.
async fn takes_nothing(to: &impl Wire, standing: Duration) {
    let Ok(first) = to.info() else { return };
    let has_stood = if first.unsent_bytes > 0 && first.is_shut_out() { first.last_sent_ms } else { 0 };
    let begin = Instant::now();
    let mut since = begin.checked_sub(Duration::from_millis(has_stood.into())).unwrap_or(begin);
    let mut taken = first.acked_bytes;
    while let Ok(info) = to.info() {
        if info.acked_bytes != taken {
            (taken, since) = (info.acked_bytes, Instant::now());
        } else if since.elapsed() >= patience(&info, standing) {
            return;
        }
        if begin.elapsed() >= in_all(&info, taken.saturating_sub(first.acked_bytes)) {
            return;
        }
        sleep(LOOK).await;
    }
}

/// A host's kernel says that there is room once there is for a segment (RFC 9293 §3.8.6.2.2), which over the loopback has 64 KiB.
fn host_stands(to: &impl Wire) -> Duration {
    let segment = to.info().map_or(0, |info| info.mss_bytes);
    HOST_STANDS + Duration::from_secs_f64(f64::from(segment) / FLOOR_BYTES_S as f64)
}

/// How long a receiver may take nothing: as long as it needs for what it takes at a time, at the pace that it had so far, and `standing` in
/// any case. Half the time for which it has had something to take is the most: of one that has stood still since its buffers filled,
/// the pace says nothing.
fn patience(info: &TcpInfo, standing: Duration) -> Duration {
    let busy = Duration::from_micros(info.busy_us);
    let lumps = (2 * LUMP_BYTES) as f64 / info.acked_bytes.max(1) as f64;
    busy.mul_f64(lumps.min(0.5)).clamp(standing, LONGEST)
}

/// How long a receiver may take that has taken so many bytes since the other side broke, and to which the rest is under way.
fn in_all(info: &TcpInfo, taken: u64) -> Duration {
    let under_way = u64::from(info.unacked_segments) * u64::from(info.mss_bytes) + u64::from(info.unsent_bytes);
    MOST.min(LONGEST + Duration::from_secs((taken + under_way) / FLOOR_BYTES_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, acked_bytes: u64) -> u64 {
        let info = TcpInfo { acked_bytes, busy_us: seconds * 1_000_000, ..TcpInfo::default() };
        patience(&info, HOST_STANDS).as_secs()
    }

    #[test]
    fn who_is_slow_is_waited_for_and_who_stands_still_is_not() {
        assert_eq!(after(1, 100 << 20), 2, "fast so far");
        // 3 MB filled the buffers at once, and then 50 kB/s were taken, or 20 kB/s.
        assert_eq!(after(600, 3_000_000 + 600 * 50_000), 38);
        assert_eq!(after(600, 3_000_000 + 600 * 20_000), 64);
        for standing in [1, 10, 100, 1000] {
            for buffers in [0, 64 << 10, 1 << 20, 8 << 20] {
                assert!(after(standing, buffers) <= 64.min(standing.max(2)), "{standing} s, {buffers} bytes");
            }
        }
    }

    #[test]
    fn a_receiver_has_as_long_as_it_needs_at_the_least_pace_and_no_longer() {
        let left = |unsent_bytes, taken| in_all(&TcpInfo { unsent_bytes, ..TcpInfo::default() }, taken).as_secs();
        // At 20 kB/s, whatever it takes at a time: there is time left until it has everything.
        let all = 3 << 20;
        for seconds in (0..all / 20_000).step_by(10) {
            let taken = seconds * 20_000;
            assert!(left((all - taken) as u32, taken) > seconds + 50, "after {seconds} s");
        }
        // A byte a minute.
        assert_eq!(left(100_000, 3), 70);
        assert_eq!(left(u32::MAX, 0), 600);
    }
}
