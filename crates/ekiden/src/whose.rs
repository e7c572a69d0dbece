//! Which command a file is for.

use std::io::Read;
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

const PROXY: Kind = Kind {
    what: "a configuration of `ekiden proxy`",
    takers: &["proxy", "doctor", "peer", "measure server", "measure client", "measure path", "overlay join -c"],
};
const TUNNEL: Kind = Kind { what: "a configuration of `ekiden tunnel`", takers: &["tunnel", "doctor"] };
const GATEWAY: Kind = Kind { what: "a configuration of `ekiden gateway`", takers: &["gateway"] };
const MONITOR: Kind = Kind { what: "a configuration of `ekiden measure monitor`", takers: &["measure monitor"] };
const SCENARIO: Kind =
    Kind { what: "a scenario of `ekiden lab run` and `ekiden simulate`", takers: &["lab run", "simulate", "scenario"] };
const MEMBERS: Kind = Kind {
    what: "a members file of an overlay (a configuration names it as `members_file`)",
    takers: &["overlay join"],
};
const SITES: Kind = Kind {
    what: "a file of sites of `ekiden overlay simulate` and `ekiden overlay scenario`",
    takers: &["overlay simulate", "overlay scenario"],
};
const PLAN: Kind = Kind { what: "a description of a path for `ekiden plan`", takers: &["plan"] };
const MEASURED_SWEEP: Kind = Kind {
    what: "a sweep of `ekiden measure client` (`ekiden record export` takes its records one by one)",
    takers: &[],
};

const MEASUREMENT: Kind =
    Kind { what: "a record of `ekiden measure client` (`ekiden record export` takes it)", takers: &["record export"] };

/// Records, by a field that only they have.
const RECORDS: [(&str, Kind); 4] = [
    ("path_format", Kind { what: "a record of `ekiden measure path` (`ekiden plan` takes it)", takers: &["plan"] }),
    ("measurement_format", MEASUREMENT),
    ("watch_format", Kind { what: "a record of `ekiden measure watch`", takers: &[] }),
    (
        "manifest",
        Kind {
            what: "a record of `ekiden lab run` or `ekiden simulate` (`ekiden record show` takes it)",
            takers: &["record show", "record export"],
        },
    ),
];
/// The number of bytes at the beginning of a file that are searched for its kind.
const LOOKED_AT: u64 = 1 << 20;
/// Files in TOML, by the beginning of a table's line that only they have, or that the kinds before them in this list do not
/// have. A tunnel has `[listen]`, and a proxy `[listen.NAME]`; a plan has `[site.NAME]`, and a file of sites `[[site]]`.
const TABLES: [(&str, Kind); 12] = [
    ("device]", TUNNEL),
    ("listen.", PROXY),
    ("route", PROXY),
    ("link", SCENARIO),
    ("flow", SCENARIO),
    ("target", MONITOR),
    ("site]", SITES),
    ("legs]", SITES),
    ("traffic]", SITES),
    ("site.", PLAN),
    ("node.", MEMBERS),
    ("peer.", PROXY),
];

/// Where a file that this command takes comes from.
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
    if file.is_dir() {
        let mut records = file.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_measured = |file: PathBuf| {
            file.extension().is_some_and(|extension| extension == "json")
                && kind(&file).is_some_and(|kind| kind == MEASUREMENT)
        };
        return records.any(is_measured).then_some(MEASURED_SWEEP);
    }
    let (text, is_whole) = beginning(file)?;
    if !is_whole && text.starts_with('{') {
        let has = |field: &str| text.contains(&format!("\"{field}\":"));
        return RECORDS.iter().find(|(field, _)| has(field)).map(|(_, kind)| *kind);
    }
    if let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(&text) {
        return RECORDS.iter().find(|(field, _)| fields.contains_key(*field)).map(|(_, kind)| *kind);
    }
    if ekiden_gateway::Config::is_in(file) {
        return Some(GATEWAY);
    }
    // Line by line: the file may be wrong otherwise.
    let tables: Vec<_> = text.lines().filter_map(table).collect();
    let of_table = TABLES.iter().find(|(begin, _)| tables.iter().any(|table| table.starts_with(begin)));
    // A plan may do without tables.
    let mut lines = text.lines().map(|line| line.replace([' ', '\t'], "")).take_while(|line| !line.starts_with('['));
    let is_plan = || lines.any(|line| line.starts_with("rtt=")).then_some(PLAN);
    of_table.map(|(_, kind)| *kind).or_else(is_plan)
}

/// What a file begins with, unless that is no text, and whether that is all of it.
fn beginning(file: &Path) -> Option<(String, bool)> {
    let mut bytes = Vec::new();
    let file = ekiden_files::open(file, FileKind::Record).ok()?.into_file();
    file.take(LOOKED_AT).read_to_end(&mut bytes).ok()?;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        // The last character may be cut off.
        Err(error) if bytes.len() as u64 == LOOKED_AT && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    Some((ekiden_files::without_mark(text).to_owned(), (bytes.len() as u64) < LOOKED_AT))
}

/// A line that begins a table, without blanks, and behind its brackets.
fn table(line: &str) -> Option<String> {
    let line = line.replace([' ', '\t'], "");
    Some(line.strip_prefix('[')?.trim_start_matches('[').to_owned())
}
