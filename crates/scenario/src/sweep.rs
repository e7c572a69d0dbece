//! Variants of one scenario: keys of the file get other values before it is resolved.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use ekiden_config::ConfigError;
use toml::{Table, Value};

use crate::{Error, Scenario, resolve};

/// The tables of the file that hold named tables.
const KINDS: [&str; 7] = ["node", "link", "flow", "tunnel", "gateway", "background", "ping"];
/// The tables that such a named table may hold.
const INNER: [(&str, &str); 5] =
    [("node", "tcp"), ("tunnel", "tcp"), ("link", "policer"), ("link", "forth"), ("link", "back")];
const POINTS_MOST: usize = 1000;
/// Longer file stems are cut. With the scenario's name, the repetition and `.json` a file name may have 255 bytes.
const STEM_MOST: usize = 180;

/// The cross product of what several `--set KEY=V1,V2,...` say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sweep {
    axes: Vec<Axis>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Axis {
    keys: Vec<String>,
    values: Vec<String>,
}

/// One variant of a scenario: a value for each `--set`. The default sets nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Point {
    settings: Vec<Setting>,
}

/// One value for one key, or for several keys alike. Shown as `KEY+KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Dotted paths into the file, such as `link.sea.delay`.
    pub keys: Vec<String>,
    /// The value as in the file, without quotes.
    pub value: String,
}

impl Sweep {
    /// Reads `KEY=V1,V2,...` or `KEY+KEY=V1,V2,...`, one per `--set`. Whether the keys are there, only a file can tell.
    ///
    /// # Errors
    /// [`Error::Set`] if one is not of this form, a key or one of its values comes twice, or there are more than 1000
    /// points.
    pub fn parse(sets: &[String]) -> Result<Self, Error> {
        let mut seen = BTreeSet::new();
        let mut axes = Vec::new();
        let mut points = 1;
        for set in sets {
            let axis = axis(set, &mut seen).map_err(|reason| Error::Set { set: set.clone(), reason })?;
            points *= axis.values.len();
            if points > POINTS_MOST {
                return Err(Error::Set { set: set.clone(), reason: format!("makes more than {POINTS_MOST} points") });
            }
            axes.push(axis);
        }
        Ok(Self { axes })
    }

    /// Every combination, the last `--set` varying fastest. Without any `--set` one point that sets nothing.
    pub fn points(&self) -> Vec<Point> {
        let mut points = vec![Point::default()];
        for Axis { keys, values } in &self.axes {
            let with = |point: &Point, value: &String| {
                let mut settings = point.settings.clone();
                settings.push(Setting { keys: keys.clone(), value: value.clone() });
                Point { settings }
            };
            points = points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
        }
        points
    }

    /// The keys of each `--set`, joined by `+`.
    pub fn keys(&self) -> Vec<String> {
        self.axes.iter().map(|axis| axis.keys.join("+")).collect()
    }
}

fn axis(set: &str, seen: &mut BTreeSet<String>) -> Result<Axis, String> {
    let Some((keys, values)) = set.split_once('=') else {
        return Err("needs a key, '=' and values, such as link.sea.delay=5ms,20ms".into());
    };
    let all = |text: &str, separator| text.split(separator).map(|part| part.trim().to_owned()).collect::<Vec<_>>();
    let (keys, values) = (all(keys, '+'), all(values, ','));
    if keys.contains(&String::new()) {
        return Err("a key is empty".into());
    }
    if let Some(key) = keys.iter().find(|key| !seen.insert((*key).clone())) {
        return Err(format!("'{key}' is set twice"));
    }
    if values.contains(&String::new()) {
        return Err("a value is empty".into());
    }
    let mut different = BTreeSet::new();
    match values.iter().find(|value| !different.insert(*value)) {
        Some(value) => Err(format!("the value '{value}' comes twice")),
        None => Ok(Axis { keys, values }),
    }
}

impl Point {
    /// What it sets, in the order of the `--set`.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The same point with this seed, whatever seed it set before.
    pub fn with_seed(&self, seed: u64) -> Self {
        let mut settings = self.settings.clone();
        for setting in &mut settings {
            setting.keys.retain(|key| key != "seed");
        }
        settings.retain(|setting| !setting.keys.is_empty());
        settings.push(Setting { keys: vec!["seed".into()], value: seed.to_string() });
        Self { settings }
    }

    /// Text for file names, of at most 200 bytes: the settings separated by commas, `_` in place of what is neither
    /// letter, digit nor one of `.+=-`. Long ones are cut and end in a hash instead. Empty if nothing is set.
    pub fn file_stem(&self) -> String {
        let settings: Vec<_> = self.settings.iter().map(ToString::to_string).collect();
        let whole = settings.join(",");
        let fits = |c: char| c.is_ascii_alphanumeric() || ".+=-,".contains(c);
        let stem: String = whole.chars().map(|c| if fits(c) { c } else { '_' }).collect();
        match stem.len() <= STEM_MOST {
            true => stem,
            false => format!("{}~{:016x}", &stem[..STEM_MOST], fnv1a(whole.as_bytes())),
        }
    }
}

/// The 64-bit Fowler–Noll–Vo hash, variant 1a: the same on every machine, unlike the standard library's.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.keys.join("+"), self.value)
    }
}

/// The settings, separated by blanks.
impl Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<_> = self.settings.iter().map(ToString::to_string).collect();
        f.write_str(&settings.join(" "))
    }
}

/// The scenario of `text` at a point. The text as it stands must be a scenario too.
pub(crate) fn scenario_at(text: &str, file: &str, point: &Point) -> Result<Scenario, Error> {
    let base = resolve::scenario(text, file)?;
    match point.settings.as_slice() {
        [] => Ok(base),
        settings => changed(text, settings).map_err(|reason| blame(text, settings, reason)),
    }
}

/// Names the setting that is wrong on its own; if none is, all of them.
fn blame(text: &str, settings: &[Setting], reason: String) -> Error {
    let is_wrong =
        |setting: &&Setting| changed(text, std::slice::from_ref(setting)).is_err_and(|alone| alone == reason);
    let set = match settings.iter().find(is_wrong) {
        Some(setting) => setting.to_string(),
        None => settings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" --set "),
    };
    Error::Set { set, reason }
}

/// The scenario of `text` with these settings, or one line that says what is wrong with them.
fn changed(text: &str, settings: &[Setting]) -> Result<Scenario, String> {
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    for setting in settings {
        for key in &setting.keys {
            put(&mut table, key, &setting.value)?;
        }
    }
    // Written out again, for only from text are there errors that name the key.
    let text = toml::to_string(&table).map_err(|error| error.to_string())?;
    resolve::scenario(&text, "").map_err(|error| match error {
        // The setting has said the key.
        Error::Invalid(ConfigError { reason, .. }) => {
            let keys = settings.iter().flat_map(|setting| &setting.keys);
            let shorter = keys.filter_map(|key| reason.strip_prefix(&format!("{key}: "))).next();
            shorter.map(str::to_owned).unwrap_or(reason)
        }
        other => other.to_string(),
    })
}

/// Sets a key. Whether the last part of its path is known, and the value right, is found when the file is resolved.
fn put(file: &mut Table, key: &str, value: &str) -> Result<(), String> {
    let path: Vec<&str> = key.split('.').collect();
    let is_table = || Err(format!("'{key}' is a table; name a key in it"));
    let (into, leaf) = match path[..] {
        ["tcp"] | ["congestion"] | ["congestion", _] => return is_table(),
        [kind] if KINDS.contains(&kind) => return is_table(),
        [leaf] => (file, leaf),
        ["tcp", leaf] => (table(file, "tcp")?, leaf),
        ["congestion", group, leaf] => {
            let number = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
            table(table(file, "congestion")?, group)?.insert(leaf.into(), Value::Float(number));
            return Ok(());
        }
        [kind, name] if KINDS.contains(&kind) => {
            named(file, kind, name)?;
            return is_table();
        }
        [kind, name, inner] if INNER.contains(&(kind, inner)) => {
            named(file, kind, name)?;
            return is_table();
        }
        [kind, name, leaf] if KINDS.contains(&kind) => (named(file, kind, name)?, leaf),
        ["link", name, direction @ ("forth" | "back"), "policer"] => {
            table(named(file, "link", name)?, direction)?;
            return is_table();
        }
        ["link", name, direction @ ("forth" | "back"), "policer", leaf] => {
            (table(table(named(file, "link", name)?, direction)?, "policer")?, leaf)
        }
        [kind, name, inner, leaf] if INNER.contains(&(kind, inner)) => (table(named(file, kind, name)?, inner)?, leaf),
        _ => return Err(format!("there is no key '{key}'")),
    };
    if path[0] == "flow" {
        // A flow has one of the two; the other gives way, with what is said of it alone.
        match leaf {
            "bytes" => ["duration", "end", "file"].iter().for_each(|key| drop(into.remove(*key))),
            "duration" => drop(into.remove("bytes")),
            _ => {}
        }
    }
    into.insert(leaf.into(), typed(leaf, value));
    Ok(())
}

fn named<'a>(file: &'a mut Table, kind: &str, name: &str) -> Result<&'a mut Table, String> {
    let Some(all) = file.get_mut(kind).and_then(Value::as_table_mut) else {
        return Err(format!("the scenario has no {kind}"));
    };
    let known = all.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let found = all.get_mut(name).and_then(Value::as_table_mut);
    found.ok_or_else(|| format!("there is no {kind} '{name}'; there is: {known}"))
}

/// A table that is made if it is not written out.
fn table<'a>(of: &'a mut Table, key: &str) -> Result<&'a mut Table, String> {
    let table = of.entry(key).or_insert_with(|| Value::Table(Table::new()));
    table.as_table_mut().ok_or_else(|| format!("'{key}' is not a table"))
}

/// Quantities are texts in the file, `0` too; so what is meant follows from the key. What does not look like it stays a
/// text, and is refused when the file is resolved.
fn typed(leaf: &str, value: &str) -> Value {
    const NUMBERS: [&str; 8] =
        ["seed", "copies", "mtu", "loss_burst", "parallel", "initial_window", "connections", "repeats"];
    const BOOLEANS: [&str; 10] = [
        "sack",
        "ecn",
        "timestamps",
        "window_scaling",
        "rtt_per_window",
        "separate",
        "paced",
        "enabled",
        "forwards",
        "transparent",
    ];
    let number = || value.parse().ok().map(Value::Integer).filter(|_| NUMBERS.contains(&leaf));
    let boolean = || value.parse().ok().map(Value::Boolean).filter(|_| BOOLEANS.contains(&leaf));
    number().or_else(boolean).unwrap_or_else(|| Value::String(value.into()))
}
