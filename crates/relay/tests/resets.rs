//! A reset by either host is a reset for the other: at any moment, through one, two and three nodes, and without its
//! having to read or write anything to learn of it.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::common::*;

/// What makes the kernel of the host that goes away reset its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// The program asks for it.
    Asked,
    /// The program ends, by itself or by SIGKILL, and has not read everything.
    Unread,
}

/// How the stream stands when it happens; "one" is who resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    OneHasEnded,
    OtherHasEnded,
    /// One has written until nothing more is taken: the other does not read.
    OneIsBlocked,
    OtherIsBlocked,
    BothAreBlocked,
    OtherHasEndedAndOneIsBlocked,
    OneHasEndedAndOtherIsBlocked,
}

use State::*;

const STATES: [State; 8] = [
    Open,
    OneHasEnded,
    OtherHasEnded,
    OneIsBlocked,
    OtherIsBlocked,
    BothAreBlocked,
    OtherHasEndedAndOneIsBlocked,
    OneHasEndedAndOtherIsBlocked,
];

/// How long a node may take nothing of what a host had said before its reset.
const STANDS: Duration = Duration::from_secs(64);

const BUFFERS: &str = "[tcp]\nsend_buffer = \"16KiB\"\nreceive_buffer = \"16KiB\"\n";

#[test]
fn a_reset_reaches_the_other_host_whatever_the_stream_does() {
    let ways = [(Mode::Plain, 0), (Mode::Plain, 1), (Mode::Tls, 1), (Mode::Plain, 2), (Mode::Tls, 2)];
    let chains = ways.iter().flat_map(|way| STATES.map(|state| (*way, state)));
    let chains = chains.flat_map(|(way, state)| [true, false].map(|client_resets| (way, state, client_resets)));
    let chains: Vec<_> = chains
        .map(|((mode, count), state, client_resets)| {
            std::thread::spawn(move || resets(mode, count, state, client_resets))
        })
        .collect();
    for chain in chains {
        chain.join().expect("what went wrong stands above");
    }
}

fn resets(mode: Mode, count: usize, state: State, client_resets: bool) {
    let chain = Chain::of(mode, count, BUFFERS, BUFFERS);
    std::thread::scope(|scope| {
        for death in [Death::Asked, Death::Unread] {
            let chain = &chain;
            scope.spawn(move || {
                resets_by(death, chain, state, client_resets, &format!("{mode:?}, {count} nodes behind the first"))
            });
        }
    });
}

fn resets_by(death: Death, chain: &Chain, state: State, client_resets: bool, way: &str) {
    let what = format!("{way}, {state:?}, {death:?}, by the client: {client_resets}");
    let (listener, address) = listener();
    let client = chain.socks(address);
    let server = accept(&listener);
    let (mut one, mut other) = if client_resets { (client, server) } else { (server, client) };
    other.write_all(b"not read").unwrap();
    one.peek(&mut [0]).unwrap();
    if matches!(state, OneHasEnded | OneHasEndedAndOtherIsBlocked) {
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "{what}");
    }
    if matches!(state, OtherHasEnded | OtherHasEndedAndOneIsBlocked) {
        other.shutdown(Shutdown::Write).unwrap();
        one.read_exact(&mut [0; 8]).unwrap();
        assert_eq!(one.read(&mut [0]).unwrap(), 0, "{what}");
        if death == Death::Unread {
            // Nothing can be unread.
            return;
        }
    }
    if matches!(state, OneIsBlocked | BothAreBlocked | OtherHasEndedAndOneIsBlocked) {
        fill(&mut one);
    }
    if matches!(state, OtherIsBlocked | BothAreBlocked | OneHasEndedAndOtherIsBlocked) {
        fill(&mut other);
    }
    match death {
        Death::Asked => reset(one),
        Death::Unread => drop(one),
    }
    let mut found = None;
    // Where the other does not read, the first node on the way waits for it.
    wait_for(STANDS * 2, &format!("the other hears of it: {what}"), || {
        found = other.take_error().unwrap();
        found.is_some()
    });
    // The kernel's word for a reset behind an end is EPIPE.
    let kind = found.unwrap().kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{what}: {kind}");
}
