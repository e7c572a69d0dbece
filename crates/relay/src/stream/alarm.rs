//! Notices that a connection ends or breaks while nobody reads from it.
//!
//! A direction of a stream reads nothing while its receiver is slow, and nothing more after its end. Without this a
//! reset by the sender would then be noticed only when the receiver reads on, or never.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

/// Watches one connection. It costs nothing until it is polled.
#[derive(Default)]
pub struct Alarm<'a> {
    change: Option<Pin<Box<dyn Future<Output = io::Result<Ready>> + Send + 'a>>>,
    /// Whether `change` comes with the end too.
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
    pub fn poll(&mut self, cx: &mut Context<'_>, stream: &'a TcpStream, watches_end: bool) -> Poll<Change> {
        if self.watches_end != watches_end {
            *self = Self { change: None, watches_end };
        }
        // Priority stands for the end of what can be read: there is no urgent data.
        let interest = if watches_end { Interest::ERROR | Interest::PRIORITY } else { Interest::ERROR };
        let change = self.change.get_or_insert_with(|| Box::pin(stream.ready(interest)));
        let ready = ready!(change.as_mut().poll(cx));
        self.change = None;
        Poll::Ready(match ready {
            Ok(ready) if !ready.is_error() => Change::Ended,
            _ => {
                let error = stream.take_error().ok().flatten();
                Change::Broken(error.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
            }
        })
    }
}
