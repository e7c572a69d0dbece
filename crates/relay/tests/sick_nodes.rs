//! Nodes of an overlay of which one is sick, or lies: what honest clients lose to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::overlay::Overlay;
use crate::common::sick::{Sickness, is_served, sick};
use crate::common::*;
use ekiden_relay::OverlayStatus;

const CLIENTS: usize = 4;
/// `limits.connect`. No client waits for a part of it.
const CONNECT: Duration = Duration::from_secs(100);

/// A TCP proxy in front of a node, over which each piece takes so long in each direction. While it is `shut`, nothing comes back.
fn line(to: SocketAddr, delay: Duration, shut: Arc<AtomicBool>) -> SocketAddr {
    let pass = move |mut from: TcpStream, mut to: TcpStream, shut: Option<Arc<AtomicBool>>| {
        let mut piece = vec![0; 65_536];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            std::thread::sleep(delay);
            while shut.as_ref().is_some_and(|shut| shut.load(Ordering::Relaxed)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            if to.write_all(&piece[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    server(move |near| {
        near.set_read_timeout(None).unwrap();
        let Ok(far) = TcpStream::connect(to) else { return };
        let (back, forth) = ((far.try_clone().unwrap(), near.try_clone().unwrap()), (near, far));
        let shut = shut.clone();
        std::thread::spawn(move || pass(back.0, back.1, Some(shut)));
        pass(forth.0, forth.1, None);
    })
}

/// Clients that ask one after the other, for so long: how many streams each got and lost, and how many of them in the second half.
fn clients(overlay: &Overlay, to: SocketAddr, time: Duration) -> (Vec<[usize; 2]>, usize) {
    let (begun, late) = (Instant::now(), AtomicUsize::new(0));
    let client = || {
        let mut count = [0; 2];
        while begun.elapsed() < time {
            let is_late = begun.elapsed() > time / 2;
            let is_lost = !is_served(overlay, to);
            count[usize::from(is_lost)] += 1;
            late.fetch_add(usize::from(is_lost && is_late), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
        }
        count
    };
    let counts = std::thread::scope(|scope| {
        let all: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    (counts, late.into_inner())
}

/// Node a with its clients, b that is sick, c that is well, and d, which is near the destination and far from a.
fn beside_a_sick_one(sickness: Sickness, direct: Option<SocketAddr>, class: &str) -> (Overlay, Arc<AtomicUsize>) {
    let (address, given) = sick(sickness);
    let route = format!("class = \"{class}\"\nmost_relays = 1\n[limits]\nconnect = \"{}s\"", CONNECT.as_secs());
    let mut overlay = match direct {
        Some(direct) => Overlay::with_impostor(4, |at, to| ((at, to) == (0, 3)).then_some(direct), &route, address),
        None => {
            // It listens before a begins: a leg that has failed once is left alone for a while, and streams go with b.
            let (listener, far) = listener();
            let overlay = Overlay::with_impostor(4, |at, to| ((at, to) == (0, 3)).then_some(far), &route, address);
            let there = line(overlay.addresses[3], Duration::from_millis(40), Arc::default());
            // Where d is, is known only now.
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let mut on = TcpStream::connect(there).unwrap();
                    let (mut back, mut to) = (on.try_clone().unwrap(), stream.try_clone().unwrap());
                    std::thread::spawn(move || std::io::copy(&mut back, &mut to));
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut &stream, &mut on);
                        let _ = on.shutdown(std::net::Shutdown::Write);
                    });
                }
            });
            overlay
        }
    };
    let echo = echo();
    // What a knows of the others it knows by questions, and it asks when it has had a stream. Without c it is b that gets one.
    drop(overlay.nodes[2].take());
    wait_until("b is given a stream", || {
        let _ = is_served(&overlay, echo);
        given.load(Ordering::Relaxed) > 0
    });
    overlay.nodes[2] = Some(overlay.start(2, ""));
    let name = overlay.name(2);
    let heard =
        |status: OverlayStatus| status.nodes.into_iter().find(|node| node.name == name).and_then(|node| node.heard_s);
    wait_until("c is heard", || heard(overlay.status(0)).is_some_and(|seconds| seconds < 1.0));
    (overlay, given)
}

#[test]
fn a_node_that_invents_streams_gets_one_and_then_none_while_others_are_there() {
    let (overlay, given) = beside_a_sick_one(Sickness::Invents, None, "interactive");
    let (counts, late) = clients(&overlay, echo(), Duration::from_secs(6));
    assert!(counts.iter().all(|[got, lost]| *got > 3 && *lost <= 1), "{counts:?}");
    assert_eq!(late, 0, "{counts:?}");
    assert!(given.load(Ordering::Relaxed) <= 2, "{given:?}");
    let aside = overlay.status(0).nodes.into_iter().find(|node| node.name == overlay.name(1)).unwrap().aside_s;
    assert!(aside.is_some_and(|seconds| seconds > 30.0), "{aside:?}");
}

#[test]
fn where_the_exit_cannot_be_asked_a_silent_node_is_left_when_others_are_answered() {
    let (overlay, given) = beside_a_sick_one(Sickness::Invents, Some(closed_port()), "bulk");
    let (counts, late) = clients(&overlay, echo(), Duration::from_secs(6));
    assert!(counts.iter().all(|[got, lost]| *got > 3 && *lost <= 1), "{counts:?}");
    assert_eq!(late, 0, "{counts:?}");
    // When all begin at once, neither b nor c has shown anything yet, and there is no other path.
    assert!(given.load(Ordering::Relaxed) <= CLIENTS, "{given:?}");
}

#[test]
fn where_the_exit_cannot_be_asked_a_node_that_makes_up_ends_is_left_too() {
    let (overlay, given) = beside_a_sick_one(Sickness::Ends, Some(closed_port()), "interactive");
    let (counts, late) = clients(&overlay, echo(), Duration::from_secs(6));
    assert!(counts.iter().all(|[got, lost]| *got > 3 && *lost <= 2), "{counts:?}");
    assert!(late <= 1, "{late} of {counts:?}");
    assert!(given.load(Ordering::Relaxed) <= 2 * CLIENTS, "{given:?}");
}

#[test]
fn where_nothing_is_known_yet_one_stream_tries_a_silent_node_and_others_go_elsewhere() {
    let (address, given) = sick(Sickness::Invents);
    let route = "class = \"bulk\"\nmost_relays = 1";
    let is_cut = |at, to| ((at, to) == (0, 3)).then(closed_port);
    let overlay = Overlay::with_impostor(4, is_cut, route, address);
    let (overlay, echo) = (&overlay, echo());
    let served = std::thread::scope(|scope| {
        // One of the first two goes over b, and waits in vain meanwhile.
        let first = scope.spawn(move || is_served(overlay, echo));
        wait_until("b is given a stream, or the first is served", || {
            given.load(Ordering::Relaxed) > 0 || first.is_finished()
        });
        let all: Vec<_> = (0..2 * CLIENTS).map(|_| scope.spawn(move || is_served(overlay, echo))).collect();
        all.into_iter().map(|one| one.join().unwrap()).filter(|is_served| *is_served).count()
    });
    assert!(served == 2 * CLIENTS && given.load(Ordering::Relaxed) <= 1, "{served}, {given:?}");
}

#[test]
fn a_node_that_answers_questions_and_opens_nothing_costs_time_and_no_stream() {
    let begun = Instant::now();
    let (overlay, given) = beside_a_sick_one(Sickness::Mute, None, "interactive");
    // The stream that it was given took the next path, and did not wait for a quarter of `limits.connect`.
    assert!(begun.elapsed() < CONNECT / 4, "{:?}", begun.elapsed());
    let (counts, _) = clients(&overlay, echo(), Duration::from_secs(4));
    assert!(counts.iter().all(|[got, lost]| *got > 2 && *lost == 0), "{counts:?}");
    assert!(given.load(Ordering::Relaxed) <= 2, "{given:?}");
}

#[test]
fn a_refusal_that_a_node_in_between_makes_up_is_not_told_to_the_client() {
    let (overlay, given) = beside_a_sick_one(Sickness::Refuses, None, "interactive");
    let (counts, _) = clients(&overlay, echo(), Duration::from_secs(5));
    assert!(counts.iter().all(|[got, lost]| *got > 2 && *lost == 0), "{counts:?}");
    assert!(given.load(Ordering::Relaxed) <= 2, "{given:?}");
    // One of the destination is, whoever says so.
    let refused =
        socks(overlay.nodes[0].as_ref().unwrap().address("socks").unwrap(), "127.0.0.1", closed_port().port());
    assert_eq!(refused.0, 5);
}

#[test]
fn a_node_that_resets_what_it_has_opened_gets_one_stream() {
    let (overlay, given) = beside_a_sick_one(Sickness::Resets, None, "interactive");
    let (counts, late) = clients(&overlay, echo(), Duration::from_secs(5));
    assert!(counts.iter().all(|[got, lost]| *got > 3 && *lost <= 1), "{counts:?}");
    assert_eq!(late, 0, "{counts:?}");
    assert!(given.load(Ordering::Relaxed) <= 2, "{given:?}");
}

#[test]
fn a_stream_whose_answers_stay_behind_sets_the_nodes_in_between_aside() {
    let shut = Arc::new(AtomicBool::new(false));
    let (far, near) = (spare_port(), spare_port());
    // b reaches d over a line on which soon nothing comes back; a reaches d late, so that it goes over b.
    let seen = |at, to| match (at, to) {
        (1, 2) => Some(near),
        (0, 2) => Some(far),
        _ => None,
    };
    let overlay = Overlay::new(3, seen, "class = \"interactive\"\nthrough = [\"@b\"]");
    let there = overlay.addresses[2];
    for (at, to) in
        [(near, line(there, Duration::ZERO, shut.clone())), (far, line(there, Duration::ZERO, Arc::default()))]
    {
        std::thread::spawn(move || {
            for stream in TcpListener::bind(at).unwrap().incoming().flatten() {
                let mut on = TcpStream::connect(to).unwrap();
                let (mut back, mut to) = (on.try_clone().unwrap(), stream.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut back, &mut to));
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut on));
            }
        });
    }
    let echo = echo();
    wait_until("a stream goes over b", || is_served(&overlay, echo));
    let mut stream = overlay.stream(echo).expect("a stream");
    let mut said =
        |bytes: usize| stream.write_all(&vec![7; bytes]).and_then(|()| stream.read_exact(&mut vec![0; bytes]));
    said(64).unwrap();
    let aside = || overlay.status(0).nodes.into_iter().find(|node| node.name == overlay.name(1)).unwrap().aside_s;
    assert_eq!(aside(), None);
    shut.store(true, Ordering::Relaxed);
    stream.write_all(&[7; 300]).unwrap();
    wait_until("b is set aside", || aside().is_some());
    shut.store(false, Ordering::Relaxed);
    stream.read_exact(&mut [0; 300]).unwrap();
    // It is the only one that may be passed: it is taken nevertheless.
    wait_until("streams go over b", || is_served(&overlay, echo));
}

#[test]
fn a_node_that_is_well_again_is_taken_when_the_other_fails() {
    let nowhere = closed_port();
    let mut overlay = Overlay::new(4, |at, to| ((at, to) == (0, 3)).then_some(nowhere), "most_relays = 1");
    let echo = echo();
    wait_until("streams go over b or c", || is_served(&overlay, echo));
    drop(overlay.nodes[1].take());
    (0..10).for_each(|_| _ = is_served(&overlay, echo));
    overlay.nodes[1] = Some(overlay.start(1, ""));
    wait_until("streams are served", || is_served(&overlay, echo));
    drop(overlay.nodes[2].take());
    let refused = (0..20).filter(|_| !is_served(&overlay, echo)).count();
    assert_eq!(refused, 0, "b is there");
}
