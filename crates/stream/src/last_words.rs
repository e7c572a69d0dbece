//! Data that a side had sent before its connection broke is passed on before the other side is reset.
//!
//! A host that answers and closes without having read all that it was sent resets its connection. At that time its answer is in the
//! node's receive buffer or on its way to the receiver, and resetting the receiver at once would destroy it.
//!
//! This module also decides how long a node waits for a receiver that takes nothing, or takes little.

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

/// Timeout for a host that takes nothing and was never slow before: it does not read.
const HOST_STANDS: Duration = Duration::from_secs(2);
/// The least rate, in bytes a second: the wait for a slower receiver ends before it has everything.
const FLOOR_BYTES_S: u64 = 16 << 10;
/// Bytes that a node takes at a time: the size of its pipe, which it fills again only when the pipe is empty.
const LUMP_BYTES: u64 = 1 << 20;
/// Timeout for a node that takes nothing, and the longest such timeout for a host. By then the node's own receiver has emptied the node's
/// pipe, if it takes at least [`FLOOR_BYTES_S`].
const LONGEST: Duration = Duration::from_secs(LUMP_BYTES / FLOOR_BYTES_S);
/// Limit on the whole wait, whatever the receiver takes.
const MOST: Duration = Duration::from_secs(600);
/// Interval between two checks whether the receiver has taken anything.
const LOOK: Duration = Duration::from_millis(500);

/// Passes on what was read from `from`, whose connection has broken, and if it `reads_on` also what can still be read. Waits until the
/// kernel of `to` has acknowledged it. Sends no end.
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
        // Discard the receiver's own data: some hosts read only after writing. Polled last, because a flood of such data uses up the
        // task's budget, and limits polled after it would never be checked.
        () = discard(to) => {}
    }
}

/// Reads and discards what comes. Does not complete.
pub async fn discard(from: &impl Wire) {
    let mut sink = vec![0; 4096];
    while !matches!(wire::receive(from, &mut sink).await, Ok(0) | Err(_)) {}
    pending().await
}

/// Completes when the receiver has taken nothing for longer than its pace explains, or is slower than the least rate. Time for which it has
/// taken nothing before the call counts, so that a reset that passes several nodes is not delayed at each of them.
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

/// The timeout of a host: [`HOST_STANDS`] and the time for one segment at the least rate. A kernel opens a closed window only once it has
/// room for a segment (RFC 9293 §3.8.6.2.2), which over the loopback interface has 64 KiB.
fn host_stands(to: &impl Wire) -> Duration {
    let segment = to.info().map_or(0, |info| info.mss_bytes);
    HOST_STANDS + Duration::from_secs_f64(f64::from(segment) / FLOOR_BYTES_S as f64)
}

/// How long a receiver may take nothing: the time that it needs for two pipes at its mean rate so far, but at least `standing` and at most
/// [`LONGEST`]. The first is limited to half the time for which it has had data to take: the mean rate means nothing for a receiver that
/// has taken nothing since its buffers filled.
fn patience(info: &TcpInfo, standing: Duration) -> Duration {
    let busy = Duration::from_micros(info.busy_us);
    let lumps = (2 * LUMP_BYTES) as f64 / info.acked_bytes.max(1) as f64;
    busy.mul_f64(lumps.min(0.5)).clamp(standing, LONGEST)
}

/// Limit on the whole wait for a receiver: the time that the least rate allows for the `taken` bytes, which it has taken since the other
/// side broke, and for all that is still queued or unacknowledged, beside [`LONGEST`]; at most [`MOST`].
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
