//! The rooms of the relay stand in an order: each uses those below it and none above. ARCHITECTURE.md has the list.

use std::collections::BTreeSet;
use std::path::Path;

use crate::modules::{Modules, of_crate, of_texts, uses};

#[test]
fn the_relays_rooms_use_only_those_below_them() {
    let modules = of_crate(&root().join("crates/relay/src"));
    let order = rooms();
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    let there = uses(&modules, &[]).into_keys().collect::<BTreeSet<_>>();
    let listed = order.iter().map(ToString::to_string).collect();
    assert_eq!(there, listed, "ARCHITECTURE.md lists the rooms of crates/relay/src/lib.rs");
    let upward = upward(&modules, &order);
    assert!(upward.is_empty(), "uses of a room above: {upward:#?}");
}

#[test]
fn uses_of_a_room_above_are_seen_however_they_are_written() {
    let seen = |below: &str| {
        let lib = "mod stream; mod config; pub use stream::framing::Framing as Passed;";
        let modules =
            [("", lib), ("stream", "mod framing; use crate::config::Config;"), ("config", ""), ("config::key", below)];
        upward(&of_texts(&modules), &["stream", "config"])
    };
    for up in [
        "use crate::stream::framing::Framing;",
        "use crate::{stream::framing::Framing};",
        "use crate::{config::Config, stream::{self, framing::Framing}};",
        "use super::super::stream::framing::Framing;",
        "use crate::Passed;",
        "fn f() { super::super::stream::f() }",
    ] {
        assert_eq!(seen(up), ["config uses stream"], "{up}");
    }
    for fine in
        ["use crate::config::Config;", "use super::Config; // crate::stream", "#[cfg(test)]\nuse crate::stream::S;"]
    {
        assert!(seen(fine).is_empty(), "{fine}");
    }
}

/// What the rooms of a crate, the uppermost first, use of those above them.
fn upward(modules: &Modules, order: &[&str]) -> Vec<String> {
    let place = |room: &str| order.iter().position(|listed| *listed == room);
    let mut found = Vec::new();
    for (room, used) in uses(modules, &[]) {
        let above = used.into_iter().filter(|used| place(used) < place(&room));
        found.extend(above.map(|above| format!("{room} uses {above}")));
    }
    found
}

/// The first column of the table behind "The rooms of `relay`".
fn rooms() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, table) = text.split_once("The rooms of `relay`").unwrap();
    let rows =
        table.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
