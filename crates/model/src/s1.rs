//! S1: when a TCP tunnel carries TCP without harm.

use ekiden_units::{BitRate, Bytes, Time};

/// A tunnel, and a connection inside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tunnel {
    /// What the path between the tunnel's ends carries.
    pub rate: BitRate,
    /// The round trip between the tunnel's ends.
    pub rtt: Time,
    /// The round trip of the connection inside, all the way.
    pub whole_rtt: Time,
    /// The least of the send buffer and the receive window of the tunnel's connection.
    pub buffer: Bytes,
    /// The same of the connection inside.
    pub inner_buffer: Bytes,
    /// What the queue before the tunnel's connection holds.
    pub queue: Bytes,
    /// All that the connection inside sends.
    pub data: Bytes,
    /// Whether the tunnel's connection has selective acknowledgements.
    pub sack: bool,
    /// The least retransmission timeout of the connection inside.
    pub inner_rto_min: Time,
}

/// What costs throughput in a tunnel, with the section of S1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// A loss holds all that is behind it for two round trips of the tunnel and more, and the connection inside sends again what is only
    /// late (3.2, Fig 2, 6).
    LateForTimer,
    /// The tunnel's buffers hold less than its rate × round trip (3.4, Fig 9).
    TunnelBuffer,
    /// The buffers of the connection inside hold less than the rate × its round trip (3.4, Fig 8).
    InnerBuffer,
    /// The queue before the tunnel overflows: it holds less than the connection inside sends beyond what is under way (3.5).
    Queue,
}

impl Tunnel {
    /// What costs throughput, in the order of [`Harm`]; empty if nothing does.
    pub fn harms(&self) -> Vec<Harm> {
        let late = Time(self.rtt.0.saturating_mul(2));
        // RFC 6298: a timer is at least its least one, and about the round trip with its variation.
        let timer = self.inner_rto_min.max(self.whole_rtt);
        let under_way = Bytes::at(self.rate, self.rtt).min(self.buffer);
        let sent = self.inner_buffer.min(self.data);
        [
            (!self.sack && late > timer).then_some(Harm::LateForTimer),
            (self.buffer < Bytes::at(self.rate, self.rtt)).then_some(Harm::TunnelBuffer),
            (self.inner_buffer < Bytes::at(self.rate, self.whole_rtt)).then_some(Harm::InnerBuffer),
            (sent.0 > under_way.0.saturating_add(self.buffer.0).saturating_add(self.queue.0)).then_some(Harm::Queue),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
