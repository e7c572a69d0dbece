//! What signals mean to a program that stays: SIGHUP asks for its configuration to be read again, SIGTERM and SIGINT for its end.

use std::{io, thread};

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks of a program that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// SIGHUP: to read its configuration again.
    Reload,
    /// SIGTERM or SIGINT: to end.
    End,
}

/// The signals of a program that stays. They have this meaning for as long as the process lives, also where it was started with SIGHUP
/// ignored, as by nohup.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on a SIGHUP waits for [`Signals::new`], which then finds it. A start may take seconds, and the file that it has read may be
    /// another one by then. To be called before the file is read, and before another thread is there.
    ///
    /// # Errors
    /// None that is known.
    pub fn hold_hangup() -> io::Result<()> {
        Ok(hangup().thread_block()?)
    }

    /// To be called within the event loop, by the thread that has called [`Signals::hold_hangup`].
    ///
    /// # Errors
    /// If the system has no room for a handler.
    pub fn new() -> io::Result<Self> {
        let signals = Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        hangup().thread_unblock()?;
        Ok(signals)
    }

    /// For a program without an event loop: from here on `heed` is told what the signals ask, in a thread, until one asks for the end. `begin`
    /// may spawn tasks for that thread.
    ///
    /// # Errors
    /// As [`Signals::new`], or if the system has no room for a thread.
    pub fn tell(begin: impl FnOnce(), mut heed: impl FnMut(Asked) + Send + 'static) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut signals = runtime.block_on(async {
            begin();
            Self::new()
        })?;
        let listen = move || {
            runtime.block_on(async {
                loop {
                    let asked = signals.next().await;
                    heed(asked);
                    if asked == Asked::End {
                        break;
                    }
                }
            });
        };
        thread::Builder::new().name("signals".into()).spawn(listen).map(drop)
    }

    /// Completes with the next one. Cancelling it loses none.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => end("SIGTERM"),
            _ = self.interrupt.recv() => end("SIGINT"),
            _ = self.hangup.recv() => Asked::Reload,
        }
    }

    /// Completes with the next one that asks for the end.
    pub async fn end(&mut self) {
        while self.next().await != Asked::End {}
    }
}

fn hangup() -> SigSet {
    SigSet::from(Number::SIGHUP)
}

/// Says why the program ends: whoever looks for it in the log has not always asked for that.
fn end(signal: &str) -> Asked {
    tracing::info!("told to end by {signal}");
    Asked::End
}
