//! The thread that gives the keeper's word. It does nothing else, so that no other work can make the word late; but it stops when the
//! process's main thread has been stuck for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::kernel::{GatewayError, Word};

/// The interval. The word holds for [`KEPT`](crate::kernel::KEPT) at least.
const RENEWING: Duration = Duration::from_millis(200);

/// The main thread counts as stuck when its pulse has been missing for this time. A status of many streams takes a second.
const STUCK: Duration = Duration::from_secs(30);

/// The main thread's sign of life.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulse(Arc<AtomicU32>);

impl Pulse {
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The word is given until this is dropped.
pub(crate) struct Renewing {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewing {
    /// Gives the word repeatedly, each time for `kept`. The receiver gets the reason when the word can no longer be given.
    pub fn start(word: Word, kept: Duration, pulse: Pulse) -> std::io::Result<(Self, oneshot::Receiver<GatewayError>)> {
        let (stop, stopped) = mpsc::channel();
        let (fail, failed) = oneshot::channel();
        let renew = move || {
            let (mut last, mut heard) = (pulse.0.load(Ordering::Relaxed), Instant::now());
            loop {
                let now = pulse.0.load(Ordering::Relaxed);
                if now != last {
                    (last, heard) = (now, Instant::now());
                }
                if heard.elapsed() < STUCK
                    && let Err(error) = word.renew_for(kept)
                {
                    let _ = fail.send(error);
                    return;
                }
                if stopped.recv_timeout(RENEWING) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("keeper's word".into()).spawn(renew)?;
        Ok((Self { stop: Some(stop), thread: Some(thread) }, failed))
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
