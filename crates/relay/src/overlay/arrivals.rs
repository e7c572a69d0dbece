//! A stream over other nodes, at one of its two ends: what it has moved, and how it ends. What is made of that at its entry is in
//! [`super::entries`], at its exit in [`super::exits`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ekiden_overlay::delivery::Ended;
use ekiden_overlay::judged::Taken;
use ekiden_overlay::receipt::{End, StreamId};
use ekiden_stream::observer::Progress;
use ekiden_units::Time;

use super::Overlay;

/// What a stream has moved. Written by its task, and read by others at any time.
#[derive(Debug, Default)]
pub struct Moved {
    /// Bytes towards the destination that were read here, and their end as one more.
    pub up: AtomicU64,
    /// The same in the other direction.
    pub down: AtomicU64,
    pub has_down_end: AtomicBool,
    /// Whether the host at this end does not take what there is for it.
    pub is_full: AtomicBool,
    /// When something last moved, in nanoseconds since the node began.
    pub at: AtomicU64,
}

/// To be told of the first byte that comes back of a stream.
#[derive(Debug)]
pub struct Came(Arc<Moved>);

impl Came {
    /// It has come.
    pub fn now(self) {
        self.0.down.store(u64::MAX / 2, Ordering::Relaxed);
    }
}

/// An end of a stream over other nodes that is here. When dropped, the stream has ended.
#[derive(Debug)]
pub struct Arrival<'a> {
    overlay: &'a Overlay,
    id: StreamId,
    of: Of,
    moved: Arc<Moved>,
    ended: Ended,
}

/// Which end it is.
#[derive(Debug)]
enum Of {
    Entry(Arc<Taken>),
    /// The node from which the stream comes, and whether its destination was reached.
    Exit(Arc<str>, bool),
}

impl Overlay {
    /// A stream begins here, on this path. `is_whole`: what its client's connection carries is what the stream does.
    pub fn enter(&self, taken: Arc<Taken>, id: StreamId, is_whole: bool) -> Arrival<'_> {
        let moved = Arc::new(Moved::default());
        self.entries.begin(taken.clone(), id, is_whole, moved.clone(), self.now());
        Arrival { overlay: self, id, of: Of::Entry(taken), moved, ended: Ended::Entry }
    }

    /// A node asks for a stream that is to leave the overlay here; none if its name is another's.
    pub fn leave(&self, from: &Arc<str>, id: StreamId) -> Option<Arrival<'_>> {
        let moved = self.exits.begin(id)?;
        Some(Arrival { overlay: self, id, of: Of::Exit(from.clone(), false), moved, ended: Ended::Entry })
    }
}

impl Arrival<'_> {
    /// The destination was reached, or was not; the answer to the node that asked for it goes out now.
    pub fn answers(&mut self, is_reached: bool) {
        if let Of::Exit(_, is_open) = &mut self.of {
            *is_open = is_reached;
            self.overlay.exits.answered(self.id, self.overlay.now());
        }
    }

    /// What the stream has moved by now.
    pub fn moved(&self, up: Progress, down: Progress) {
        let Moved { is_full, at, has_down_end, .. } = &*self.moved;
        let before =
            [self.moved.up.swap(up.read(), Ordering::Relaxed), self.moved.down.swap(down.read(), Ordering::Relaxed)];
        has_down_end.store(down.has_ended, Ordering::Relaxed);
        let to_host = if matches!(self.of, Of::Entry(_)) { down } else { up };
        is_full.store(to_host.waits, Ordering::Relaxed);
        if before != [up.read(), down.read()] {
            at.store(self.overlay.now().0, Ordering::Relaxed);
        }
    }

    /// Takes word of what comes for a client to whom it is not passed on as it is.
    pub fn came(&self) -> Came {
        Came(self.moved.clone())
    }

    /// Both directions of the stream have ended.
    pub fn is_done(&mut self) {
        self.ended = Ended::Done;
    }

    /// A connection of the stream has broken, or its other end has given it up: that of the side that was asked for, or the other one.
    pub fn broke(&mut self, is_beyond: bool) {
        if is_beyond == matches!(self.of, Of::Entry(_)) {
            self.ended = Ended::Leg;
        }
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let now = self.overlay.now();
        match &self.of {
            Of::Entry(taken) => self.overlay.has_ended(taken, self.id, self.ended, now),
            Of::Exit(from, is_open) => {
                let end = match self.ended {
                    // The node before may have given up waiting.
                    Ended::Entry if !is_open && self.overlay.exits.has_answered(self.id) => End::Failed,
                    Ended::Entry if !is_open => End::Leg,
                    Ended::Entry => End::Exit,
                    Ended::Done => End::Done,
                    Ended::Leg => End::Leg,
                };
                self.overlay.exits.end(self.id, from, end, now);
            }
        }
    }
}

impl Moved {
    /// For how long nothing has moved.
    pub fn still(&self, begun: Time, now: Time) -> Time {
        now.since(Time(self.at.load(Ordering::Relaxed)).max(begun))
    }
}
