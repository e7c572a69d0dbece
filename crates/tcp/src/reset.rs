//! Resets: RFC 9293, section 3.10.7.1.

use ekiden_packet::{Flags, Segment, Seq};

/// A reset without an acknowledgement.
pub(crate) fn reset((local, remote): (u16, u16), seq: Seq) -> Segment {
    Segment {
        source: local,
        destination: remote,
        seq,
        flags: Flags { rst: true, ..Flags::default() },
        ..Segment::default()
    }
}

/// What a host answers to a segment for which it has no connection. `None` to a reset.
pub fn reset_for(segment: &Segment) -> Option<Segment> {
    if segment.flags.rst {
        return None;
    }
    let ports = (segment.destination, segment.source);
    Some(match segment.ack {
        Some(ack) => reset(ports, ack),
        None => Segment { ack: Some(segment.seq + segment.sequence_len()), ..reset(ports, Seq(0)) },
    })
}
