//! The description of a file's keys: name, values, default and meaning. It is written once, where the file is read. `--keys` of each program,
//! `--schema` and the reference in the docs show it.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::time::Duration;

use ekiden_units::{BitRate, Bytes, Time};

use crate::shape::Shape;

/// One key of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name in the file.
    pub name: &'static str,
    /// Which values it takes.
    pub values: Values,
    /// The default. Empty if there is none.
    pub default: String,
    /// What it does, in a sentence or two.
    pub meaning: &'static str,
    /// What its value looks like, as JSON Schema says it.
    pub shape: serde_json::Value,
    /// Whether the table needs it.
    pub is_required: bool,
}

/// Which values a key takes: as text, and the range of numbers without a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    text: String,
    bounds: Option<[serde_json::Number; 2]>,
}

impl Values {
    /// Numbers from `least` to `most`, which `text` says.
    pub fn numbers(text: String, [least, most]: [impl Into<serde_json::Number>; 2]) -> Self {
        Self { text, bounds: Some([least.into(), most.into()]) }
    }
}

impl<T: Into<String>> From<T> for Values {
    fn from(text: T) -> Self {
        Self { text: text.into(), bounds: None }
    }
}

impl Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The keys of one table of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name in the file. Empty for the keys at the top.
    pub name: String,
    /// Its keys, in the order in which they are best read.
    pub keys: Vec<Key>,
}

impl Section {
    /// The table with these keys, as JSON Schema says it.
    pub fn shape(&self) -> serde_json::Value {
        let mut table = serde_json::json!({ "type": "object", "properties": {}, "additionalProperties": false });
        self.describe(&mut table);
        table
    }

    /// Adds these keys to the schema of a table.
    pub(crate) fn describe(&self, table: &mut serde_json::Value) {
        let mut required = Vec::new();
        for key in &self.keys {
            let mut shape = key.shape.clone();
            let default = if key.default.is_empty() { String::new() } else { format!("; default {}", key.default) };
            if let Some([least, most]) = &key.values.bounds {
                shape["minimum"] = least.clone().into();
                shape["maximum"] = most.clone().into();
            }
            shape["description"] = format!("{} ({}{default})", key.meaning, key.values).into();
            table["properties"][key.name] = shape;
            if key.is_required {
                required.push(serde_json::Value::from(key.name));
            }
        }
        if !required.is_empty() {
            table["required"] = required.into();
        }
    }
}

/// A kind of value that has a range.
pub trait Quantity: Copy + PartialOrd + Display {
    /// The type that the rest of the program uses.
    type Value;

    /// The value in that type.
    fn value(self) -> Self::Value;

    /// The value as text for the file.
    fn written(value: &Self::Value) -> String;

    /// The value as text for errors and the reference.
    fn shown(self) -> String {
        self.to_string()
    }

    /// The value as the file has it, if that is a number without a unit.
    fn number(self) -> Option<i64> {
        None
    }
}

/// A count as it is in the file. It can be negative, because only the check of its range refuses that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, serde::Deserialize)]
#[serde(transparent)]
pub struct Count(pub i64);

impl Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Shape for Count {
    fn shape() -> serde_json::Value {
        serde_json::json!({ "type": "integer" })
    }
}

impl Quantity for Count {
    type Value = u32;

    fn value(self) -> u32 {
        self.0.clamp(0, u32::MAX.into()) as u32
    }

    fn written(value: &u32) -> String {
        value.to_string()
    }

    fn number(self) -> Option<i64> {
        Some(self.0)
    }
}

impl Quantity for Bytes {
    type Value = usize;

    fn value(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn written(value: &usize) -> String {
        format!("\"{}\"", Self(*value as u64))
    }
}

impl Quantity for Time {
    type Value = Duration;

    fn value(self) -> Duration {
        self.into()
    }

    fn written(value: &Duration) -> String {
        let time = Self::from(*value);
        // A file wants a unit, also for nothing.
        let text = if value.is_zero() { time.to_string() } else { time.shown() };
        format!("\"{text}\"")
    }

    fn shown(self) -> String {
        const HOUR: u64 = 3600 * 1_000_000_000;
        match self.0 {
            0 => "0".into(),
            ns if ns.is_multiple_of(HOUR) => format!("{}h", ns / HOUR),
            _ => self.to_string(),
        }
    }
}

impl Quantity for BitRate {
    type Value = Self;

    fn value(self) -> Self {
        self
    }

    fn written(value: &Self) -> String {
        format!("\"{value}\"")
    }
}

/// The values of a range, both ends included.
pub fn range<Q: Quantity>(range: &RangeInclusive<Q>) -> Values {
    let text = format!("{} to {}", range.start().shown(), range.end().shown());
    match (range.start().number(), range.end().number()) {
        (Some(least), Some(most)) => Values::numbers(text, [least, most]),
        _ => text.into(),
    }
}

impl Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            writeln!(f, "{}", self.name)?;
        }
        for key in &self.keys {
            write!(f, "  {} = {}", key.name, key.values)?;
            if !key.default.is_empty() {
                write!(f, "; default {}", key.default)?;
            }
            writeln!(f, "\n      {}", key.meaning)?;
        }
        Ok(())
    }
}

/// Words as the reference lists them: `"a", "b" or "c"`.
pub fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Defines a table of the file: the structure that it is read into, and the description of its keys. Each key's doc comment is
/// its meaning.
///
/// A row is `KEY: TYPE = VALUES`, and the field has this type. What follows says what holds without the key:
/// - `, default VALUE`: the field is optional, and the method of the same name returns the value in force. The description
///   shows the default, or the WORDS in `, shown WORDS`.
/// - `, unset WORDS`: the words say what holds, where that is no value of the key.
///
/// `tables` are the tables below this one, each with the descriptions of its keys.
#[macro_export]
macro_rules! section {
    (@required $type:ty) => { !<$type as $crate::Shape>::MAY_BE_LEFT_OUT };
    (@required $type:ty, $default:expr) => { false };
    (@field $type:ty) => { $type };
    (@field $type:ty, $default:expr) => { Option<serde_spanned::Spanned<$type>> };
    (@shown $default:expr) => { $default.to_string() };
    (@shown $default:expr, $shown:literal) => { $shown.to_owned() };
    (
        $(#[$attribute:meta])*
        $name:ident: $title:literal
        $(
            #[doc = $help:literal]
            $key:ident: $type:ty = $values:expr $(, unset $unset:expr)? $(, default $default:expr $(, shown $shown:literal)?)?;
        )+
        $(tables { $($table:ident: $table_type:ty = $sections:expr;)+ })?
    ) => {
        $(#[$attribute])*
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(#[doc = $help] pub $key: $crate::section!(@field $type $(, $default)?),)+
            $($(#[serde(default)] pub $table: $table_type,)+)?
        }

        impl $name {
            /// Its keys.
            pub fn section() -> $crate::Section {
                $crate::Section {
                    name: $title.into(),
                    keys: vec![$($crate::Key {
                        name: stringify!($key),
                        values: $values.into(),
                        default: Vec::<String>::from([
                            $($unset.to_string())? $($crate::section!(@shown $default $(, $shown)?))?
                        ]).concat(),
                        meaning: $help.trim_ascii(),
                        shape: <$type as $crate::Shape>::shape(),
                        is_required: $crate::section!(@required $type $(, $default)?),
                    }),+],
                }
            }

            $($(
                #[doc = concat!("The value of `", stringify!($key), "` in force.")]
                pub fn $key(&self) -> $type {
                    self.$key.as_ref().map_or_else(|| $default, |value| value.get_ref().clone())
                }
            )?)+
        }

        impl $crate::Shape for $name {
            fn shape() -> serde_json::Value {
                Self::section().shape()
            }
        }

        $(impl $name {
            /// Its keys and those of its tables.
            pub fn sections() -> Vec<$crate::Section> {
                let mut all = vec![Self::section()];
                $(all.extend($sections);)+
                all
            }
        })?
    };
}
/// Defines a value that is one of several words: how it is read, listed and written.
#[macro_export]
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $crate::Shape for $name {
            fn shape() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word),+] })
            }
        }

        impl $name {
            /// The word for it in the configuration.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// All words, as the reference lists them.
            pub fn values() -> String {
                let words: Vec<&str> = Self::ALL.iter().map(|one| one.word()).collect();
                $crate::one_of(&words)
            }
        }
    };
}
