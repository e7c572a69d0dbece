//! Which command a file is for.

use std::path::{Path, PathBuf};

use ekiden_files::FileKind;

/// A file was given to the command that it is not for.
#[derive(Debug, thiserror::Error)]
#[error("{}: this is {}, not of `ekiden {given_to}`{}", file.display(), kind.what, wanted(given_to))]
pub struct OthersFile {
    file: PathBuf,
    kind: Kind,
    given_to: &'static str,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// With the command that wrote it, or that it is written for.
    what: &'static str,
    /// The commands that take it.
    takers: &'static [&'static str],
}

const PROXY: Kind = Kind { what: "a configuration of `ekiden proxy`", takers: &["proxy"] };
const TUNNEL: Kind = Kind { what: "a configuration of `ekiden tunnel`", takers: &["tunnel"] };
const GATEWAY: Kind = Kind { what: "a configuration of `ekiden gateway`", takers: &["gateway"] };
const MONITOR: Kind = Kind { what: "a configuration of `ekiden measure monitor`", takers: &["measure monitor"] };
const SCENARIO: Kind =
    Kind { what: "a scenario of `ekiden lab run` and `ekiden simulate`", takers: &["lab run", "simulate", "scenario"] };

/// Records, by a field that only they have.
const RECORDS: [(&str, Kind); 4] = [
    ("path_format", Kind { what: "a record of `ekiden measure path` (`ekiden plan` takes it)", takers: &["plan"] }),
    (
        "measurement_format",
        Kind {
            what: "a record of `ekiden measure client` (`ekiden record export` takes it)",
            takers: &["record export"],
        },
    ),
    ("watch_format", Kind { what: "a record of `ekiden measure watch`", takers: &[] }),
    (
        "manifest",
        Kind {
            what: "a record of `ekiden lab run` or `ekiden simulate` (`ekiden record show` takes it)",
            takers: &["record show", "record export"],
        },
    ),
];
/// Files in TOML, by how the line of a table begins that only they have. A tunnel has `[listen]`, and a proxy `[listen.NAME]`.
const TABLES: [(&str, Kind); 6] = [
    ("device]", TUNNEL),
    ("listen.", PROXY),
    ("route", PROXY),
    ("link", SCENARIO),
    ("flow", SCENARIO),
    ("target", MONITOR),
];

/// Where a file comes from that this command takes.
fn wanted(given_to: &str) -> &'static str {
    if given_to == "plan" { "; a record of a path comes from `ekiden measure path --record`" } else { "" }
}

/// Why `file`, given to the command `given_to`, cannot be used: `error`, unless it is another command's.
pub fn whose(file: &Path, given_to: &'static str, error: impl Into<anyhow::Error>) -> anyhow::Error {
    match kind(file).filter(|kind| !kind.takers.contains(&given_to)) {
        Some(kind) => OthersFile { file: file.into(), kind, given_to }.into(),
        None => error.into(),
    }
}

fn kind(file: &Path) -> Option<Kind> {
    let text = ekiden_files::read(file, FileKind::Record).ok()?;
    if let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(&text) {
        return RECORDS.iter().find(|(field, _)| fields.contains_key(*field)).map(|(_, kind)| *kind);
    }
    if ekiden_gateway::Config::is_in(file) {
        return Some(GATEWAY);
    }
    // Line by line: the file may be wrong otherwise.
    let tables: Vec<_> = text.lines().filter_map(table).collect();
    TABLES.iter().find(|(begin, _)| tables.iter().any(|table| table.starts_with(begin))).map(|(_, kind)| *kind)
}

/// A line that begins a table, without blanks, and behind its brackets.
fn table(line: &str) -> Option<String> {
    let line = line.replace([' ', '\t'], "");
    Some(line.strip_prefix('[')?.trim_start_matches('[').to_owned())
}
