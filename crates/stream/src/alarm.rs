//! Notices that a connection ends or breaks while it is not being read.
//!
//! A direction of a stream reads nothing while its receiver is slow, and nothing more after its end. Without this a
//! reset by the sender would then be noticed only when the receiver reads on, or never.

use std::io;
use std::task::{Context, Poll, ready};

use ekiden_transport::wire::{Noticed, Watch, Wire};

/// Watches one connection. It costs nothing until it is polled.
#[derive(Default)]
pub struct Alarm<'a> {
    watch: Option<Watch<'a>>,
    /// Whether `watch` completes with the end too.
    watches_end: bool,
}

/// What became of a connection.
pub enum Change {
    /// A FIN is behind what can be read.
    Ended,
    /// It has broken.
    Broken(io::Error),
}

impl<'a> Alarm<'a> {
    /// Ready when `stream` has broken and, with `watches_end`, when it has ended. Always the same `stream`.
    pub fn poll(&mut self, cx: &mut Context<'_>, stream: &'a impl Wire, watches_end: bool) -> Poll<Change> {
        if self.watches_end != watches_end {
            *self = Self { watch: None, watches_end };
        }
        let watch = self.watch.get_or_insert_with(|| stream.watch(watches_end));
        let noticed = ready!(watch.as_mut().poll(cx));
        self.watch = None;
        Poll::Ready(match noticed {
            Noticed::Ended => Change::Ended,
            Noticed::Broken => {
                Change::Broken(stream.take_error().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
            }
        })
    }
}
