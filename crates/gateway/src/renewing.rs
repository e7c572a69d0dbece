//! The thread that gives the keeper's word. It does nothing else, so that no other work can make the word late.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ekiden_bpf::gateway::{GatewayError, Word};
use tokio::sync::oneshot;

/// How often. The word holds for [`KEPT`](ekiden_bpf::gateway::KEPT) at least.
const RENEWING: Duration = Duration::from_millis(200);

/// The word is given until this is dropped.
pub(crate) struct Renewing {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewing {
    /// Each time for so long. The receiver is told why it cannot be given any more.
    pub fn start(word: Word, kept: Duration) -> std::io::Result<(Self, oneshot::Receiver<GatewayError>)> {
        let (stop, stopped) = mpsc::channel();
        let (fail, failed) = oneshot::channel();
        let renew = move || {
            loop {
                if let Err(error) = word.renew_for(kept) {
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
