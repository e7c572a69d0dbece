//! Exits that others stand in for.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::overlay::{Overlay, here};
use crate::common::sick::{Sickness, is_served, sick, sick_and_heard};
use crate::common::*;
use ekiden_net::steer::ignore_new;
use ekiden_relay::{Config, LastStatus, LegStatus, Relay};

/// The same overlay, in which the second node is the nearest to the streams' destinations, and the last one stands in for it.
fn with_second_nearest(overlay: Overlay, route: &str) -> Overlay {
    with_more(overlay, here, route, &[(1, "near = [\"127.0.0.1/32\"]\n")])
}

/// The same overlay, in which the first node sees the others as `seen` says, and has `more` of these members.
fn with_more(
    mut overlay: Overlay,
    seen: impl Fn(usize, usize) -> Option<SocketAddr>,
    route: &str,
    more: &[(usize, &str)],
) -> Overlay {
    let mut members = overlay.members(|other| seen(0, other));
    for (number, more) in more {
        let own = format!("fingerprint = \"{}\"\n", overlay.prints[*number]);
        members = members.replace(&own, &format!("{own}{more}"));
    }
    std::fs::write(overlay.folder.join("0.members"), members).unwrap();
    let config = overlay.config(0, route);
    overlay.nodes[0].as_mut().unwrap().reload(config).unwrap();
    overlay
}

/// The reply to a stream to a destination that says nothing.
fn asks_for_silence(overlay: &Overlay) -> u8 {
    let (silent, to) = listener();
    ignore_new(&silent).unwrap();
    reply(overlay, to)
}

/// The reply to a stream.
fn reply(overlay: &Overlay, to: SocketAddr) -> u8 {
    socks(overlay.nodes[0].as_ref().unwrap().address("socks").unwrap(), &to.ip().to_string(), to.port()).0
}

/// Whether the second node comes last for all destinations.
fn second_is_lost(overlay: &Overlay) -> bool {
    overlay.status(0).last.iter().any(|last| last.exit == overlay.name(1) && last.to.is_none())
}

#[test]
fn an_exit_that_answers_questions_and_opens_nothing_is_stood_in_for() {
    let (address, given) = sick(Sickness::Mute);
    let route = "class = \"interactive\"\n[limits]\nconnect = \"4s\"";
    let overlay = with_second_nearest(Overlay::with_impostor(3, here, route, address), route);
    for destination in 0..2 {
        let (echo, before) = (echo(), given.load(Ordering::Relaxed));
        assert!(is_served(&overlay, echo), "the first to destination {destination}");
        let first = given.load(Ordering::Relaxed);
        // It may be asked to pass the stream on to the one that stands in, too.
        assert!((1..=2).contains(&(first - before)), "destination {destination}: {before}, {first}");
        // The next ones do not wait for it.
        assert!((0..4).all(|_| is_served(&overlay, echo)), "destination {destination}");
        assert_eq!(given.load(Ordering::Relaxed), first, "destination {destination}");
        let is_it = |last: &LastStatus| last.exit == overlay.name(1) && last.to == Some(echo.to_string());
        assert!(overlay.status(0).last.iter().any(is_it), "destination {destination}");
    }
    // A destination that refuses the one that stands in refuses.
    assert_eq!(reply(&overlay, closed_port()), 5);
}

#[test]
fn what_a_node_that_stands_in_forbids_is_told_to_nobody() {
    let route = "class = \"interactive\"\n[limits]\nconnect = \"4s\"";
    let mut overlay = with_second_nearest(Overlay::new(3, here, route), route);
    // c connects to no private addresses.
    drop(overlay.nodes[2].take());
    let text = overlay.text(2, "").replace("allow = [\"127.0.0.0/8\"]", "");
    overlay.nodes[2] = Some(Relay::start(Config::parse(&text, &overlay.folder.join("node.toml")).unwrap()).unwrap());
    let echo = echo();
    assert!(is_served(&overlay, echo));
    // b is asked, says nothing of destinations that are down, and is well.
    let codes = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| asks_for_silence(&overlay))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(codes, [6; 4]);
    assert!((0..4).all(|_| is_served(&overlay, echo)));
}

#[test]
fn a_node_that_does_not_take_the_key_is_stood_in_for() {
    let route = "most_relays = 0";
    let mut overlay = with_second_nearest(Overlay::new(3, here, route), route);
    // b knows c and itself.
    drop(overlay.nodes[1].take());
    let members = overlay.members(|_| None);
    let from = members.find(&format!("[node.{}]", overlay.name(1))).unwrap();
    std::fs::write(overlay.folder.join("1.members"), &members[from..]).unwrap();
    overlay.nodes[1] = Some(overlay.start(1, ""));
    let echo = echo();
    assert!((0..3).all(|_| is_served(&overlay, echo)));
}

#[test]
fn a_destination_that_does_not_answer_is_told_in_time_and_demotes_no_exit() {
    let route = "class = \"interactive\"\n[limits]\nconnect = \"2s\"";
    let overlay = with_second_nearest(Overlay::new(3, here, route), route);
    let echo = echo();
    assert!(is_served(&overlay, echo));
    let begun = Instant::now();
    assert_eq!(asks_for_silence(&overlay), 6);
    // Twice `limits.connect` on the only path, a quarter more for the one that stands in, and room for a late host.
    assert!(begun.elapsed() < 5 * Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(!second_is_lost(&overlay) && is_served(&overlay, echo));
}

#[test]
fn a_destination_that_does_not_answer_demotes_no_exit_that_is_reached_over_others() {
    let route = "class = \"interactive\"\n[limits]\nconnect = \"2s\"";
    let seen = |at, to| ((at, to) == (0, 1)).then(closed_port);
    let overlay = with_more(Overlay::new(3, seen, route), seen, route, &[(1, "near = [\"127.0.0.1/32\"]\n")]);
    let echo = echo();
    let is_leg = |leg: &LegStatus| leg.from == overlay.name(2) && leg.to == overlay.name(1);
    wait_until("the nearest is known to be reached by the other", || {
        is_served(&overlay, echo) && overlay.status(0).legs.iter().any(is_leg)
    });
    assert_eq!(asks_for_silence(&overlay), 6);
    assert!(!second_is_lost(&overlay) && is_served(&overlay, echo));
}

#[test]
fn what_a_node_in_between_says_of_a_destination_keeps_nobody_from_standing_in() {
    let (address, given) = sick(Sickness::Refuses);
    let route = "class = \"interactive\"";
    let overlay = Overlay::with_impostor(4, here, route, address);
    let mut overlay = with_more(overlay, here, route, &[(2, "near = [\"127.0.0.1/32\"]\n")]);
    drop(overlay.nodes[2].take());
    let echo = echo();
    wait_until("b is asked to pass a stream on", || {
        assert!(is_served(&overlay, echo), "{given:?}");
        given.load(Ordering::Relaxed) > 0
    });
}

#[test]
fn where_one_that_stands_in_refuses_the_nearest_is_asked_again() {
    let (address, given) = sick(Sickness::Refuses);
    let route = "class = \"interactive\"";
    let overlay = Overlay::with_impostor(3, here, route, address);
    let mut overlay = with_more(overlay, here, route, &[(1, "near = [\"0.0.0.0/0\"]\nrelays = false\n")]);
    drop(overlay.nodes[2].take());
    let echo = echo();
    assert!(!is_served(&overlay, echo) && given.load(Ordering::Relaxed) == 1, "{given:?}");
    overlay.nodes[2] = Some(overlay.start(2, ""));
    assert!((0..3).all(|_| is_served(&overlay, echo)));
}

#[test]
fn what_a_node_in_between_says_of_one_that_stands_in_ends_nothing() {
    let (address, given) = sick(Sickness::Refuses);
    let route = "class = \"interactive\"";
    let overlay = Overlay::with_impostor(5, here, route, address);
    let near = [(2, "near = [\"127.0.0.1/32\"]\n"), (3, "near = [\"127.0.0.0/16\"]\n")];
    let mut overlay = with_more(overlay, here, route, &near);
    drop(overlay.nodes[2].take());
    drop(overlay.nodes[3].take());
    let echo = echo();
    wait_until("b is asked to pass streams on to both", || {
        assert!(is_served(&overlay, echo), "{given:?}");
        given.load(Ordering::Relaxed) > 1
    });
}

#[test]
fn a_refusal_by_the_nearest_over_one_node_is_told_although_another_says_nothing() {
    let (address, _) = sick(Sickness::Mute);
    let route = "class = \"interactive\"\n[limits]\nconnect = \"8s\"";
    let seen = |at, to| ((at, to) == (0, 3)).then(closed_port);
    let overlay = Overlay::with_impostor(4, seen, route, address);
    let overlay = with_more(overlay, seen, route, &[(1, "near = [\"0.0.0.0/0\"]\nrelays = false\n")]);
    let echo = echo();
    wait_until("streams go over c", || is_served(&overlay, echo));
    let begun = Instant::now();
    assert_eq!(reply(&overlay, closed_port()), 5);
    // Three eighths of `limits.connect` for the one that says nothing, and room for a late host.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn what_may_arrive_once_is_not_given_to_an_exit_that_has_little_time() {
    let (address, given, heard) = sick_and_heard(Sickness::Mute);
    let early = "[listen.early]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\nreply = \"early\"";
    let route = format!("class = \"interactive\"\nmost_relays = 0\n[limits]\nconnect = \"4s\"\n{early}");
    let overlay = Overlay::with_impostor(3, here, &route, address);
    let overlay = with_more(overlay, here, &route, &[(1, "near = [\"127.0.0.1/32\"]\nrelays = false\n")]);
    let (host, destination) = listener();
    let host = std::thread::spawn(move || {
        let mut stream = accept(&host);
        let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    });
    // The nearest says nothing of this destination, and comes last there. Then the destination goes.
    assert!(is_served(&overlay, destination));
    host.join().unwrap();
    let before = given.load(Ordering::Relaxed);
    let early = overlay.nodes[0].as_ref().unwrap().address("early").unwrap();
    let (_, mut stream) = socks(early, "127.0.0.1", destination.port());
    stream.write_all(&[7; 1000]).unwrap();
    let _ = stream.read(&mut [0]);
    assert_eq!((given.load(Ordering::Relaxed), heard.load(Ordering::Relaxed)), (before + 1, 0));
}

#[test]
fn an_exit_that_nobody_reaches_comes_last_on_routes_that_choose_their_paths_too() {
    let (counter, address) = listener();
    let dialled = Arc::new(AtomicUsize::new(0));
    let count = dialled.clone();
    // It ends each connection at once.
    std::thread::spawn(move || counter.incoming().for_each(|_| _ = count.fetch_add(1, Ordering::Relaxed)));
    let route = "class = \"interactive\"\nmost_relays = 0";
    let overlay = with_second_nearest(Overlay::with_impostor(3, here, route, address), route);
    wait_until("the nearest is dialled", || is_served(&overlay, echo()) && dialled.load(Ordering::Relaxed) > 0);
    wait_until("it comes last", || is_served(&overlay, echo()) && second_is_lost(&overlay));
    let before = dialled.load(Ordering::Relaxed);
    assert!((0..12).all(|_| is_served(&overlay, echo())));
    // Questions go there yet.
    let after = dialled.load(Ordering::Relaxed);
    assert!(after < before + 8, "{before}, {after}");
}

#[test]
fn an_exit_that_is_known_to_hang_costs_no_time_at_each_destination() {
    let (address, _) = sick(Sickness::Hung);
    let route = "class = \"interactive\"\n[limits]\nconnect = \"40s\"";
    let overlay = with_second_nearest(Overlay::with_impostor(3, here, route, address), route);
    wait_until("the leg to it has failed", || is_served(&overlay, echo()));
    let begun = Instant::now();
    assert!((0..4).all(|_| is_served(&overlay, echo())));
    // Three eighths of `limits.connect` are what one costs that is silent.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn in_a_class_with_turns_too_an_exit_that_is_known_to_hang_costs_no_time() {
    let (address, _) = sick(Sickness::Hung);
    let route = "class = \"interactive\"\n[limits]\nconnect = \"40s\"\n[class.interactive]\nstreams = 8";
    let overlay = with_second_nearest(Overlay::with_impostor(3, here, route, address), route);
    // Over the one that hangs, as over all, a path to the other is looked for.
    let echo = echo();
    let of_other = SocketAddr::new("127.0.0.2".parse().unwrap(), echo.port());
    wait_until("the leg to it has failed", || {
        overlay.stream(of_other);
        overlay.status(0).failed.iter().any(|[from, _]| *from == overlay.name(0))
    });
    let begun = Instant::now();
    assert!((0..4).all(|_| is_served(&overlay, echo)));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
