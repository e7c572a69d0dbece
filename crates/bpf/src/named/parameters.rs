//! The parameters of ekiden's congestion controls in a configuration.

use std::fmt;
use std::ops::Range;

use ekiden_config::{Key, Section, Values};
use ekiden_congestion::{CongestionParameters, PARAMETERS, Parameter, ParameterError, Tunables};
use ekiden_files::suggestion;
use indexmap::IndexMap;
use serde_json::Number;
use serde_spanned::Spanned;

/// `[congestion.GROUP]`: numbers by group and parameter.
pub type RawCongestion = IndexMap<Spanned<String>, IndexMap<Spanned<String>, Spanned<f64>>>;

/// The parameters of `table`, the others with their defaults.
///
/// # Errors
/// What is wrong, and where it stands in the file.
pub fn tunables(table: &Spanned<RawCongestion>) -> Result<Box<Tunables>, (Range<usize>, String)> {
    let mut settings = CongestionParameters::default();
    for (group, parameters) in table.get_ref() {
        let name = group.get_ref();
        CongestionParameters::check_group(name).map_err(|error| (group.span(), message(&error)))?;
        for (parameter, value) in parameters {
            let set = settings.set_number(&format!("{name}.{}", parameter.get_ref()), *value.get_ref());
            set.map_err(|error| (parameter.span(), message(&error)))?;
        }
    }
    Tunables::new(&settings).map(Box::new).map_err(|error| (table.span(), error.to_string()))
}

/// Writes all parameters as tables of a configuration, each behind an empty line.
///
/// # Errors
/// Those of `f`.
pub fn show(tunables: &Tunables, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut last = "";
    for (key, value) in tunables.parameters().iter() {
        let (group, parameter) = key.name.split_once('.').unwrap_or_default();
        if group != last {
            writeln!(f, "\n[congestion.{group}]")?;
            last = group;
        }
        writeln!(f, "{parameter} = {value:?}")?;
    }
    Ok(())
}

fn message(error: &ParameterError) -> String {
    let near = error.unknown().map_or(String::new(), |(wrong, known)| suggestion(wrong, known));
    format!("{error}{near}")
}

fn values(parameter: &Parameter) -> Values {
    let least = if parameter.or_zero { 0.0 } else { parameter.least };
    match (Number::from_f64(least), Number::from_f64(parameter.most)) {
        (Some(least), Some(most)) => Values::numbers(parameter.range(), [least, most]),
        _ => parameter.range().into(),
    }
}

/// The keys of each table in `[congestion]`.
pub fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for parameter in &PARAMETERS {
        let (group, name) = parameter.name.split_once('.').unwrap_or(("", parameter.name));
        let title = format!("[congestion.{group}]");
        let default = Parameter::written(parameter.default);
        let shape = serde_json::json!({ "type": if parameter.whole { "integer" } else { "number" } });
        let key =
            Key { name, values: values(parameter), default, meaning: parameter.meaning, shape, is_required: false };
        match sections.last_mut().filter(|section| section.name == title) {
            Some(section) => section.keys.push(key),
            None => sections.push(Section { name: title, keys: vec![key] }),
        }
    }
    sections
}
