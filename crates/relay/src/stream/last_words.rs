//! What a side had said before its connection broke is passed on before the other side is reset.
//!
//! A host that answers and closes without having read all that it was sent resets its connection. Its answer is in the node's kernel
//! then, and on its way to the receiver; to reset the receiver at once would destroy it.

use std::future::{pending, poll_fn};
use std::time::Duration;

use ekiden_net::tcp_info::tcp_info;
use ekiden_transport::Connection;
use tokio::time::{Instant, sleep};

use crate::stream::expiry::{self, Expiry};
use crate::stream::framing::Framing;
use crate::stream::output::Output;
use crate::stream::pump::{Pump, PumpError};
use crate::stream::running::acknowledged;

/// A host that takes nothing for so long is not waited for: it does not read.
const HOST_STANDS: Duration = Duration::from_secs(2);
/// The same of a node. One whose own receiver is slow takes a megabyte or more at a time.
const NODE_STANDS: Duration = Duration::from_secs(8);
/// How often it is looked whether something was taken.
const LOOK: Duration = Duration::from_millis(500);
/// No receiver is waited for longer.
const LONGEST: Duration = Duration::from_secs(60);

/// Passes on what was read from `from`, whose connection has broken, and if it `reads_on` what can still be read; waits until the kernel
/// of `to` has it. Says no end.
pub async fn pass_on(
    pump: &mut Pump,
    reads_on: bool,
    from: &Connection,
    to: Output<'_>,
    expiry: &mut Option<Box<Expiry>>,
) {
    let standing = if to.framing == Framing::Leg { NODE_STANDS } else { HOST_STANDS };
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
        () = sleep(LONGEST) => {}
        () = expiry::passed(expiry, to.socket()) => {}
        // What it says itself goes nowhere, but it may read only after it has said it. Last: a flood of it uses up all that the task
        // may do at a time, and no limit behind it would be looked at.
        () = discard(to) => {}
    }
}

/// Reads and discards what comes. Does not complete.
pub async fn discard(from: &Connection) {
    let mut sink = vec![0; 4096];
    while !matches!(from.receive(&mut sink).await, Ok(0) | Err(_)) {}
    pending().await
}

/// Completes when nothing was acknowledged for `standing`.
async fn takes_nothing(to: &Connection, standing: Duration) {
    let (mut taken, mut since) = (None, Instant::now());
    while let Ok(info) = tcp_info(to.socket()) {
        if taken.replace(info.acked_bytes) != Some(info.acked_bytes) {
            since = Instant::now();
        } else if since.elapsed() >= standing {
            return;
        }
        sleep(LOOK).await;
    }
}
