//! What a connection counts for before it has proven a key, and afterwards.

use ekiden_keys::generate_shared;
use tokio::runtime::Handle;

use super::*;
use crate::config::Config;

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
    for _ in 0..8 * HANDSHAKES.rate {
        let mut permit = accepted().expect("those before have proven a key");
        permit.is_proven();
        all.push(permit);
    }
    assert_eq!(node.unproven.load(Ordering::Relaxed), 0);
    let mut strangers: Vec<Permit> = (0..HANDSHAKES.open).map(|_| accepted().unwrap()).collect();
    assert!(accepted().is_none());
    strangers[0].is_proven();
    assert!(accepted().is_some());
}
