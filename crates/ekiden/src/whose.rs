//! Which command a file is for.

use std::path::{Path, PathBuf};

use ekiden_files::FileKind;

/// A file was given to the command that it is not for.
#[derive(Debug, thiserror::Error)]
#[error("{}: this is {} of `ekiden {}`, not of `ekiden {given_to}`", file.display(), kind.what, kind.command)]
pub struct OthersFile {
    file: PathBuf,
    kind: Kind,
    given_to: &'static str,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// With its article.
    what: &'static str,
    /// The command that takes it.
    command: &'static str,
}

/// Records, by a field that only they have.
const RECORDS: [(&str, Kind); 4] = [
    ("path_format", Kind { what: "a path's record", command: "plan" }),
    ("measurement_format", Kind { what: "a measurement's record", command: "record export" }),
    ("watch_format", Kind { what: "a record", command: "measure watch" }),
    ("manifest", Kind { what: "a run's record", command: "record show" }),
];
/// Files in TOML, by a table that only they have.
const TABLES: [(&str, Kind); 6] = [
    ("listen", Kind { what: "a configuration", command: "proxy" }),
    ("route", Kind { what: "a configuration", command: "proxy" }),
    ("device", Kind { what: "a configuration", command: "tunnel" }),
    ("link", Kind { what: "a scenario", command: "lab run` and `ekiden simulate" }),
    ("flow", Kind { what: "a scenario", command: "lab run` and `ekiden simulate" }),
    ("target", Kind { what: "a configuration", command: "measure monitor" }),
];

/// Why `file`, given to the command `given_to`, cannot be used: `error`, unless it is another command's.
pub fn whose(file: &Path, given_to: &'static str, error: impl Into<anyhow::Error>) -> anyhow::Error {
    match kind(file).filter(|kind| !is_for(kind, given_to)) {
        Some(kind) => OthersFile { file: file.into(), kind, given_to }.into(),
        None => error.into(),
    }
}

/// `scenario` takes what `simulate` takes.
fn is_for(kind: &Kind, given_to: &str) -> bool {
    let given_to = if given_to == "scenario" { "simulate" } else { given_to };
    kind.command.split("` and `ekiden ").any(|command| command == given_to)
}

fn kind(file: &Path) -> Option<Kind> {
    let text = ekiden_files::read(file, FileKind::Record).ok()?;
    if let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(&text) {
        return RECORDS.iter().find(|(field, _)| fields.contains_key(*field)).map(|(_, kind)| *kind);
    }
    if ekiden_gateway::Config::is_in(file) {
        return Some(Kind { what: "a configuration", command: "gateway" });
    }
    // The name of a table's first part: of a file that may be wrong otherwise.
    let tables: Vec<_> = text.lines().filter_map(|line| first_part(line.trim())).collect();
    TABLES.iter().find(|(table, _)| tables.contains(table)).map(|(_, kind)| *kind)
}

fn first_part(line: &str) -> Option<&str> {
    let name = line.strip_prefix('[')?.trim_start_matches('[');
    name.split(['.', ']']).next().map(str::trim)
}
