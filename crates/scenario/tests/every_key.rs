//! Which keys the format has, by what the program says of one that it has not; and where each of them must stand.

use std::collections::BTreeSet;

use ekiden_scenario::Scenario;

/// No key has this name.
const UNKNOWN: &str = "no_such_key";

#[test]
fn every_key_stands_in_everything_toml() {
    let mut written = BTreeSet::new();
    paths("", &toml::Value::Table(include_str!("everything.toml").parse().unwrap()), &mut written);
    let missing: Vec<_> = keys().into_iter().filter(|key| !written.iter().any(|path| is_of(path, key))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_key_stands_on_the_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/scenario.md");
    let page = std::fs::read_to_string(page).unwrap();
    let is_told = |name: &str| ["`{}`", ".{}`", "{} = "].iter().any(|told| page.contains(&told.replace("{}", name)));
    let missing: Vec<_> = keys().into_iter().filter(|key| !is_told(key.rsplit('.').next().unwrap())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// All keys that hold a value, with `*` for a name that the file chooses.
fn keys() -> BTreeSet<String> {
    let (mut found, mut sections) = (BTreeSet::new(), vec![String::new()]);
    while let Some(section) = sections.pop() {
        for key in accepted(&format!("{section}{UNKNOWN} = 1")).unwrap_or_else(|| panic!("[{section}]")) {
            let path = format!("{section}{key}");
            let inner = [format!("{path}."), format!("{path}.*.")];
            let inner: Vec<_> =
                inner.into_iter().filter(|path| accepted(&format!("{path}{UNKNOWN} = 1")).is_some()).collect();
            if inner.is_empty() {
                let in_list = accepted(&format!("{path} = [{{ {UNKNOWN} = 1 }}]")).into_iter().flatten();
                found.extend(in_list.map(|key| format!("{path}.{key}")));
                found.insert(path);
            }
            sections.extend(inner);
        }
    }
    assert!(found.len() > 70, "{found:?}");
    found
}

/// The keys that are known where `line` has an unknown one; `None` if that is not what is wrong with it.
fn accepted(line: &str) -> Option<Vec<String>> {
    let error = Scenario::parse(&line.replace(".*.", ".any."), "test.toml").err()?.to_string();
    let (_, known) = error.split_once(&format!("unknown field `{UNKNOWN}`"))?;
    Some(known.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Whether a path of a file sets this key, in this section or in one that has the same keys: a link's direction, or a node's `tcp`.
fn is_of(path: &[String], key: &str) -> bool {
    let path: Vec<_> = shared(path.iter().map(String::as_str).collect());
    let key = shared(key.split('.').collect());
    path.len() == key.len() && path.iter().zip(key).all(|(part, name)| name == "*" || *part == name)
}

/// A key without what is before it in sections that have the same keys.
fn shared(mut path: Vec<&str>) -> Vec<&str> {
    if let Some(tcp) = path.iter().position(|&part| part == "tcp") {
        path.drain(..tcp);
    }
    path.retain(|part| !["forth", "back"].contains(part));
    path
}

/// Every table's and value's path.
fn paths(path: &str, value: &toml::Value, into: &mut BTreeSet<Vec<String>>) {
    into.insert(path.split('.').map(str::to_owned).collect());
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(name, value)| paths(&below(name), value, into)),
        toml::Value::Array(list) => list.iter().for_each(|value| paths(path, value, into)),
        _ => {}
    }
}
