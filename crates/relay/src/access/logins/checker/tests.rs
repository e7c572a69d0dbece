use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;

fn client(n: u32) -> ClientKey {
    IpAddr::from(Ipv4Addr::from_bits(0xc000_0200 + n)).into()
}

/// The network of 64 bits with this number at a site.
fn network(site: u16, number: u16) -> ClientKey {
    IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, site, number, 0, 0, 0, 1)).into()
}

fn guess(password: &str) -> Guess {
    Guess { hash: String::new(), password: password.into() }
}

/// A queue without a thread, and the answers that are waited for.
#[derive(Default)]
struct Still {
    queue: Queue,
    answers: Vec<oneshot::Receiver<bool>>,
}

impl Still {
    fn enter(&mut self, n: u32, password: &str) -> Result<u64, Crowded> {
        self.enter_as(client(n), password)
    }

    fn enter_as(&mut self, client: ClientKey, password: &str) -> Result<u64, Crowded> {
        let (answer, answered) = oneshot::channel();
        self.answers.push(answered);
        self.queue.enter(client, guess(password), answer)
    }

    fn order(&mut self) -> Vec<String> {
        let next = || self.queue.jobs.take().map(|job| String::from_utf8(job.guess.password).unwrap());
        std::iter::from_fn(next).collect()
    }
}

#[test]
fn addresses_take_turns() {
    let mut still = Still::default();
    for (n, password) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (3, "c2")] {
        still.enter(n, password).unwrap();
    }
    assert_eq!(still.order(), ["a1", "b1", "c1", "a2", "c2", "a3"]);
    assert_eq!(still.queue.jobs.len(), 0);
}

#[test]
fn a_site_with_many_ipv6_networks_has_one_turn_and_its_networks_share_it() {
    let mut still = Still::default();
    for (site, number, password) in [(1, 1, "a1"), (1, 2, "b1"), (1, 2, "b2"), (1, 3, "c1"), (2, 1, "d1"), (2, 1, "d2")]
    {
        still.enter_as(network(site, number), password).unwrap();
    }
    assert_eq!(still.order(), ["a1", "d1", "b1", "d2", "c1", "b2"]);
}

#[test]
fn a_site_with_many_ipv6_networks_does_not_keep_others_from_logging_in() {
    let mut still = Still::default();
    for number in 0..WAITING as u16 {
        still.enter_as(network(1, number), "x").unwrap();
    }
    assert_eq!(still.enter_as(network(1, 9999), "x"), Err(Crowded::Node), "its networks have one each");
    still.enter_as(network(2, 0), "honest").unwrap();
    still.enter(1, "honest too").unwrap();
    assert_eq!(still.queue.jobs.len(), WAITING);
    let order = still.order();
    assert_eq!(order.iter().take(3).filter(|password| password.starts_with("honest")).count(), 2, "{order:?}");
}

#[test]
fn the_queue_is_bounded_for_each_address_and_in_all() {
    let mut still = Still::default();
    for n in 0..(WAITING / WAITING_EACH) as u32 {
        (0..WAITING_EACH).for_each(|_| assert!(still.enter(n, "x").is_ok()));
        assert_eq!(still.enter(n, "x"), Err(Crowded::Client));
    }
    // The queue is full. Addresses with the most guesses lose some of theirs, until all have the same number.
    for n in 100..100 + WAITING as u32 {
        let entered = still.enter(n, "y");
        assert_eq!(still.queue.jobs.len(), WAITING);
        let most = (0..=n).map(|n| still.queue.jobs.len_of(&client(n).site(), &client(n))).max().unwrap();
        assert!(entered.is_ok() || most == 1, "{n}: {entered:?} with {most}");
    }
    let given_up = still.answers.iter_mut().filter_map(|answer| answer.try_recv().err().filter(is_closed)).count();
    assert!(given_up > WAITING / 2, "{given_up} had to make room");
    assert_eq!(still.order().len(), WAITING);
}

fn is_closed(error: &oneshot::error::TryRecvError) -> bool {
    *error == oneshot::error::TryRecvError::Closed
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn whoever_stops_waiting_leaves_the_queue() {
    let checker = Checker::new(|| Box::new(|_| true));
    // As if a thread were busy.
    checker.shared.lock().has_thread = true;
    {
        let mut futures: Vec<_> = (0..WAITING_EACH).map(|_| Box::pin(checker.check(client(1), guess("x")))).collect();
        assert!(futures.iter_mut().all(|future| poll(future.as_mut()).is_pending()));
        assert!(matches!(poll(pin!(checker.check(client(1), guess("x")))), Poll::Ready(Err(Crowded::Client))));
        assert_eq!(checker.shared.lock().jobs.len(), WAITING_EACH);
    }
    let queue = checker.shared.lock();
    assert!(queue.jobs.is_empty() && queue.jobs.last_of_most(&client(1), &client(1)).is_none());
}

#[tokio::test]
async fn a_check_that_panics_is_no_end_of_all() {
    let checker = Checker::new(|| Box::new(|guess| if guess.password == b"bad" { panic!("on purpose") } else { true }));
    assert_eq!(checker.check(client(1), guess("good")).await, Ok(true));
    assert_eq!(checker.check(client(1), guess("bad")).await, Err(Crowded::Node));
    // The thread may have to end first.
    let checked = tokio::time::timeout(Duration::from_secs(30), async {
        while checker.shared.lock().has_thread {
            tokio::task::yield_now().await;
        }
        checker.check(client(1), guess("good")).await
    });
    assert_eq!(checked.await, Ok(Ok(true)));
}
