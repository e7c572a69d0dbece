//! Handshakes take turns: whoever connects makes this side sign, before it has said who it is.
//!
//! Each step of a handshake is a turn. The addresses of a thread have theirs one after the other. A thread that has spent processor time on turns
//! leaves as much to all else before the next one: handshakes take half of it at most.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ekiden_net::clock::thread_processor_us;
use ekiden_net::socket::client_of;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::fair_queue::FairQueue;

/// Less is not worth a pause: it is the precision of the timers.
const WORTH_A_PAUSE: Duration = Duration::from_millis(1);

thread_local! {
    static OF_THIS_THREAD: HandshakeTurns = HandshakeTurns::default();
}

/// Does a handshake with this address, each step in a turn of the thread that begins it.
pub fn in_turns<T>(address: IpAddr, handshake: impl Future<Output = T>) -> impl Future<Output = T> {
    // Boxed: a function's future keeps its arguments twice.
    let handshake = Box::pin(handshake);
    async move {
        let turns = OF_THIS_THREAD.with(Clone::clone);
        turns.in_turns(client_of(address), handshake).await
    }
}

/// The turns of a thread's handshakes.
#[derive(Debug, Clone, Default)]
struct HandshakeTurns(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    queue: FairQueue<IpAddr, oneshot::Sender<Turn>>,
    /// Whether somebody has a turn, or the pause behind one goes on.
    is_taken: bool,
    /// The processor time that turns have taken and no pause has made up for.
    owed: Duration,
}

/// A turn, which is over when this is dropped.
#[derive(Debug)]
struct Turn {
    /// `None` once it was not taken.
    turns: Option<HandshakeTurns>,
    /// The processor time that it has taken.
    took: Duration,
}

/// A place in the queue, which is left when this is dropped.
#[derive(Debug)]
struct Waiting {
    turns: HandshakeTurns,
    client: IpAddr,
    number: u64,
    given: oneshot::Receiver<Turn>,
}

impl HandshakeTurns {
    async fn in_turns<T>(&self, client: IpAddr, mut handshake: Pin<Box<impl Future<Output = T>>>) -> T {
        let mut waiting = None;
        poll_fn(|cx| {
            let mut turn = match &mut waiting {
                Some(waiting) => ready!(Waiting::poll(waiting, cx)),
                None => match self.ask(client) {
                    Ok(turn) => turn,
                    Err(new) => ready!(waiting.insert(new).poll(cx)),
                },
            };
            waiting = None;
            let before = thread_processor_us();
            let polled = handshake.as_mut().poll(cx);
            turn.took = Duration::from_micros(thread_processor_us().saturating_sub(before));
            drop(turn);
            polled
        })
        .await
    }

    /// A turn, or the place of one who waits.
    fn ask(&self, client: IpAddr) -> Result<Turn, Waiting> {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_taken, true) {
            return Ok(Turn::of(self));
        }
        let (sender, given) = oneshot::channel();
        let number = state.queue.enter(client, client, sender);
        Err(Waiting { turns: self.clone(), client, number, given })
    }

    /// A turn for the next one who waits.
    fn pass_on(&self) {
        loop {
            let next = {
                let mut state = self.lock();
                let next = state.queue.take();
                state.is_taken = next.is_some();
                next
            };
            let Some(next) = next else { return };
            match next.send(Turn::of(self)) {
                Ok(()) => return,
                // Its client has gone.
                Err(mut turn) => turn.turns = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        Pin::new(&mut self.given).poll(cx).map(|turn| turn.expect("an entry goes with a turn, or with this"))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let left = self.turns.lock().queue.leave(&self.client, &self.client, self.number);
        drop(left);
    }
}

impl Turn {
    fn of(turns: &HandshakeTurns) -> Self {
        Self { turns: Some(turns.clone()), took: Duration::ZERO }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else { return };
        let owed = {
            let mut state = turns.lock();
            state.owed += self.took;
            if state.owed < WORTH_A_PAUSE { Duration::ZERO } else { std::mem::take(&mut state.owed) }
        };
        match Handle::try_current() {
            Ok(runtime) if !owed.is_zero() => drop(runtime.spawn(async move {
                sleep(owed).await;
                turns.pass_on();
            })),
            _ => turns.pass_on(),
        }
    }
}

/// Takes this thread's turn until it is dropped.
#[cfg(test)]
pub fn hold() -> impl Drop {
    OF_THIS_THREAD.with(|turns| turns.ask(IpAddr::from([192, 0, 2, 1]))).expect("no other test is of this thread")
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;
    use tokio::time::Instant;

    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// So much work for the processor.
    fn work(most: Duration) {
        let until = thread_processor_us() + most.as_micros() as u64;
        while thread_processor_us() < until {}
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_comes_often_delays_another_by_one_turn() {
        let turns = HandshakeTurns::default();
        let held = turns.ask(client(1)).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let enter = |number: u8| {
            let (turns, order) = (turns.clone(), order.clone());
            tokio::spawn(async move {
                turns.in_turns(client(number), Box::pin(async { order.lock().unwrap().push(number) })).await;
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
    }

    #[tokio::test(start_paused = true)]
    async fn what_turns_have_taken_is_left_to_others_before_the_next() {
        let turns = HandshakeTurns::default();
        let begun = Instant::now();
        for _ in 0..10 {
            turns.in_turns(client(1), Box::pin(async { work(Duration::from_millis(5)) })).await;
        }
        turns.in_turns(client(1), Box::pin(async {})).await;
        let paused = begun.elapsed().as_millis();
        assert!((50..100).contains(&paused), "{paused}");
    }

    #[tokio::test]
    async fn time_in_which_the_thread_does_not_run_is_not_owed() {
        let turns = HandshakeTurns::default();
        turns.in_turns(client(1), Box::pin(async { std::thread::sleep(Duration::from_millis(300)) })).await;
        assert!(turns.lock().owed < Duration::from_millis(100) && turns.ask(client(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_takes_no_turn_with_him() {
        let turns = HandshakeTurns::default();
        let held = turns.ask(client(1)).unwrap();
        let [gone, had] = [2, 3].map(|number| turns.ask(client(number)).unwrap_err());
        drop(gone);
        // The last has its turn, and has not looked.
        drop(held);
        assert!(turns.ask(client(4)).is_err());
        drop(had);
        assert!(turns.ask(client(4)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_holds_no_turn_while_it_waits() {
        let turns = HandshakeTurns::default();
        let slow = turns.in_turns(client(1), Box::pin(sleep(Duration::from_secs(1))));
        let quick = async {
            sleep(Duration::from_millis(1)).await;
            turns.in_turns(client(2), Box::pin(async {})).await;
            Instant::now()
        };
        let begun = Instant::now();
        let ((), quick) = tokio::join!(slow, quick);
        assert!(quick - begun < Duration::from_millis(10), "{:?}", quick - begun);
        assert!(turns.ask(client(1)).is_ok());
    }
}
