//! What a connection counts for before it has proven a key, and afterwards.

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ekiden_keys::generate_shared;
use ekiden_transport::UNPROVEN_BYTES;
use tokio::runtime::Handle;

use super::*;
use crate::config::Config;

fn is_evicted(permit: &Permit) -> bool {
    pin!(permit.evicted()).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

#[tokio::test]
async fn a_connection_that_has_proven_a_key_counts_for_its_address_no_more_and_never_did() {
    let folder = tempfile::tempdir().unwrap();
    generate_shared(&folder.path().join("key")).unwrap();
    let text = "[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\nplain_key_file = \"key\"\n\
        [limits]\nclient_connections = 8\nclient_rate = 8\n";
    let config = Arc::new(Config::parse(text, &folder.path().join("node.toml")).unwrap());
    let node = Arc::new(Node::new(config.clone()).unwrap());
    let worker = Worker { handle: Handle::current(), load: Arc::default() };
    let from = "192.0.2.1:40000".parse().unwrap();
    let accepted = || Some(Permit::new(&node, &worker, Claim::of(&node, &config.listeners["leg"], from)?));
    // Far more than an address may open without a key, at one time and in a second.
    let mut all = Vec::new();
    for _ in 0..8 * HANDSHAKES_RATE {
        let mut permit = accepted().expect("those before have proven a key");
        permit.is_proven();
        all.push(permit);
    }
    assert_eq!(node.strangers.count(), 0);
    let mut strangers: Vec<Permit> = (0..256).map(|_| accepted().unwrap()).collect();
    // The next one comes in, and the oldest goes.
    strangers.push(accepted().unwrap());
    assert!(is_evicted(&strangers[0]));
    assert!(!is_evicted(&strangers[1]) && node.strangers.count() == 256);
    // One that has proven a key is nobody's to take.
    strangers[1].is_proven();
    strangers.push(accepted().unwrap());
    assert!(!is_evicted(&strangers[1]));
    assert!(!is_evicted(&strangers[2]) && node.strangers.count() == 256);
}

#[tokio::test]
async fn strangers_have_a_quarter_of_the_memory_at_most() {
    let text = "[limits]\nmemory = \"1MiB\"\n";
    let node = Node::new(Arc::new(Config::parse(text, Path::new("node.toml")).unwrap())).unwrap();
    assert_eq!(node.most_strangers().all * UNPROVEN_BYTES, 256 << 10);
}
