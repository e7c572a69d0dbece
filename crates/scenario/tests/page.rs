//! The tables of keys in docs/guide/scenario.md say what the program does: each default, by a file that sets it and is the same
//! as one without the key, and each range, by what a value outside of it is told.

use std::path::Path;

use ekiden_scenario::Scenario;
use ekiden_units::{BitRate, Bytes, Time};

/// One of everything that a scenario may have, with no key that may be left out.
const PLAIN: &str = r#"
name = "page"
[node.near]
kind = "router"
[node.middle]
kind = "router"
[node.NAME]
[link.NAME]
ends = ["near", "middle"]
rate = "10Mbit/s"
policer.rate = "10Mbit/s"
[link.last]
ends = ["middle", "NAME"]
rate = "10Mbit/s"
[flow.NAME]
from = "near"
to = "NAME"
bytes = "1MiB"
[tunnel.NAME]
ends = ["near", "middle"]
discipline = "fq_codel"
[gateway.NAME]
node = "middle"
flows = ["NAME"]
policy = "paper"
[background.NAME]
from = "near"
to = "middle"
rate = "1Mbit/s"
[ping.NAME]
from = "near"
to = "middle"
"#;

/// Of each kind of value one that no range holds.
const OUTSIDE: &[&str] =
    &["4294967295", "\"100000h\"", "\"1000000TB\"", "\"1000000Tbit/s\"", "\"99999999999 packets\""];

/// A row of a table: its keys, with the section before them, and the cells for defaults and ranges.
struct Row {
    keys: Vec<String>,
    default: String,
    range: String,
}

#[test]
fn each_default_of_the_page_is_what_holds_without_the_key() {
    let plain = parse(PLAIN).unwrap();
    let mut seen = 0;
    for row in rows() {
        for (key, default) in each(&row.keys, &row.default) {
            // Only a flow with a duration has the first; the plain scenario has set the two others, on which keys depend.
            if let "flow.NAME.end" | "tunnel.NAME.discipline" | "gateway.NAME.policy" = &key[..] {
                continue;
            }
            let literal = match default.strip_prefix('`') {
                Some(code) => code.split('`').next().unwrap(),
                None if is_number(default) => default,
                None => continue,
            };
            // Text stands on the page without its quotes.
            let values = [literal.to_owned(), format!("\"{literal}\"")];
            let files =
                values.into_iter().filter(|value| toml::from_str::<toml::Table>(&format!("value = {value}")).is_ok());
            let read: Vec<Scenario> = files.filter_map(|value| parse(&set(&key, &value)).ok()).collect();
            assert!(read.contains(&plain), "without {key} it is not {literal}");
            seen += 1;
        }
    }
    assert!(seen >= 25, "found only {seen}");
}

#[test]
fn each_range_of_the_page_is_what_the_program_says() {
    let mut seen = 0;
    for row in rows() {
        for (key, range) in each(&row.keys, &row.range) {
            for range in range.split(" or ") {
                let Some((least, most)) = range.split_once("to ") else { continue };
                // Words stand where an end is not one number: the MTU, or all above 0.
                let ends = [least, most].map(|end| if end.is_empty() { Some(0) } else { quantity(end) });
                let told: Vec<String> = OUTSIDE.iter().filter_map(|value| told(&key, value)).collect();
                let fits = |told: &&String| {
                    let (least, most) = told.split_once(" to ").unwrap();
                    let is_end = |end: Option<u128>, told| end.is_none() || end == quantity(told);
                    is_end(ends[0], least) && is_end(ends[1], most)
                };
                if ends.iter().any(Option::is_some)
                    && ["loss", "part", "reorder"].iter().all(|last| !key.ends_with(last))
                {
                    assert!(told.iter().any(|told| fits(&told)), "{key} is '{range}' on the page; told: {told:?}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen >= 20, "found only {seen}");
}

/// The range in the refusal of a value.
fn told(key: &str, value: &str) -> Option<String> {
    let error = parse(&set(key, value)).err()?;
    let (_, range) = error.split_once(" is out of range: ")?;
    Some(range.lines().next().unwrap().to_owned())
}

/// The plain scenario with a key set.
fn set(key: &str, value: &str) -> String {
    let mut file: toml::Table = toml::from_str(PLAIN).unwrap();
    let mut table = &mut file;
    let (path, name) = key.rsplit_once('.').unwrap_or(("", key));
    for part in path.split('.').filter(|part| !part.is_empty()) {
        table = table.entry(part).or_insert_with(|| toml::Table::new().into()).as_table_mut().unwrap();
    }
    let value: toml::Table = toml::from_str(&format!("value = {value}")).unwrap();
    table.insert(name.into(), value["value"].clone());
    // Of these two a flow has one.
    if key == "flow.NAME.duration" {
        table.remove("bytes");
    }
    // Of these two a background has both or neither.
    if let "background.NAME.on" | "background.NAME.off" = key {
        for name in ["on", "off"] {
            table.entry(name).or_insert_with(|| "1s".into());
        }
    }
    toml::to_string(&file).unwrap()
}

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, "page.toml").map_err(|error| error.to_string())
}

/// A cell's parts, one for each key, or one for all.
fn each<'a>(keys: &[String], cell: &'a str) -> Vec<(String, &'a str)> {
    let parts: Vec<&str> = cell.split("; ").collect();
    let part = |place: usize| if parts.len() == keys.len() { parts[place] } else { parts[0] };
    keys.iter().enumerate().map(|(place, key)| (key.clone(), part(place))).collect()
}

/// A number with or without a unit, as a page or the program writes it.
fn quantity(text: &str) -> Option<u128> {
    let text = text.replace([',', ' ', '°'], "").replace("aday", "86400s").replace("packets", "");
    let bytes = text.parse::<Bytes>().map(|bytes| bytes.0.into());
    let rate = text.parse::<BitRate>().map(|rate| rate.0.into());
    let time = text.parse::<Time>().map(|time| time.0.into());
    let pebibytes = || Some(text.strip_suffix("PiB")?.parse::<u128>().ok()? << 50);
    text.parse().ok().or_else(|| bytes.or(rate).or(time).ok()).or_else(pebibytes)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The rows of all tables that have keys, defaults and ranges.
fn rows() -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/scenario.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (mut section, mut in_table, mut rows) = (String::new(), false, Vec::new());
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            let name = title.strip_prefix("`[").and_then(|title| title.split(']').next());
            section = name.map(|name| format!("{name}.")).unwrap_or_default();
        }
        in_table = line.starts_with("| key | meaning | default | range |") || in_table && line.starts_with('|');
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // What is a whole section, or has keys of its own, has no default and no range.
        if let ["", keys, _, default, range, ""] = cells[..]
            && in_table
            && !["key", "---"].contains(&keys)
            && !keys.contains(['[', '…'])
        {
            let keys = keys.split('`').skip(1).step_by(2).map(|key| format!("{section}{key}")).collect();
            rows.push(Row { keys, default: default.into(), range: range.into() });
        }
    }
    assert!(rows.len() > 30, "found only {}", rows.len());
    rows
}
