//! What the overlay sees of a stream that runs.

use ekiden_stream::observer::{Observer, Progress, Watched, Watching};
use ekiden_transport::Connection;

use crate::overlay::{Arrival, LegWatch, OnLegs, Overlay, Sides};

/// Looks at the sides of a stream that are on legs.
pub struct Observed<'o> {
    overlay: &'o Overlay,
    legs: OnLegs<'o>,
}

/// What it looks at them with.
struct Seeing<'a> {
    _on: [Option<LegWatch<'a>>; 2],
    arrival: Option<Arrival<'a>>,
}

impl<'o> Observed<'o> {
    /// Looks at the sides of a stream that are on `legs`.
    pub fn new(overlay: &'o Overlay, legs: OnLegs<'o>) -> Self {
        Self { overlay, legs }
    }
}

impl Observer<Connection> for Observed<'_> {
    fn watch<'a>(self, a: &'a Connection, b: &'a Connection) -> Option<Watched<'a>>
    where
        Self: 'a,
    {
        let (overlay, Sides { on: [on_a, on_b], arrival }) = (self.overlay, *self.legs?);
        let on = [(a, on_a), (b, on_b)].map(|(side, leg)| Some(overlay.watch(side.socket(), &leg?)));
        Some(Box::new(Box::new(Seeing { _on: on, arrival })))
    }
}

impl Watching for Seeing<'_> {
    fn moved(&mut self, forward: Progress, backward: Progress) {
        if let Some(arrival) = &self.arrival {
            arrival.moved(forward, backward);
        }
    }

    fn is_done(&mut self) {
        if let Some(arrival) = &mut self.arrival {
            arrival.is_done();
        }
    }

    fn broke(&mut self, is_beyond: bool) {
        if let Some(arrival) = &mut self.arrival {
            arrival.broke(is_beyond);
        }
    }
}
