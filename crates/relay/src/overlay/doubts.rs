//! Which nodes are set aside because streams over them did not arrive, and how that is found out.

use ekiden_overlay::path::Path;
use ekiden_overlay::receipt::Verdict;
use ekiden_relay_proto::Host;
use ekiden_units::Time;

use super::arrivals::Said;
use super::{Doubts, Overlay, State, Taken};

/// A second destination counts within this time ...
const SUSPECTED: Time = Time::secs(600);
/// ... for so many paths at a time.
const SUSPECTED_MOST: usize = 1024;

impl Overlay {
    /// A stream on this path was not opened in time, or was refused, where it was opened on another path. The destination may be the
    /// cause, such as one of several hosts behind a balancer that is down: the path is tried last for a while. Its nodes are set aside
    /// where a second destination shows the same.
    pub fn suspect(&self, taken: &Taken, destination: &Host, why: &str) {
        let now = self.now();
        let mut state = self.lock();
        state.places.failed(&taken.path, now);
        if taken.path.relays().is_empty() {
            return;
        }
        if state.suspected.len() > SUSPECTED_MOST {
            state.suspected.clear();
        }
        let before = state.suspected.insert(taken.path.clone(), (destination.clone(), now));
        if before.is_some_and(|(other, at)| other != *destination && now.since(at) < SUSPECTED) {
            state.judge(&taken.path, Verdict::HeldBack, now, now, why);
        }
    }

    /// What exits are to be asked of streams on the way to them. Those that cannot be asked now are left out, and their streams judged by
    /// what can be seen.
    pub fn doubts(&self) -> Vec<Doubts> {
        let now = self.now();
        let is_deaf = |exit: &str| self.arrivals.is_mute(exit, now) || self.lock().known.is_shunned(exit, now);
        let (deaf, to) = self.arrivals.doubts(now).into_iter().partition(|doubts| is_deaf(&doubts.exit));
        Vec::into_iter(deaf).for_each(|doubts: Doubts| self.receipts(doubts, Err(())));
        to
    }

    /// Completes when a stream has ended of which its exit is to be asked.
    pub async fn is_doubted(&self) {
        self.arrivals.doubted.notified().await;
    }

    /// Takes what an exit has said, or that it could not be asked.
    pub fn receipts(&self, doubts: Doubts, said: Result<Vec<u8>, ()>) {
        let now = self.now();
        let said = self.arrivals.answered(doubts, said, now);
        said.into_iter().for_each(|said| self.take(said, now));
    }

    /// Takes what a stream says of its path.
    pub(super) fn take(&self, Said { taken, verdict, begun }: Said, now: Time) {
        self.lock().judge(&taken.path, verdict, begun, now, "a stream did not arrive");
    }

    /// Answers the entries of streams that leave the overlay here.
    ///
    /// # Errors
    /// If the question cannot be read.
    pub fn tell_receipts(&self, question: &[u8]) -> Result<Vec<u8>, String> {
        self.arrivals.answer(question, self.now())
    }
}

impl State {
    fn judge(&mut self, path: &Path, verdict: Verdict, begun: Time, now: Time, why: &str) {
        if self.places.judge(path, verdict, begun, now) {
            let relays = path.relays().join(" and ");
            tracing::info!("over {path} {why}: streams avoid node {relays} for now");
        }
    }
}
