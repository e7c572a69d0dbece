//! Observers, which learn what a stream moves while it runs, and how it ends.

/// A direction of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes that were read.
    pub bytes: u64,
    /// Whether the end behind them was read.
    pub has_ended: bool,
    /// Whether some of them still wait for the receiver.
    pub waits: bool,
}

impl Progress {
    /// What was read; the end counts as one byte.
    pub fn read(self) -> u64 {
        self.bytes + u64::from(self.has_ended)
    }
}

/// Watches a stream from its beginning.
pub trait Observer<W> {
    /// A stream between these connections begins; `a` has asked for it. `None`: it is not watched.
    fn watch<'a>(self, a: &'a W, b: &'a W) -> Option<Watched<'a>>
    where
        Self: 'a;
}

/// What watches a stream. Boxed twice: a running stream keeps a word for it, and most are not watched.
pub type Watched<'a> = Box<Box<dyn Watching + Send + 'a>>;

/// Watches a stream that runs.
pub trait Watching {
    /// What has moved by now from the side that asked for the stream, and to it.
    fn moved(&mut self, forward: Progress, backward: Progress);

    /// Both directions have ended.
    fn is_done(&mut self);

    /// A connection of the stream has broken: that of the side that was asked for, or the other one.
    fn broke(&mut self, is_beyond: bool);
}

/// The observer that watches no stream.
impl<W> Observer<W> for () {
    fn watch<'a>(self, _: &'a W, _: &'a W) -> Option<Watched<'a>>
    where
        Self: 'a,
    {
        None
    }
}
