//! The kernel's connection as streams use it.

use std::io;
use std::task::{Context, Poll};

use ekiden_net::socket;
use ekiden_net::splice::PooledPipe;
use ekiden_net::tcp_info::tcp_info;
use ekiden_tcp_info::TcpInfo;
use tokio::io::Interest;

use super::Connection;
use crate::budget::{self, Room};
use crate::wire::{Noticed, Pipe, Watch, Wire};

impl Wire for Connection {
    type Pipe = PooledPipe;

    fn room() -> Room {
        budget::room()
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_receive(buffer)
    }

    fn take_read(&self) -> usize {
        self.take_read()
    }

    fn has_unread(&self) -> bool {
        self.peek_now(&mut [0]).is_ok_and(|n| n > 0)
    }

    fn discard_unread(&self) {
        let mut sink = [0; 4096];
        while matches!(socket::receive(self.socket(), &mut sink), Ok(1..)) {}
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_ready(cx)
    }

    fn try_send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        self.try_send(bytes, more)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    fn has_pending(&self) -> bool {
        self.has_pending()
    }

    fn ends_by_close(&self) -> bool {
        self.plain().is_some()
    }

    fn may_be_spliced(&self) -> bool {
        self.plain().is_some()
    }

    fn fill(&self, pipe: &mut PooledPipe, most: usize) -> io::Result<usize> {
        pipe.fill(self.socket(), most)
    }

    fn drain(&self, pipe: &mut PooledPipe) -> io::Result<usize> {
        self.socket().try_io(Interest::WRITABLE, || pipe.drain(self.socket()))
    }

    fn info(&self) -> io::Result<TcpInfo> {
        tcp_info(self.socket())
    }

    fn has_unsent(&self) -> bool {
        // To a node an answer of TLS itself waits for the next data.
        self.is_of_host() && self.has_pending() || socket::has_unsent(self.socket())
    }

    fn has_received_end(&self) -> bool {
        socket::has_received_end(self.socket())
    }

    fn watch(&self, watches_end: bool) -> Watch<'_> {
        // Priority stands for the end of what can be read: there is no urgent data.
        let interest = if watches_end { Interest::ERROR | Interest::PRIORITY } else { Interest::ERROR };
        let ready = self.socket().ready(interest);
        Box::pin(async move {
            match ready.await {
                Ok(ready) if !ready.is_error() => Noticed::Ended,
                _ => Noticed::Broken,
            }
        })
    }

    fn take_error(&self) -> Option<io::Error> {
        self.socket().take_error().ok().flatten()
    }

    fn shut_down(&self) -> io::Result<()> {
        self.shut_down()
    }

    fn end_cleanly(&self) {
        self.end_cleanly();
    }

    fn leave_to_kernel(&self) {
        self.leave_to_kernel();
    }
}

impl Pipe for PooledPipe {
    fn take() -> Option<Self> {
        Self::take()
    }

    fn held(&self) -> usize {
        self.held()
    }

    fn is_small(&self) -> bool {
        self.is_small()
    }

    fn wait(&mut self) -> usize {
        self.wait()
    }
}
