//! The look-ups that are under way, one for each name. All who ask for a name wait for the same one. It goes on when they have
//! left, so that its answer is cached for those who ask again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::sync::watch;

use super::cache::Found;
use crate::exit::spare::{Turn, Who};

/// All names that are waited for. An entry goes when nobody waits and the look-up is over.
#[derive(Clone, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<Name, Weak<Flight>>>>);

/// The look-up of a name. It begins when one of those who wait for it has a turn.
pub(super) struct Flight {
    name: Name,
    all: Flights,
    state: watch::Sender<State>,
}

#[derive(Default)]
struct State {
    under_way: Option<Run>,
    /// The number of that run, or of the last one.
    run: u64,
    /// Which run was given up last, while others waited for their turns, and in whose turn it was.
    given_up: Option<(u64, Who)>,
    found: Vec<(RecordType, Found)>,
}

/// In what turn it is under way.
struct Run {
    is_exempt: bool,
}

impl Flights {
    /// That of this name.
    pub(super) fn of(&self, name: &Name) -> Arc<Flight> {
        let mut all = self.lock();
        if let Some(flight) = all.get(name).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Arc::new(Flight { name: name.clone(), all: self.clone(), state: watch::Sender::default() });
        all.insert(name.clone(), Arc::downgrade(&flight));
        flight
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Weak<Flight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// What is found in one family, as soon as it is known.
    pub(super) async fn found(&self, kind: RecordType) -> Found {
        let mut found = None;
        self.until(|state| {
            found = state.found.iter().find(|(other, _)| *other == kind).map(|(_, found)| found.clone());
            found.is_some()
        })
        .await;
        found.unwrap_or(Err(super::Unknown::Timeout))
    }

    /// Until it is under way, in a turn that is exempt if only such a one counts.
    pub(super) async fn has_begun(&self, only_exempt: bool) {
        self.until(|state| state.under_way.as_ref().is_some_and(|run| run.is_exempt || !only_exempt)).await;
    }

    /// Until it is not under way.
    pub(super) async fn has_room(&self) {
        self.until(|state| state.under_way.is_none()).await;
    }

    /// Until it is not under way as now: it may have been begun anew at once. In whose turn it was given up, if it was.
    pub(super) async fn has_ended(&self) -> Option<Who> {
        let run = self.state.borrow().run;
        let mut given_up = None;
        self.until(|state| {
            given_up = state.given_up.clone().filter(|(number, _)| *number == run).map(|(_, who)| who);
            state.under_way.is_none() || state.run != run
        })
        .await;
        given_up
    }

    /// Begins it in this turn. `None` if it is under way.
    pub(super) fn begin(self: &Arc<Self>, turn: &Turn) -> Option<UnderWay> {
        let begins = self.state.send_if_modified(|state| {
            let begins = state.under_way.is_none();
            if begins {
                state.under_way = Some(Run { is_exempt: turn.is_exempt() });
                state.run += 1;
            }
            begins
        });
        begins.then(|| UnderWay(self.clone()))
    }

    async fn until(&self, is_so: impl FnMut(&State) -> bool) {
        // It is never closed: its sender is here.
        let _ = self.state.subscribe().wait_for(is_so).await;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // Another one may have its place.
        if all.get(&self.name).is_some_and(|flight| flight.strong_count() == 0) {
            all.remove(&self.name);
        }
    }
}

/// A look-up that is under way until this is dropped. If that is before all is found, another one who waits begins it anew.
pub(super) struct UnderWay(Arc<Flight>);

impl UnderWay {
    pub(super) fn name(&self) -> &Name {
        &self.0.name
    }

    /// Tells those who wait.
    pub(super) fn tell(&self, kind: RecordType, found: Found) {
        self.0.state.send_modify(|state| state.found.push((kind, found)));
    }

    /// What is found in one family so far.
    pub(super) fn found(&self, kind: RecordType) -> Option<Found> {
        self.0.state.borrow().found.iter().find(|(other, _)| *other == kind).map(|(_, found)| found.clone())
    }

    /// Whether anyone waits for it.
    pub(super) fn is_waited_for(&self) -> bool {
        // This has one of those.
        Arc::strong_count(&self.0) > 1
    }

    /// It ends without an answer. Those of `group`, whose turn it was, are told so; the others who wait begin it anew. `None`:
    /// nobody waited, and whoever does by now begins it anew.
    pub(super) fn give_up(self, group: Option<Who>) {
        self.0.state.send_modify(|state| state.given_up = group.map(|group| (state.run, group)));
    }

    /// It is over: whoever asks from now on begins another one.
    pub(super) fn land(self) {
        self.0.all.lock().remove(&self.0.name);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.under_way = None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;
    use crate::exit::spare::{Asker, Spare};

    #[tokio::test]
    async fn who_waits_hears_that_it_was_given_up_although_it_was_begun_anew_at_once() {
        let spare = Spare::new(8);
        let look_up = spare.look_up(Asker::default());
        let turn = look_up.turn(2).await;
        let flight = Flights::default().of(&Name::from_ascii("a.example.").unwrap());
        let first = flight.begin(&turn).unwrap();
        let waits = flight.clone();
        let waits = tokio::spawn(async move { waits.has_ended().await });
        yield_now().await;
        first.give_up(Some(Who::Own));
        let _second = flight.begin(&turn).unwrap();
        let heard = timeout(Duration::from_secs(10), waits).await.expect("it waits for the second");
        assert_eq!(heard.unwrap(), Some(Who::Own));
    }
}
