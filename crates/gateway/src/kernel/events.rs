//! What the gateway tells.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use super::error::{GatewayError, failed, libbpf};
use super::layout::Fields;

/// What happened to a stream or its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The stream's handshake is over.
    Begun,
    /// It has ended.
    Ended,
    /// Congestion was found in it: a throttling of the group begins. Two processors may tell of the same.
    Congestion,
    /// Its windows are limited from now on.
    Limited,
    /// Its windows are limited no longer; with [`Policy::Delivered`](ekiden_window_balance::Policy::Delivered).
    Unlimited,
    /// The group is throttled no longer; with [`Policy::Paper`](ekiden_window_balance::Policy::Paper).
    Released,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds of the monotonic clock.
    pub at_us: u64,
    /// What happened.
    pub kind: EventKind,
    /// The number of the group in the settings.
    pub group: usize,
    /// The number of its last throttling; 0 before the first.
    pub throttling: u16,
    /// The sender of the stream's data.
    pub sender: SocketAddr,
    /// Its receiver.
    pub receiver: SocketAddr,
    /// What its windows are limited to, in bytes.
    pub limit: Option<u32>,
    /// Its round-trip time between gateway and receiver, in microseconds.
    pub rtt_us: Option<u32>,
}

/// Reads the events of a gateway. If there are several readers, each event comes to one of them.
#[derive(Debug)]
pub struct Events {
    ring: RingBuffer<'static>,
    queue: Arc<Mutex<VecDeque<Event>>>,
}

impl Events {
    pub(super) fn new(map: &MapHandle) -> Result<Self, GatewayError> {
        let queue = Arc::new(Mutex::new(VecDeque::new()));
        let into = Arc::clone(&queue);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes: &[u8]| {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend(decode(bytes));
                0
            })
            .map_err(libbpf("read the events"))?;
        Ok(Self { ring: builder.build().map_err(libbpf("read the events"))?, queue })
    }

    /// The events that have come, after waiting for some at most this long.
    ///
    /// # Errors
    /// If reading fails.
    pub fn poll(&mut self, wait: Duration) -> Result<Vec<Event>, GatewayError> {
        match self.ring.poll_raw(wait) {
            // A signal came.
            error if error < 0 && error != -nix::libc::EINTR => {
                Err(failed("read the events")(std::io::Error::from_raw_os_error(-error)))
            }
            _ => Ok(self.queue.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()),
        }
    }
}

/// Decodes a `struct gateway_event`; `None` if it is malformed.
fn decode(bytes: &[u8]) -> Option<Event> {
    let mut fields = Fields(bytes);
    let at_us = fields.u64();
    let (kind, group, throttling) = (fields.u32(), fields.u32(), fields.u32());
    let (limit, rtt_us, version) = (fields.u32(), fields.u32(), fields.u32());
    let (sender, receiver) = fields.ends(version);
    let kind = match kind {
        0 => EventKind::Begun,
        1 => EventKind::Ended,
        2 => EventKind::Congestion,
        3 => EventKind::Limited,
        4 => EventKind::Unlimited,
        5 => EventKind::Released,
        _ => return None,
    };
    let known = |value: u32| (value != 0).then_some(value);
    Some(Event {
        at_us,
        kind,
        group: group as usize,
        throttling: throttling as u16,
        sender,
        receiver,
        limit: known(limit),
        rtt_us: known(rtt_us),
    })
}
