//! Which modules a crate has, and what they use of each other: what `circles.rs` and `order.rs` look at.
//!
//! The modules that stand in one module together are its rooms, each with all that stands inside it: those of a crate, and
//! those of every folder in it. An edge is a use of a name of another room. A name that the parent's own file takes from a
//! room counts as that room's, whoever has it from the parent.
//!
//! Not looked at: tests; what a module and its parent's own file use of each other, for a parent uses its children, and what
//! they share stands in it; methods, whose types may stand anywhere. A module that is imported whole hides what is used of
//! it: `circles.rs` refuses those.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names from the root of a crate to a module, or to something in it.
pub type Names = Vec<String>;

/// A crate's modules and the text of each one's own file.
pub type Modules = BTreeMap<Names, String>;

/// The rooms of a module, and of which others each uses names.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// A path as names.
pub fn names(path: &str) -> Names {
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The modules below the source folder of a crate.
pub fn of_crate(folder: &Path) -> Modules {
    let mut modules = Modules::new();
    read(folder, &[], &mut modules);
    modules
}

/// The modules of a crate that is written down in a test: their paths and texts.
pub fn of_texts(modules: &[(&str, &str)]) -> Modules {
    modules.iter().map(|(path, text)| (names(path), without_tests(text))).collect()
}

/// The modules below `folder`, which belongs to `parent`.
fn read(folder: &Path, parent: &[String], into: &mut Modules) {
    for path in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_root = parent.is_empty() && ["lib", "main"].contains(&stem.as_str());
        let module = if is_root { Names::new() } else { [parent, &[stem]].concat() };
        if path.is_dir() {
            read(&path, &module, into);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && module.last().is_none_or(|name| name != "tests")
        {
            into.insert(module, without_tests(&std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// What the rooms of `parent` use of each other.
pub fn uses(modules: &Modules, parent: &[String]) -> Uses {
    let inside =
        || modules.iter().filter_map(|(module, text)| Some((module.strip_prefix(parent)?.first()?, module, text)));
    let mut uses: Uses = inside().map(|(room, ..)| (room.clone(), BTreeSet::new())).collect();
    let mut passed_on = BTreeMap::new();
    for (path, name) in modules.get(parent).into_iter().flat_map(|text| imports(text)) {
        let path = resolve(parent, &path);
        if let Some([room, _, ..]) = path.strip_prefix(parent)
            && uses.contains_key(room)
        {
            passed_on.insert(name, room.clone());
        }
    }
    for (room, module, text) in inside() {
        for path in paths(text).iter().map(|path| resolve(module, path)) {
            let Some(name) = path.strip_prefix(parent).and_then(<[String]>::first) else { continue };
            let used = if uses.contains_key(name) { Some(name) } else { passed_on.get(name) };
            uses.get_mut(room).unwrap().extend(used.filter(|used| *used != room).cloned());
        }
    }
    uses
}

/// Where a path leads that stands in `module`.
pub fn resolve(module: &[String], path: &[String]) -> Names {
    let mut to = module.to_vec();
    for name in path {
        match name.as_str() {
            "crate" => to.clear(),
            "super" => drop(to.pop()),
            "self" => {}
            _ => to.push(name.clone()),
        }
    }
    to
}

/// Without comments to the end of a line, and without what is compiled for tests only.
fn without_tests(text: &str) -> String {
    let mut text: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    while let Some(start) = text.find("#[cfg(test)]") {
        let rest = &text[start..];
        let end = match (rest.find('{'), rest.find(';')) {
            (Some(brace), semicolon) if semicolon.is_none_or(|semicolon| brace < semicolon) => closing(rest, brace),
            (_, Some(semicolon)) => semicolon,
            (_, None) => rest.len() - 1,
        };
        text.replace_range(start..=start + end, "");
    }
    text
}

/// Where the brace at `open` is closed.
fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len() - 1
}

/// The paths in a text that begin at the crate or at the parent.
fn paths(text: &str) -> Vec<Names> {
    let begins = |at: &usize| {
        let inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        !text[..*at].ends_with(inside)
    };
    let roots = ["crate::", "super::"].into_iter().flat_map(|root| text.match_indices(root)).map(|(at, _)| at);
    roots.filter(begins).flat_map(|at| leaves(&text[at..])).map(|(path, _)| path).collect()
}

/// The paths that a text imports, and the name that each has there.
pub fn imports(text: &str) -> Vec<(Names, String)> {
    let uses =
        text.match_indices("use ").filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    uses.flat_map(|(at, word)| leaves(&text[at + word.len()..])).collect()
}

/// The path at the beginning of a text, or if it ends in a list in braces, those in the list; and the name that each is
/// imported as.
fn leaves(text: &str) -> Vec<(Names, String)> {
    let mut found = Vec::new();
    tree(text, Names::new(), &mut found);
    found
}

/// Returns what follows.
fn tree<'a>(text: &'a str, mut path: Names, into: &mut Vec<(Names, String)>) -> &'a str {
    let mut rest = text.trim_start();
    loop {
        if let Some(mut list) = rest.strip_prefix('{') {
            while !list.is_empty() && !list.starts_with('}') {
                list = tree(list, path.clone(), into);
                list = list.trim_start_matches(|c| c != ',' && c != '}');
                list = list.strip_prefix(',').unwrap_or(list).trim_start();
            }
            return list.strip_prefix('}').unwrap_or(list);
        }
        let (name, after) = rest.strip_prefix('*').map_or_else(|| word(rest), |after| ("*", after));
        path.extend(Some(name.to_owned()).filter(|name| !name.is_empty()));
        rest = after;
        match rest.strip_prefix("::") {
            Some(deeper) if !name.is_empty() => rest = deeper,
            _ => break,
        }
    }
    let renamed = rest.trim_start().strip_prefix("as ").map(|name| word(name).0.to_owned());
    let name = renamed.or_else(|| path.iter().rfind(|name| *name != "self").cloned()).unwrap_or_default();
    into.push((path, name));
    rest
}

/// A text's first word, and what follows.
fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len()))
}
