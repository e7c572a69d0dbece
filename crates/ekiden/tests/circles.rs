//! No modules of a crate, and of none of its folders, use each other in a circle; a module and its children may. Every file is a module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::modules::{Modules, Names, Uses, of_crate, of_texts, resolve, uses};

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let mut found = BTreeSet::new();
    for (name, modules) in crates() {
        found.extend(all_circles(&modules).into_iter().map(|(parent, circle)| {
            let parent = [vec![name.clone()], parent].concat();
            (parent.join("::"), circle)
        }));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_module_is_imported_whole() {
    let mut found = Vec::new();
    for (name, modules) in crates() {
        found.extend(imported_whole(&modules).into_iter().map(|import| format!("{name}::{import}")));
    }
    assert!(found.is_empty(), "these hide what they use:\n{}", found.join("\n"));
}

#[test]
fn every_file_is_a_module() {
    let mut found = Vec::new();
    for (name, modules) in crates() {
        found.extend(left_over(&modules).into_iter().map(|module| format!("{name}::{module}")));
    }
    assert!(found.is_empty(), "files that nothing compiles:\n{}", found.join("\n"));
}

#[test]
fn files_that_no_module_names_are_seen() {
    let modules =
        of_texts(&[("", "mod a;"), ("a", "#[cfg(test)] mod b; mod e {}"), ("a::b", ""), ("a::c", ""), ("d", "")]);
    assert_eq!(left_over(&modules), ["a::c", "d"]);
}

#[test]
fn circles_are_seen() {
    let found = circles_of(&[
        ("a", "use crate::b::B;"),
        ("b", "use crate::{d, c::{self, C}};\n#[cfg(test)]\nmod tests { use crate::a::A; }"),
        ("c", "fn f() { super::e::g() } // crate::a"),
        ("d", "#[cfg(test)]\nmod tests;\n"),
        ("e", "fn g() { crate::b::f() }"),
    ]);
    assert_eq!(found, [(String::new(), set(&["b", "c", "e"]))]);
}

#[test]
fn circles_inside_a_room_are_seen() {
    let found = circles_of(&[
        ("a", "mod b; mod c; mod d; fn f() { b::f() }"),
        ("a::b", "use super::{Own, c::C};"),
        ("a::c", "use super::d;"),
        ("a::c::x", "fn f() { super::super::b::f() }"),
        ("a::c::y", "use crate::a::{d::D, c::x};"),
        ("a::d", "use crate::e::E;"),
        ("e", ""),
    ]);
    assert_eq!(found, [("a".to_owned(), set(&["b", "c"]))]);
}

#[test]
fn a_name_that_the_parent_passes_on_is_of_its_room() {
    let found = circles_of(&[
        ("", "mod a; mod b; mod c;\npub use a::{deep::A, Other as Another};\nuse crate::b::B;\npub struct Own;"),
        ("a", "mod deep;"),
        ("a::deep", "fn f(b: crate::B) {}"),
        ("b", "use crate::{Another, Own};"),
        ("c", "use crate::{A, B};"),
    ]);
    assert_eq!(found, [(String::new(), set(&["a", "b"]))]);
}

#[test]
fn imports_of_whole_modules_are_seen() {
    let found = imported_whole(&of_texts(&[
        ("", "mod a; mod b; pub use a::*;"),
        ("a", "use crate::*;\nuse Kind::*;\nuse std::fmt::*;"),
        ("a::b", "use super::{self as up, A};\nuse super::super as top;\nfn f() { use crate as root; }"),
        ("a::c", "use crate::{a, b::{self, *}};\npub(in crate::a) struct C;"),
        ("b", "use crate::a::{self, A};\n#[cfg(test)]\nmod tests { use super::*; }"),
    ]));
    let expected = [
        ": use a::*",
        "a: use crate::*",
        "a::b: use super::self",
        "a::b: use super::super",
        "a::b: use crate",
        "a::c: use crate::a",
        "a::c: use crate::b::*",
    ];
    assert_eq!(found.iter().collect::<BTreeSet<_>>(), expected.map(str::to_owned).iter().collect::<BTreeSet<_>>());
}

/// Where modules of the crate are imported whole, so that what is used of them cannot be read: by `*`, by the name of a
/// module around the one that imports, or by another name for the crate or the parent.
fn imported_whole(modules: &Modules) -> Vec<String> {
    let mut found = Vec::new();
    for (module, own) in modules {
        for (path, _) in &own.imports {
            let to = resolve(module, path);
            let is_glob = to.split_last().is_some_and(|(last, whole)| last == "*" && modules.contains_key(whole));
            let from_crate = path.first().is_some_and(|first| ["crate", "super", "self"].contains(&first.as_str()));
            if is_glob || from_crate && module.starts_with(&to) {
                found.push(format!("{}: use {}", module.join("::"), path.join("::")));
            }
        }
    }
    found
}

/// Files that their parent does not name.
fn left_over(modules: &Modules) -> Vec<String> {
    let is_named = |module: &[String]| match module.split_last() {
        Some((name, parent)) => modules.get(parent).is_some_and(|parent| parent.declared.contains(name)),
        None => true,
    };
    modules.keys().filter(|module| !is_named(module)).map(|module| module.join("::")).collect()
}

/// Every crate's name and modules.
fn crates() -> Vec<(String, Modules)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
    folders
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), of_crate(&path.join("src"))))
        .collect()
}

fn set(rooms: &[&str]) -> BTreeSet<String> {
    rooms.iter().map(ToString::to_string).collect()
}

fn circles_of(modules: &[(&str, &str)]) -> Vec<(String, BTreeSet<String>)> {
    all_circles(&of_texts(modules)).into_iter().map(|(parent, circle)| (parent.join("::"), circle)).collect()
}

/// The circles among the rooms of every module.
fn all_circles(modules: &Modules) -> Vec<(Names, BTreeSet<String>)> {
    let parents: BTreeSet<&[String]> = modules.keys().filter_map(|module| Some(module.split_last()?.1)).collect();
    let of = |parent: &[String]| {
        let circles = circles(&uses(modules, parent));
        circles.into_iter().map(|circle| (parent.to_vec(), circle)).collect::<Vec<_>>()
    };
    parents.into_iter().flat_map(of).collect()
}

/// Rooms each of which is used, by others if not directly, by all others of its circle.
fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(room) = next.pop() {
            next.extend(uses[room].iter().filter(|other| seen.insert((*other).clone())));
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|room| (room, reached(room))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (room, reached) in &all {
        let circle: BTreeSet<String> = reached.iter().filter(|other| all[other].contains(*room)).cloned().collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}
