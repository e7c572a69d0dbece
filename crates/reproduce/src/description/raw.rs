//! The file as it is written.

use std::fmt;

use ekiden_units::Time;
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_spanned::Spanned;

pub(crate) type Text = Spanned<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawExperiment {
    pub title: String,
    pub paper: Text,
    pub section: String,
    #[serde(default)]
    pub figure: String,
    pub did: String,
    #[serde(default)]
    pub ours: String,
    #[serde(default)]
    pub keys: IndexMap<Text, Text>,
    #[serde(default)]
    pub names: IndexMap<String, String>,
    #[serde(default)]
    pub uses: Vec<Text>,
    #[serde(default)]
    pub runs: Vec<RawRuns>,
    #[serde(default)]
    pub claims: Vec<RawClaim>,
    #[serde(default)]
    pub plots: Vec<RawPlot>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRuns {
    pub name: Text,
    pub scenario: Text,
    pub resolution: Option<Spanned<Time>>,
    #[serde(default)]
    pub set: IndexMap<Text, Text>,
    #[serde(default)]
    pub vary: IndexMap<Text, Vec<Text>>,
    pub simulator: Option<RawAmount>,
    pub kernel: Option<RawAmount>,
    #[serde(default)]
    pub quick: RawQuick,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAmount {
    pub repeat: Option<Spanned<u32>>,
    #[serde(default)]
    pub set: IndexMap<Text, Text>,
    #[serde(default)]
    pub over: IndexMap<Text, Vec<Text>>,
    pub at_once: Option<Spanned<u32>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawQuick {
    pub simulator: Option<RawAmount>,
    pub kernel: Option<RawAmount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClaim {
    pub says: Text,
    #[serde(default)]
    pub page: String,
    #[serde(default)]
    pub published: String,
    pub of: Option<Spanned<OneOrMore>>,
    #[serde(default)]
    pub compare: Vec<RawCompare>,
    pub missing: Option<String>,
    #[serde(default)]
    pub because: RawBecause,
    pub margin: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCompare {
    pub value: Option<Text>,
    pub ratio: Option<Spanned<Vec<Text>>>,
    pub best: Option<Spanned<Vec<Spanned<Vec<Text>>>>>,
    #[serde(default)]
    pub each: IndexMap<Text, Vec<Text>>,
    pub of: Option<Spanned<OneOrMore>>,
    pub above: Option<Spanned<f64>>,
    pub below: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBecause {
    pub simulator: Option<String>,
    pub kernel: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPlot {
    pub title: Text,
    pub kind: RawPlotKind,
    pub of: Text,
    pub x: Option<Text>,
    #[serde(default)]
    pub series: Vec<Text>,
    #[serde(default)]
    pub runs: Vec<Text>,
    #[serde(rename = "where")]
    pub only: Option<Text>,
    #[serde(default)]
    pub points: Vec<Text>,
    pub from: Option<Spanned<Time>>,
    pub to: Option<Spanned<Time>>,
    #[serde(default)]
    pub levels: IndexMap<String, f64>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawPlotKind {
    Lines,
    Bars,
    Time,
}

/// A text, or a list of texts.
pub(crate) struct OneOrMore(pub Vec<String>);

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = OneOrMore;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes, or a list of texts")
            }

            fn visit_str<E>(self, text: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore(vec![text.into()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMore, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = seq.next_element()? {
                    all.push(text);
                }
                Ok(OneOrMore(all))
            }
        }
        deserializer.deserialize_any(Texts)
    }
}
