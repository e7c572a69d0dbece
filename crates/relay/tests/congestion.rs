//! Congestion controls that are not available, and what is used in their place; what legs have by default. None of these tests needs a
//! privilege.

use std::collections::BTreeSet;

use crate::common::*;
use ekiden_net::sock_diag::SockDiag;
use ekiden_net::socket;
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

/// The congestion controls of the connections to a port, at both ends.
fn controls_at(port: u16) -> BTreeSet<String> {
    let mut kernel = SockDiag::open().unwrap();
    let both = [(port, 0), (0, port)].map(|(local, remote)| kernel.connections(local, remote).unwrap());
    assert!(both.iter().all(|end| !end.is_empty()), "no connection to port {port}");
    both.into_iter().flatten().map(|socket| socket.congestion).collect()
}

#[test]
fn legs_have_their_own_by_default_and_the_kernels_where_it_is_asked_for() {
    let server = late_echo();
    let (host, _) = listener();
    let kernels = socket::congestion(&host).unwrap();
    let (held, unavailable) = ekiden_bpf::named::register(&["ekiden_far".to_owned()], None, &[]);
    let of_legs = if unavailable.is_empty() { "ekiden_far" } else { &kernels };
    for (asked, of_legs) in [("", of_legs), ("[tcp]\ncongestion = \"kernel\"\n", &kernels)] {
        let chain = Chain::with(1, asked, asked);
        let _client = chain.socks(server);
        let leg = chain.nodes[0].address("leg").unwrap().port();
        assert_eq!(controls_at(leg), BTreeSet::from([of_legs.to_owned()]), "{asked}");
        assert_eq!(controls_at(server.port()), BTreeSet::from([kernels.clone()]), "{asked}");
        assert_eq!(controls_at(chain.address("socks").port()), BTreeSet::from([kernels.clone()]), "{asked}");
    }
    drop(held);
}

#[test]
fn what_a_leg_has_can_be_said_at_its_peer_and_its_listener() {
    let server = late_echo();
    let mode = Mode::Tls;
    let (own, nodes, known) = (mode.node("key"), mode.listener("key"), mode.peer("key"));
    let reno = "tcp = { congestion = \"reno\" }\n";
    let leg = node(&format!("{own}[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:0\"\n{nodes}{reno}"));
    let address = leg.address("leg").unwrap();
    let entry = node(&format!(
        "name = \"entry\"\n{own}{LISTEN}[peer.n1]\naddress = \"{address}\"\n{known}{reno}[[route]]\nto = [\"*\"]\nvia = [\"n1\"]\n"
    ));
    let (code, _client) = socks(entry.address("socks").unwrap(), "127.0.0.1", server.port());
    assert_eq!(code, 0);
    assert_eq!(controls_at(address.port()), BTreeSet::from(["reno".to_owned()]));
}
