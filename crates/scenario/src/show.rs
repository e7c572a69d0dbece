//! A scenario written out with every default.

use crate::Scenario;

pub(crate) fn to_toml(scenario: &Scenario) -> String {
    toml::to_string(scenario).expect("a resolved scenario holds only tables, texts, numbers and booleans")
}
