//! What is wrong with a TOML file, in words for its author: the reader's own message names a type, this one the key.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use crate::nearest::suggestion;

/// What a reader of `text` says, in one line, with the key that it is about and what would be right. For an unknown key or word
/// that is the nearest known one, if any is near.
pub fn explain(text: &str, error: &Error) -> String {
    // What the file has written goes to a terminal.
    explained(text, error).replace(char::is_control, "\u{fffd}")
}

fn explained(text: &str, error: &Error) -> String {
    let message = error.message().trim().replace('\n', "; ");
    let Some(span) = error.span() else { return message };
    let (root, _) = DeTable::parse_recoverable(text);
    if message == "duplicate key" {
        return duplicate(text, root.get_ref(), &span);
    }
    let mut path = Vec::new();
    // What the file itself lacks is said to be at its beginning, where something else stands.
    if !span.is_empty() {
        find(root.get_ref(), &span, &mut path);
    }
    if let Some((field, expected)) = unknown(&message, "field") {
        // A table's head may name tables below the one that is unknown.
        let own = path.iter().rposition(|key| key == field);
        path.truncate(own.unwrap_or(path.len().saturating_sub(1)));
        let place = if path.is_empty() { String::new() } else { format!(" in {}", path.join(".")) };
        return format!("unknown field `{field}`{place}, {expected}{}", suggested(field, expected));
    }
    if let Some(key) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return match path.is_empty() {
            true => format!("missing field `{key}`: the file needs {key} = …"),
            false => format!("{}: missing field `{key}`: it needs {key} = …", path.join(".")),
        };
    }
    let written = as_written(&message, &path);
    let path = match path.is_empty() {
        // What is no TOML has no tables to look in.
        true => key_in_line(text, span.start).unwrap_or_default().to_owned(),
        false => path.join("."),
    };
    let suggestion = unknown(&message, "variant").map_or(String::new(), |(word, expected)| suggested(word, expected));
    let message = said_plainly(&message) + &written + &suggestion;
    if path.is_empty() { message } else { format!("{path}: {message}") }
}

/// The unknown name in a message of serde's, and what the message says of the known ones.
fn unknown<'a>(message: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    let rest = message.strip_prefix("unknown ")?.strip_prefix(kind)?.strip_prefix(" `")?;
    // The last: what someone has written may hold anything, a known name may not.
    let end = rest.rfind("`, expected ").or_else(|| rest.rfind("`, there are no "))?;
    Some((&rest[..end], &rest[end + "`, ".len()..]))
}

/// As [`suggestion`]. `expected` has the known names between backticks, as serde writes them.
fn suggested(wrong: &str, expected: &str) -> String {
    suggestion(wrong, expected.split('`').skip(1).step_by(2))
}

/// Adds to `path` the keys that lead to what is at `span`.
fn find(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) {
    for (key, value) in table {
        let depth = path.len();
        path.push(key.get_ref().to_string());
        let is_within = |place: Range<usize>| place.start <= span.start && span.end <= place.end;
        let is_here = within(value, span, path) || is_within(value.span()) || is_within(key.span());
        if is_here {
            return;
        }
        path.truncate(depth);
    }
}

/// Whether it is within `value` that something is at `span`: the span of a table is that of its head alone.
fn within(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    let depth = path.len();
    match value.get_ref() {
        DeValue::Table(table) => find(table, span, path),
        DeValue::Array(array) => {
            return array.iter().any(|item| within(item, span, path) || item.span() == *span);
        }
        _ => {}
    }
    path.len() > depth
}

/// The key at the beginning of the line of byte `at`.
fn key_in_line(text: &str, at: usize) -> Option<&str> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let (key, _) = text[start..].lines().next()?.split_once('=')?;
    let key = key.trim();
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '"');
    (!key.is_empty() && key.chars().all(is_key)).then_some(key)
}

/// The message about a key at `span` that has been there before.
fn duplicate(text: &str, root: &DeTable<'_>, span: &Range<usize>) -> String {
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
    let line = text.lines().nth(line_of(span.start) - 1).unwrap_or_default().trim();
    let first = |same: &dyn Fn(&str) -> bool| {
        text.lines()
            .take(line_of(span.start) - 1)
            .position(same)
            .map_or(String::new(), |at| format!(" in line {}", at + 1))
    };
    if line.starts_with('[') {
        let head = line.split('#').next().unwrap_or_default().trim();
        let before = first(&|other: &str| other.split('#').next().unwrap_or_default().trim() == head);
        return format!(
            "duplicate key: {head} is there already{before}; write each table once, or give this one another name"
        );
    }
    let key = text.get(span.clone()).unwrap_or_default();
    let mut firsts = Vec::new();
    places(root, key.trim_matches('"'), &mut firsts);
    // The nearest before is in the same table: the reader has kept the first of each.
    let before = firsts.into_iter().filter(|&at| at < span.start).max();
    let before = before.map_or(String::new(), |at| format!(" in line {}", line_of(at)));
    format!("duplicate key `{key}`: it has a value already{before}; leave one of the two out")
}

/// Where keys of this name are.
fn places(table: &DeTable<'_>, name: &str, found: &mut Vec<usize>) {
    for (key, value) in table {
        if key.get_ref() == name {
            found.push(key.span().start);
        }
        inner(value, name, found);
    }
}

fn inner(value: &Spanned<DeValue<'_>>, name: &str, found: &mut Vec<usize>) {
    match value.get_ref() {
        DeValue::Table(table) => places(table, name, found),
        DeValue::Array(array) => array.iter().for_each(|item| inner(item, name, found)),
        _ => {}
    }
}

/// How the table at `path`, or the one that it stands in, is begun, where that is what is wrong.
fn as_written(message: &str, path: &[String]) -> String {
    let Some((found, expected)) =
        message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    else {
        return String::new();
    };
    match path {
        [list] if found == "map" && expected == "a sequence" => format!("; begin each with [[{list}]]"),
        [tables] if expected == "a map" => format!("; begin each with [{tables}.NAME]"),
        [tables, _] if expected == "a map" || expected.starts_with("struct ") => {
            format!("; begin each with [{tables}.NAME]")
        }
        _ => String::new(),
    }
}

/// The reader's words for types, in those of a TOML file.
fn said_plainly(message: &str) -> String {
    if message == "wanted string or table" {
        return "it must be a text in quotes".into();
    }
    // A word without quotes that begins as one of the words of TOML does.
    if message.starts_with("invalid float, expected `") || message.starts_with("invalid boolean, expected `") {
        return "string values must be quoted".into();
    }
    if let Some((found, expected)) =
        message.strip_prefix("invalid length ").and_then(|rest| rest.split_once(", expected an array of length "))
    {
        return format!("it is a list of {found}, and must be one of {expected}, such as [\"a\", \"b\"]");
    }
    let whole = |kind: &str| match kind {
        "u8" => Some(u64::from(u8::MAX)),
        "u16" => Some(u64::from(u16::MAX)),
        "u32" => Some(u64::from(u32::MAX)),
        "u64" | "usize" => Some(i64::MAX as u64),
        _ => None,
    };
    if let Some((found, expected)) =
        message.strip_prefix("invalid value: ").and_then(|rest| rest.split_once(", expected "))
        && let Some(most) = whole(expected)
    {
        return format!("invalid value: it is {found}, and must be a whole number from 0 to {most}");
    }
    let Some((found, expected)) =
        message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    else {
        return message.into();
    };
    let expected = match expected {
        "a string" => "a text in quotes",
        "a boolean" => "true or false, without quotes",
        "a sequence" if found == "map" => "a list",
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        _ if whole(expected).is_some() || expected == "i64" => "a whole number, without quotes",
        "f32" | "f64" => "a number, without quotes",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let found = match found {
        "map" => "a table",
        "sequence" => "a list",
        other => other,
    };
    format!("invalid type: it is {found}, and must be {expected}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::explain;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct File {
        name: String,
        #[serde(default)]
        threads: u16,
        #[serde(default)]
        node: BTreeMap<String, Node>,
        #[serde(default)]
        route: Vec<Node>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Node {
        kind: Kind,
        #[serde(default)]
        via: Vec<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Host,
    }

    fn explained(text: &str) -> String {
        explain(text, &toml::from_str::<File>(text).unwrap_err())
    }

    #[test]
    fn what_would_move_a_terminals_cursor_is_not_said() {
        let explained = explained("name = \"a\"\n\"\\u001b[2J\" = 1");
        assert!(explained.starts_with("unknown field `\u{fffd}[2J`, expected"), "{explained:?}");
    }

    #[test]
    fn an_unknown_name_that_is_near_a_known_one_comes_with_it() {
        for (text, said) in [
            ("nam = \"a\"", "expected one of `name`, `threads`, `node`, `route`; did you mean `name`?"),
            (
                "name = \"a\"\n[node.x]\nkidn = 1",
                "unknown field `kidn` in node.x, expected `kind` or `via`; did you mean `kind`?",
            ),
            (
                "name = \"a\"\n[rotue]",
                "unknown field `rotue`, expected one of `name`, `threads`, `node`, `route`; did you mean `route`?",
            ),
            (
                "name = \"a\"\n[node.x]\nkind = \"Host\"",
                "unknown variant `Host`, expected `host`; did you mean `host`?",
            ),
        ] {
            let explained = explained(text);
            assert!(explained.ends_with(said) && !explained.contains('\n'), "{text}\n{explained}");
        }
    }

    #[test]
    fn an_unknown_name_that_is_far_from_all_known_ones_comes_alone() {
        for text in [
            "colour = \"red\"",
            "name = \"a\"\n[node.x]\nvoice = 1",
            "name = \"a\"\n[node.x]\nkind = \"router\"",
            "\"a`, expected `name\" = 1",
            "name = \"what, expected one of `name`\"\n\"\" = 1",
        ] {
            let explained = explained(text);
            assert!(explained.contains("unknown ") && !explained.contains("did you mean"), "{text}\n{explained}");
        }
    }

    #[test]
    fn every_message_names_its_key() {
        for (text, said) in [
            ("name = 10", "name: invalid type: it is integer `10`, and must be a text in quotes"),
            ("name = \"a\"\nthreads = \"2\"", "threads: invalid type: it is string \"2\", and must be a whole number"),
            (
                "name = \"a\"\n[node.x]\nkind = \"host\"\nvia = \"b\"",
                "node.x.via: invalid type: it is string \"b\", and must be a list",
            ),
            (
                "name = \"a\"\n[node.x]\nkind = \"hosts\"",
                "node.x.kind: unknown variant `hosts`, expected `host`; did you mean `host`?",
            ),
            ("name = \"a\"\nnode.x.kind = 5", "node.x.kind: it must be a text in quotes"),
            (
                "name = \"a\"\n[node.x]\nkind = \"host\"\nvia = [\"b\", 3]",
                "node.x.via: invalid type: it is integer `3`",
            ),
            (
                "name = \"a\"\n[[route]]\nkind = \"host\"\n[[route]]\nkind = \"host\"\nvia = 3",
                "route.via: invalid type: it is integer `3`",
            ),
            ("name = \"a\"\n[node.x]\n", "node.x: missing field `kind`: it needs kind = …"),
            ("name = \"a\"\n[[route]]\n", "route: missing field `kind`"),
            ("threads = 1", "missing field `name`: the file needs name = …"),
            (
                "name = \"a\"\n[route]\nkind = \"host\"",
                "route: invalid type: it is a table, and must be a list; begin each with [[route]]",
            ),
            (
                "name = \"a\"\n[node]\nkind = \"host\"",
                "node.kind: invalid type: it is string \"host\", and must be a table; begin each with [node.NAME]",
            ),
            (
                "name = \"a\"\n[[node]]\nkind = \"host\"",
                "node: invalid type: it is a list, and must be a table; begin each with [node.NAME]",
            ),
            ("name = \"a\"\n[nodes.x]\nkind = \"host\"", "unknown field `nodes`, expected one of `name`, "),
            ("name = \"a", "name: invalid basic string"),
            ("name = a", "name: string values must be quoted"),
            ("name = island", "name: string values must be quoted"),
            ("name = tokyo", "name: string values must be quoted"),
            ("nam = \"a\"", "unknown field `nam`, expected one of `name`, "),
            ("name = \"a\"\n[node.x]\nkid = 1", "unknown field `kid` in node.x, expected `kind` or `via`"),
            (
                "name = \"a\"\nthreads = -1",
                "threads: invalid value: it is integer `-1`, and must be a whole number from 0 to 65535",
            ),
            ("name = \"a\"\n\nname = \"b\"", "duplicate key `name`: it has a value already in line 1"),
            (
                "name = \"a\"\n[node.x]\nvia = []\n[node.y]\nkind = \"host\"\nvia = []\nvia = []",
                "duplicate key `via`: it has a value already in line 6",
            ),
            (
                "name = \"a\"\n[node.x] # one\nkind = \"host\"\n[node.x]\n",
                "duplicate key: [node.x] is there already in line 2",
            ),
        ] {
            let explained = explained(text);
            assert!(explained.starts_with(said) && !explained.contains('\n'), "{text}\n{explained}");
        }
    }
}
