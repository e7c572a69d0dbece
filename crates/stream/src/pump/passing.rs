//! Frames that this node does not know: it skips them, or passes them on in their place.

use std::task::{Context, Poll, ready};

use ekiden_relay_proto::leg::Unknown;
use ekiden_transport::wire::{self, Wire};

use super::{COPYING, Pump, PumpError, SCRATCH};
use crate::framing::Framing;
use crate::source::Source;

/// A part of a frame. Boxed: there is seldom one.
#[derive(Debug)]
pub struct Passing(pub Vec<u8>);

impl<W: Wire> Pump<W> {
    /// A piece of a frame that this node does not know. Once it has all of one that is to be passed on, the receiver gets it.
    pub(super) fn skip(&mut self, cx: &mut Context<'_>, from: &W) -> Poll<Result<usize, PumpError>> {
        let Source::Frames(decoder, _) = &mut self.source else { return Poll::Ready(Ok(0)) };
        SCRATCH.with_borrow_mut(|scratch| {
            let due = decoder.payload() as usize;
            let n = ready!(wire::poll_receive(from, cx, &mut scratch[..due])).map_err(PumpError::Receive)?;
            if n == 0 {
                return Poll::Ready(Err(PumpError::Truncated));
            }
            decoder.took_payload(n as u32);
            if let Some(passing) = &mut self.passing {
                passing.0.extend(&scratch[..n]);
            }
            if let Some(passing) = self.passing.take_if(|_| n == due) {
                self.rest = passing.0;
            }
            Poll::Ready(Ok(COPYING * n.max(from.take_read())))
        })
    }

    /// The header of a frame that this node does not know.
    pub(super) fn pass(&mut self, unknown: Unknown) {
        if self.framing == Framing::Leg && unknown.is_passed() && self.refused.is_none() {
            match unknown.length() {
                0 => self.rest.extend(unknown.encode()),
                _ => self.passing = Some(Box::new(Passing(unknown.encode().to_vec()))),
            }
        }
    }
}
