//! A connection of a virtual node.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use ekiden_tcp_info::TcpInfo;
use ekiden_transport::budget::Room;
use ekiden_transport::wire::{Noticed, Pipe, Sizes, Watch, Wire};

use super::tcp::{World, world};

/// An end of a connection, by its number.
#[derive(Debug)]
pub struct End(pub usize);

/// What is between two splices.
#[derive(Debug, Default)]
pub struct Held {
    bytes: Vec<u8>,
    is_small: bool,
}

impl End {
    /// A dead process does nothing more, nor does what is left of a schedule that is over.
    fn is_dead(&self) -> bool {
        world(|world| world.ends.get(self.0).is_none_or(|end| end.node.is_some_and(|node| world.killed[node])))
    }

    /// Sends, if the event loop knows that it may.
    fn send(&self, world: &mut World, bytes: &[u8]) -> io::Result<usize> {
        let end = &world.ends[self.0];
        if !end.writable && !end.write_closed {
            return Err(ErrorKind::WouldBlock.into());
        }
        world.send(self.0, bytes)
    }

    /// As a session of TLS takes bytes: a record at a time, and none before the last has been sent.
    fn encrypt(&self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let n = world(|world| {
            let n = bytes.len().min(world.tuning.record);
            world.ends[self.0].pending.extend(&bytes[..n]);
            n
        });
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(n),
        }
    }

    fn flush(&self) -> io::Result<()> {
        world(|world| {
            while !world.ends[self.0].pending.is_empty() {
                let bytes: Vec<u8> = world.ends[self.0].pending.iter().copied().collect();
                let n = self.send(world, &bytes)?;
                world.ends[self.0].pending.drain(..n);
            }
            let end = &world.ends[self.0];
            match end.owes_close {
                true if !end.writable && !end.write_closed => Err(ErrorKind::WouldBlock.into()),
                true => world.sends_close(self.0),
                false => Ok(()),
            }
        })
    }
}

impl Wire for End {
    type Pipe = Held;

    /// Sizes so small that a stream of a few hundred bytes takes every code path of a large one.
    const SIZES: Sizes = Sizes {
        small: 64,
        very_small: 5,
        large: 200,
        too_small_to_splice: 16,
        little_spliced: 128,
        turn: 512,
        discarded_most: 200,
    };

    fn room() -> Room {
        world(|world| match world.chance(world.tuning.scarce) {
            false => Room::Plenty,
            true if world.chance(500) => Room::Scarce,
            true => Room::Overdrawn,
        })
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        world(|world| {
            let end = &mut world.ends[self.0];
            if end.readable || end.read_closed {
                return Poll::Ready(Ok(()));
            }
            end.reader = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        world(|world| {
            let end = &world.ends[self.0];
            if !end.readable && !end.read_closed {
                return Err(ErrorKind::WouldBlock.into());
            }
            let got = world.receive(self.0, buffer);
            let end = &mut world.ends[self.0];
            if matches!(got, Ok(1..)) && end.is_drained() || matches!(&got, Err(e) if e.kind() == ErrorKind::WouldBlock)
            {
                end.readable = false;
            }
            world.trace(|| format!("{}: receives {got:?} of {}", self.0, buffer.len()));
            got
        })
    }

    fn has_unread(&self) -> bool {
        world(|world| !world.ends[self.0].received.is_empty())
    }

    fn discard_unread(&self) {
        world(|world| while matches!(world.receive(self.0, &mut [0; 64]), Ok(1..)) {});
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        world(|world| {
            let end = &mut world.ends[self.0];
            if end.writable || end.write_closed {
                return Poll::Ready(Ok(()));
            }
            end.writer = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn try_send(&self, bytes: &[u8], _: bool) -> io::Result<usize> {
        let sent = if self.may_be_spliced() { world(|world| self.send(world, bytes)) } else { self.encrypt(bytes) };
        world(|world| world.trace(|| format!("{}: sends {sent:?} of {}", self.0, bytes.len())));
        sent
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_pending() {
            ready!(self.poll_write_ready(cx))?;
            match self.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn has_pending(&self) -> bool {
        world(|world| !world.ends[self.0].pending.is_empty() || world.ends[self.0].owes_close)
    }

    fn ends_by_close(&self) -> bool {
        self.may_be_spliced()
    }

    fn may_be_spliced(&self) -> bool {
        world(|world| !world.ends[self.0].is_sealed)
    }

    fn fill(&self, pipe: &mut Held, most: usize) -> io::Result<usize> {
        world(|world| {
            // As where urgent data stands: behind it is data, also where the kernel says that the end is there.
            if world.chance(world.tuning.urgent) {
                let end = &world.ends[self.0];
                let says_end = end.has_end && !end.received.is_empty();
                return if says_end { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
            }
            let most = most.min(if pipe.is_small { 32 } else { 256 });
            pipe.bytes.resize(most, 0);
            let got = world.receive(self.0, &mut pipe.bytes);
            pipe.bytes.truncate(*got.as_ref().unwrap_or(&0));
            world.trace(|| format!("{}: splices {got:?} from it", self.0));
            got
        })
    }

    fn drain(&self, pipe: &mut Held) -> io::Result<usize> {
        world(|world| {
            let sent = self.send(world, &pipe.bytes);
            if let Ok(n) = sent {
                pipe.bytes.drain(..n);
                if !pipe.bytes.is_empty() {
                    world.swallows_reset(self.0);
                }
            }
            world.trace(|| format!("{}: splices {sent:?} to it", self.0));
            sent
        })
    }

    fn info(&self) -> io::Result<TcpInfo> {
        world(|world| Ok(world.ends[self.0].info(world.now_ms)))
    }

    fn has_unsent(&self) -> bool {
        world(|world| {
            let end = &world.ends[self.0];
            (end.owes_close || !end.pending.is_empty()) && end.is_with_host || end.has_unsent()
        })
    }

    fn has_received_end(&self) -> bool {
        world(|world| world.ends[self.0].has_received_end())
    }

    fn watch(&self, watches_end: bool) -> Watch<'_> {
        Box::pin(poll_fn(move |cx| {
            world(|world| {
                let end = &mut world.ends[self.0];
                if end.has_error {
                    return Poll::Ready(Noticed::Broken);
                }
                if watches_end && end.read_closed {
                    return Poll::Ready(Noticed::Ended);
                }
                end.watchers.push(cx.waker().clone());
                Poll::Pending
            })
        }))
    }

    fn take_error(&self) -> Option<io::Error> {
        world(|world| world.ends[self.0].take_error())
    }

    fn shut_down(&self) -> io::Result<()> {
        if self.is_dead() {
            return Ok(());
        }
        if world(|world| world.ends[self.0].needs_close()) {
            world(|world| world.ends[self.0].owes_close = true);
            self.flush()?;
        }
        world(|world| {
            world.trace(|| format!("{}: says its end", self.0));
            world.shut_down(self.0)
        })
    }

    fn end_cleanly(&self) {
        if self.is_dead() {
            return;
        }
        let _ = self.flush();
        world(|world| {
            world.trace(|| format!("{}: may be closed", self.0));
            world.end_cleanly(self.0);
        });
    }

    fn leave_to_kernel(&self) {
        if self.is_dead() {
            return;
        }
        let _ = self.flush();
        world(|world| {
            world.trace(|| format!("{}: is left to the kernel", self.0));
            world.leave_to_kernel(self.0);
        });
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_dead() {
            return;
        }
        world(|world| {
            let ends = world.close(self.0);
            world.trace(|| format!("{}: is closed{}", self.0, if ends { "" } else { " and gone" }));
        });
    }
}

impl Pipe for Held {
    fn take() -> Option<Self> {
        world(|world| {
            let is_small = world.chance(world.tuning.scarce);
            (!world.chance(world.tuning.no_pipe)).then_some(Self { bytes: Vec::new(), is_small })
        })
    }

    fn held(&self) -> usize {
        self.bytes.len()
    }

    fn is_small(&self) -> bool {
        self.is_small
    }

    fn wait(&mut self) -> usize {
        self.bytes.len()
    }
}
