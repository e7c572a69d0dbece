//! Congestion controls that are not available, and what is used in their place. None of these tests needs a privilege.

mod common;

use common::*;
use ekiden_relay::Relay;

const LISTEN: &str = "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:0\"\n";

fn refused(text: &str) -> String {
    match Relay::start(config(text)) {
        Ok(_) => panic!("started: {text}"),
        Err(error) => {
            assert!(error.is_lack(), "{error}");
            error.to_string()
        }
    }
}

#[test]
fn one_that_is_not_there_is_refused_with_its_place_and_what_there_is() {
    let own = refused(&format!("{LISTEN}tcp = {{ congestion = \"nosuch\" }}"));
    assert!(
        own.starts_with("[listen.socks]: congestion 'nosuch' is not available: this kernel does not have it"),
        "{own}"
    );
    assert!(own.contains("available: ") && own.contains("reno") && !own.contains("did you mean"), "{own}");
    let inherited = refused(&format!("[tcp]\ncongestion = \"nosuch\"\n{LISTEN}"));
    assert!(inherited.starts_with("[tcp]: "), "{inherited}");
}

#[test]
fn a_bare_name_is_answered_with_the_full_one() {
    let error = refused(&format!("[tcp]\ncongestion = \"ghstcp\"\n{LISTEN}"));
    assert!(error.ends_with("; did you mean ekiden_ghstcp?"), "{error}");
}

#[test]
fn the_fallback_is_inherited_and_used() {
    let text = format!("[tcp]\ncongestion_fallback = \"reno\"\n{LISTEN}tcp = {{ congestion = \"nosuch\" }}");
    let relay = node(&text);
    let (host, address) = listener();
    let (code, _client) = socks(relay.address("socks").unwrap(), "127.0.0.1", address.port());
    assert_eq!(code, 0);
    drop(host);
}

#[test]
fn a_fallback_that_cannot_be_had_either_is_refused() {
    let error = refused(&format!("[tcp]\ncongestion = \"nosuch\"\ncongestion_fallback = \"nonesuch\"\n{LISTEN}"));
    assert!(error.starts_with("[tcp]: congestion_fallback 'nonesuch' is not available"), "{error}");
}

#[test]
fn a_reload_that_names_one_that_is_not_there_changes_nothing() {
    let mut relay = node(LISTEN);
    let before = relay.address("socks");
    let error = relay.reload(config(&format!("[tcp]\ncongestion = \"nosuch\"\n{LISTEN}"))).unwrap_err();
    assert!(error.to_string().contains("'nosuch' is not available"), "{error}");
    assert_eq!(relay.address("socks"), before);
}
