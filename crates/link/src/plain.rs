//! The direction that unit tests change.

use ekiden_queue::Queue;
use ekiden_units::{BitRate, Fraction, Time};

use crate::{Direction, Discipline};

/// 1 Mbit/s without delay, ten packets of 1500 bytes, drop tail, no loss.
pub(crate) fn direction() -> Direction {
    Direction {
        rate: BitRate::mbit(1),
        delay: Time(0),
        jitter: Time(0),
        queue: Queue::Packets(10),
        discipline: Discipline::DropTail,
        policer: None,
        loss: Fraction(0),
        loss_burst: 1,
        reorder: Fraction(0),
        reorder_by: None,
        changes: Vec::new(),
        outages: Vec::new(),
        mtu: 1500,
    }
}
