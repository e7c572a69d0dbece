//! S0: what Reno's saw-tooth leaves of a line with a drop-tail queue.

use ekiden_units::Bytes;

/// The part of the line's rate that one Reno flow uses in steady state, between 0.75 and 1.
///
/// Reno grows by a segment per round trip from W/2 to W = BDP + queue, where the queue overflows and one window is
/// halved (RFC 5681 §3.1, §3.2). While the window is below the BDP the line idles for the difference; above it the
/// queue only lengthens the round trip. `bdp` is rate × base RTT, `queue` the limit of the drop-tail queue.
pub fn reno_utilisation(bdp: Bytes, queue: Bytes) -> f64 {
    let (bdp, queue) = (bdp.0 as f64, queue.0 as f64);
    let peak = bdp + queue;
    let trough = peak / 2.0;
    if peak <= 0.0 || trough >= bdp {
        return 1.0;
    }
    // In units of (segments, base round trips): sent in one tooth, and the time it takes.
    let sent = (peak * peak - trough * trough) / 2.0;
    let below = bdp - trough;
    let above = (peak * peak - bdp * bdp) / (2.0 * bdp);
    sent / (bdp * (below + above))
}
