use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

type InTurn<'a> = Pin<Box<dyn Future<Output = Turn> + 'a>>;

/// Look-ups that wait, each with its name, and the descriptors of those that have begun.
struct Asking<'a> {
    spare: &'a Spare,
    waiting: Vec<(&'static str, InTurn<'a>)>,
    begun: Vec<(&'static str, Turn)>,
}

const DESCRIPTORS: u32 = 2;

impl<'a> Asking<'a> {
    fn new(spare: &'a Spare) -> Self {
        Self { spare, waiting: Vec::new(), begun: Vec::new() }
    }

    fn enter(&mut self, name: &'static str, asker: Asker<'static>) {
        let spare = self.spare;
        self.waiting.push((name, Box::pin(async move { spare.in_turn(&asker, DESCRIPTORS).await })));
        self.poll();
    }

    /// Lets all begin whose turn it is.
    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..=self.waiting.len() {
            let begun = &mut self.begun;
            self.waiting.retain_mut(|(name, waiting)| match waiting.as_mut().poll(&mut context) {
                Poll::Ready(look_up) => {
                    begun.push((*name, look_up));
                    false
                }
                Poll::Pending => true,
            });
        }
    }

    /// The order in which they begin, when each ends before the next one begins.
    fn order(mut self) -> Vec<&'static str> {
        let mut order = Vec::new();
        while !self.begun.is_empty() {
            order.push(self.begun.remove(0).0);
            self.poll();
        }
        order
    }
}

fn client(ip: &str) -> Asker<'static> {
    Asker { node: None, client: Some(ip.parse().unwrap()) }
}

#[test]
fn askers_take_turns() {
    let spare = Spare::new(DESCRIPTORS as usize);
    let mut asking = Asking::new(&spare);
    for name in ["a1", "a2", "a3", "a4", "a5"] {
        asking.enter(name, client("192.0.2.1"));
    }
    asking.enter("b1", client("192.0.2.2"));
    // Clients of another node share its turns; what they are called there does not matter.
    let of_node = |ip: &str| Asker { node: Some("n"), ..client(ip) };
    asking.enter("n1", of_node("192.0.2.3"));
    asking.enter("n2", of_node("192.0.2.3"));
    asking.enter("n3", of_node("192.0.2.4"));
    asking.enter("own", Asker::default());
    assert_eq!(asking.order(), ["a1", "a2", "a3", "b1", "n1", "own", "a4", "n3", "a5", "n2"]);
    assert!(!spare.lock().has_head && spare.one().is_some());
}

#[test]
fn an_asker_alone_has_all_descriptors() {
    let spare = Spare::new(3 * DESCRIPTORS as usize);
    let mut asking = Asking::new(&spare);
    for name in ["a1", "a2", "a3", "a4"] {
        asking.enter(name, client("192.0.2.1"));
    }
    assert_eq!(asking.begun.len(), 3);
    assert!(spare.lock().has_head);
}

#[test]
fn whoever_stops_waiting_keeps_no_turn() {
    let spare = Spare::new(DESCRIPTORS as usize);
    let mut asking = Asking::new(&spare);
    for (name, ip) in [("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "192.0.2.3"), ("d", "192.0.2.4")] {
        asking.enter(name, client(ip));
    }
    let left = ["b", "c"];
    // One is the next, the other in the queue.
    for _ in left {
        assert!(left.contains(&asking.waiting.remove(0).0));
        asking.poll();
    }
    assert_eq!(spare.lock().queue.len(), 0);
    asking.enter("e", client("192.0.2.5"));
    assert_eq!(asking.order(), ["a", "d", "e"]);
    assert!(!spare.lock().has_head && spare.lock().begun.is_empty());
}

#[test]
fn those_who_have_most_give_way() {
    let spare = Spare::new(3 * DESCRIPTORS as usize);
    let mut asking = Asking::new(&spare);
    for name in ["a1", "a2"] {
        asking.enter(name, client("192.0.2.1"));
    }
    asking.enter("b1", client("192.0.2.2"));
    let wanted = |asking: &Asking<'_>| -> Vec<&str> {
        let begun = asking.begun.iter().filter(|(_, turn)| spare.is_wanted_of(&turn.group));
        begun.map(|(name, _)| *name).collect()
    };
    assert!(wanted(&asking).is_empty(), "nobody waits");
    asking.enter("c1", client("192.0.2.3"));
    assert_eq!(wanted(&asking), ["a1", "a2"]);
    asking.enter("a3", client("192.0.2.1"));
    asking.begun.remove(0);
    asking.poll();
    assert_eq!(wanted(&asking), ["a2", "b1", "c1"], "all have as many");
}

#[test]
fn one_of_each_group_has_its_whole_time_and_all_of_these_at_most_half() {
    let spare = Spare::new(8 * DESCRIPTORS as usize);
    let mut asking = Asking::new(&spare);
    let exempt = |asking: &Asking<'_>| -> Vec<&str> {
        asking.begun.iter().filter(|(_, turn)| turn.exempt.is_some()).map(|(name, _)| *name).collect()
    };
    for (name, ip) in [("a1", "192.0.2.1"), ("a2", "192.0.2.1"), ("b1", "192.0.2.2"), ("c1", "192.0.2.3")] {
        asking.enter(name, client(ip));
    }
    assert_eq!(exempt(&asking), ["a1", "b1", "c1"]);
    for (name, ip) in [("d1", "192.0.2.4"), ("e1", "192.0.2.5")] {
        asking.enter(name, client(ip));
    }
    assert_eq!(exempt(&asking), ["a1", "b1", "c1", "d1"]);
    asking.begun.remove(0);
    asking.enter("a3", client("192.0.2.1"));
    assert_eq!(exempt(&asking), ["b1", "c1", "d1", "a3"], "the next one of its group");
}

#[test]
fn one_that_nobody_waits_for_is_not_exempt_and_gives_way_to_all() {
    let spare = Spare::new(4 * DESCRIPTORS as usize);
    let mut asking = Asking::new(&spare);
    asking.enter("a1", client("192.0.2.1"));
    let (_, mut first) = asking.begun.remove(0);
    assert!(first.is_exempt() && !first.gives_way(false) && !first.is_exempt(), "nobody wants its descriptors");
    assert!(!first.gives_way(true) && first.is_exempt(), "someone waits for it again");
    assert!(!first.gives_way(false));
    asking.enter("a2", client("192.0.2.1"));
    assert!(asking.begun[0].1.is_exempt());
    assert!(!first.gives_way(true) && !first.is_exempt(), "another one of its group is");
    for name in ["a3", "a4", "a5"] {
        asking.enter(name, client("192.0.2.1"));
    }
    assert_eq!(asking.waiting.len(), 1);
    assert!(first.gives_way(false));
    asking.waiting.clear();
    assert!(!first.gives_way(false));
    // It does for a second.
    assert!((0..10).any(|_| spare.one().is_none() && first.gives_way(false)));
}
