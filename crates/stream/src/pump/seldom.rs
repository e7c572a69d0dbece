//! What few streams have: a frame that is passed on, and a limit on how fast they read.

use std::task::{Context, Poll};

use ekiden_transport::wire::Wire;

use super::Pump;
use crate::pace::Gate;

/// Boxed, so that the others keep one word for it.
#[derive(Debug, Default)]
pub struct Seldom {
    /// What has come of a frame that this node does not know and passes on.
    pub passing: Option<Vec<u8>>,
    gate: Option<Gate>,
}

impl<W: Wire> Pump<W> {
    /// The same, which reads when `gate` lets it.
    pub fn behind(mut self, gate: Option<Gate>) -> Self {
        if gate.is_some() {
            self.seldom().gate = gate;
        }
        self
    }

    /// Its gate, which it has no longer.
    pub fn take_gate(&mut self) -> Option<Gate> {
        self.seldom.as_mut()?.gate.take()
    }

    pub(super) fn seldom(&mut self) -> &mut Seldom {
        self.seldom.get_or_insert_default()
    }

    /// Ready when something may be read: how many bytes at most.
    pub(super) fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        match self.gate() {
            Some(gate) => gate.poll(cx),
            None => Poll::Ready(usize::MAX),
        }
    }

    /// So many bytes were read.
    pub(super) fn passed_gate(&mut self, bytes: usize) {
        if let Some(gate) = self.gate() {
            gate.took(bytes);
        }
    }

    /// Whether it reads nothing now, because it may not.
    pub(super) fn is_closed(&self) -> bool {
        self.seldom.as_ref().and_then(|seldom| seldom.gate.as_ref()).is_some_and(Gate::is_closed)
    }

    fn gate(&mut self) -> Option<&mut Gate> {
        self.seldom.as_mut()?.gate.as_mut()
    }

    /// What has come of a frame is passed on no further.
    pub(super) fn stop_passing(&mut self) {
        if let Some(seldom) = &mut self.seldom {
            seldom.passing = None;
        }
    }

    pub(super) fn passing_capacity(&self) -> usize {
        self.seldom.as_ref().and_then(|seldom| seldom.passing.as_ref()).map_or(0, Vec::capacity)
    }
}
