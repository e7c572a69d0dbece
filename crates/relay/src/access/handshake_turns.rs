//! TLS handshakes with clients take turns: whoever connects makes this node sign, before it has said who it is.
//!
//! Each step of a handshake is a turn. Clients that wait have theirs one after the other. A thread that has spent time on turns leaves as much
//! to all else before the next: handshakes take half of the processors at most.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::ready;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::fair_queue::FairQueue;
use super::quota::ClientKey;

/// Less is not worth a pause: it is the precision of the timers.
const WORTH_A_PAUSE: Duration = Duration::from_millis(1);

/// The turns of all handshakes.
#[derive(Debug)]
pub struct HandshakeTurns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    queue: FairQueue<ClientKey, oneshot::Sender<Turn>>,
    /// Turns that may begin now.
    free: usize,
    /// The time that turns have taken and no pause has made up for.
    owed: Duration,
}

/// A turn, which is over when this is dropped.
#[derive(Debug)]
struct Turn {
    /// `None` once it was not taken.
    state: Option<Arc<Mutex<State>>>,
    begun: Instant,
}

impl HandshakeTurns {
    /// So many turns at a time: one for each thread.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(State { queue: FairQueue::default(), free: most, owed: Duration::ZERO })))
    }

    /// Does a handshake of this client, each step in a turn.
    pub async fn in_turns<T>(&self, client: ClientKey, handshake: impl Future<Output = T>) -> T {
        let mut handshake = pin!(handshake);
        let mut waiting: Option<Pin<Box<dyn Future<Output = Turn> + Send>>> = None;
        poll_fn(|cx| {
            let mut turn = match &mut waiting {
                Some(waiting) => ready!(waiting.as_mut().poll(cx)),
                None => match self.free_turn() {
                    Some(turn) => turn,
                    None => ready!(waiting.insert(Box::pin(turn_of(self.0.clone(), client))).as_mut().poll(cx)),
                },
            };
            waiting = None;
            // It may have come long ago, to a thread with much else to do.
            turn.begun = Instant::now();
            let polled = handshake.as_mut().poll(cx);
            drop(turn);
            polled
        })
        .await
    }

    fn free_turn(&self) -> Option<Turn> {
        let mut state = locked(&self.0);
        state.free = state.free.checked_sub(1)?;
        Some(Turn::of(&self.0))
    }
}

/// Waits for a turn.
async fn turn_of(state: Arc<Mutex<State>>, client: ClientKey) -> Turn {
    let (sender, receiver) = oneshot::channel();
    let entry = {
        let mut locked = locked(&state);
        if let Some(free) = locked.free.checked_sub(1) {
            locked.free = free;
            return Turn::of(&state);
        }
        let number = locked.queue.enter(client, client, sender);
        Entry { state: &state, client, number }
    };
    let turn = receiver.await.expect("an entry goes with a turn, or with this future");
    drop(entry);
    turn
}

/// A place in the queue, which is left when this is dropped.
struct Entry<'a> {
    state: &'a Mutex<State>,
    client: ClientKey,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let left = locked(self.state).queue.leave(&self.client, &self.client, self.number);
        drop(left);
    }
}

impl Turn {
    fn of(state: &Arc<Mutex<State>>) -> Self {
        Self { state: Some(state.clone()), begun: Instant::now() }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        let owed = {
            let mut state = locked(&state);
            state.owed += self.begun.elapsed();
            if state.owed < WORTH_A_PAUSE { Duration::ZERO } else { std::mem::take(&mut state.owed) }
        };
        match Handle::try_current() {
            Ok(runtime) if !owed.is_zero() => drop(runtime.spawn(async move {
                sleep(owed).await;
                pass_on(&state);
            })),
            _ => pass_on(&state),
        }
    }
}

/// A turn is free for the next one who waits.
fn pass_on(state: &Arc<Mutex<State>>) {
    loop {
        let next = {
            let mut state = locked(state);
            let next = state.queue.take();
            state.free += usize::from(next.is_none());
            next
        };
        let Some(next) = next else { return };
        match next.send(Turn::of(state)) {
            Ok(()) => return,
            // Its client has gone.
            Err(mut turn) => turn.state = None,
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::task::yield_now;
    use tokio::time::advance;

    use super::*;

    fn client(number: u8) -> ClientKey {
        IpAddr::from([10, 0, 0, number]).into()
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_comes_often_delays_another_by_one_turn() {
        let turns = HandshakeTurns::new(1);
        let held = turns.free_turn().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let enter = |number: u8| {
            let (turn, order) = (turn_of(turns.0.clone(), client(number)), order.clone());
            tokio::spawn(async move {
                let _turn = turn.await;
                order.lock().unwrap().push(number);
            })
        };
        let mut all: Vec<_> = (0..5).map(|_| enter(1)).collect();
        yield_now().await;
        all.push(enter(2));
        yield_now().await;
        drop(held);
        for one in all {
            one.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [1, 2, 1, 1, 1, 1]);
        assert!(turns.free_turn().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_turns_have_taken_is_left_to_others_before_the_next() {
        let turns = HandshakeTurns::new(1);
        let begun = Instant::now();
        for _ in 0..10 {
            let turn = turn_of(turns.0.clone(), client(1)).await;
            sleep(Duration::from_millis(5)).await;
            drop(turn);
        }
        let last = turn_of(turns.0.clone(), client(1)).await;
        assert_eq!(begun.elapsed().as_millis(), 100);
        drop(last);
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_with_much_else_to_do_owes_nothing_for_that() {
        let turns = Arc::new(HandshakeTurns::new(1));
        let held = turns.free_turn().unwrap();
        let waits = tokio::spawn({
            let turns = turns.clone();
            async move { turns.in_turns(client(1), async {}).await }
        });
        yield_now().await;
        drop(held);
        advance(Duration::from_millis(50)).await;
        waits.await.unwrap();
        assert!(turns.free_turn().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_takes_no_turn_with_him() {
        let turns = HandshakeTurns::new(2);
        let held = [(); 2].map(|()| turns.free_turn().unwrap());
        let gone = tokio::spawn(turn_of(turns.0.clone(), client(1)));
        let had = tokio::spawn(turn_of(turns.0.clone(), client(2)));
        yield_now().await;
        gone.abort();
        yield_now().await;
        let [first, second] = held;
        drop(first);
        // It has its turn, and has not looked.
        had.abort();
        assert!(had.await.is_err());
        drop(second);
        assert_eq!(locked(&turns.0).free, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_holds_no_turn_while_it_waits() {
        let turns = HandshakeTurns::new(1);
        let slow = turns.in_turns(client(1), sleep(Duration::from_secs(1)));
        let quick = async {
            sleep(Duration::from_millis(1)).await;
            turns.in_turns(client(2), async {}).await;
            Instant::now()
        };
        let begun = Instant::now();
        let ((), quick) = tokio::join!(slow, quick);
        assert!(quick - begun < Duration::from_millis(10), "{:?}", quick - begun);
        assert_eq!(locked(&turns.0).free, 1);
    }
}
