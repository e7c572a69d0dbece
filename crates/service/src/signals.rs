//! What signals mean to a program that stays: SIGHUP asks for its configuration to be read again, SIGTERM and SIGINT for its end.

use std::io;

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
    /// From here on SIGHUP does not end the process. A SIGHUP during the start needs no reload: the start reads the file. To
    /// be called within the event loop.
    ///
    /// # Errors
    /// As [`Signals::new`].
    pub fn keep_from_hangup() -> io::Result<()> {
        signal(SignalKind::hangup()).map(drop)
    }

    /// To be called within the event loop.
    ///
    /// # Errors
    /// If the system has no room for a handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
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

/// Says why the program ends: whoever looks for it in the log has not always asked for that.
fn end(signal: &str) -> Asked {
    tracing::info!("told to end by {signal}");
    Asked::End
}
