//! Notices that a connection breaks while nobody reads from it.
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
pub struct Alarm<'a>(Option<Pin<Box<dyn Future<Output = io::Result<Ready>> + Send + 'a>>>);

impl<'a> Alarm<'a> {
    /// Ready with the reason when `stream` has broken. With `may_not_end` its end is a break too; once an end is
    /// allowed it stays so. Always the same `stream`.
    pub fn poll(&mut self, cx: &mut Context<'_>, stream: &'a TcpStream, may_not_end: bool) -> Poll<io::Error> {
        loop {
            // Priority stands for the end of what can be read: there is no urgent data.
            let interest = if may_not_end { Interest::ERROR | Interest::PRIORITY } else { Interest::ERROR };
            let change = self.0.get_or_insert_with(|| Box::pin(stream.ready(interest)));
            match ready!(change.as_mut().poll(cx)) {
                Ok(ready) if !ready.is_error() && !may_not_end => self.0 = None,
                Ok(ready) if !ready.is_error() => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
                _ => {
                    let error = stream.take_error().ok().flatten();
                    return Poll::Ready(error.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()));
                }
            }
        }
    }
}
