//! `[congestion.GROUP]`: parameters of ekiden's own congestion controls.

use ekiden_congestion::{TableError, Tunables};
use ekiden_files::nearest;
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::checker::Checker;
use crate::Error;
use crate::raw::Named;

/// Parameters by group and name.
type Parameters = IndexMap<String, IndexMap<String, f64>>;

impl Checker<'_> {
    pub fn congestion(&self, raw: &Option<Spanned<Named<Named<Spanned<f64>>>>>) -> Result<Parameters, Error> {
        let Some(tables) = raw else { return Ok(Parameters::new()) };
        let values = |table: &Named<Spanned<f64>>| -> IndexMap<String, f64> {
            table.iter().map(|(name, value)| (name.get_ref().clone(), *value.get_ref())).collect()
        };
        let all: Parameters =
            tables.get_ref().iter().map(|(group, table)| (group.get_ref().clone(), values(table))).collect();
        let named = all.iter().map(|(group, table)| {
            let values = table.iter().map(|(name, value)| (name.as_str(), *value));
            (group.as_str(), values)
        });
        if let Err(TableError { group, parameter, known, reason }) = Tunables::from_tables(named) {
            let group = group.and_then(|group| tables.get_ref().get_key_value(group));
            let inner = group.zip(parameter).and_then(|((_, table), name)| Some(table.get_key_value(name)?.0));
            let place = inner.or(group.map(|(name, _)| name));
            let near = place.and_then(|name| nearest(name.get_ref(), known));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(self.source.error(&place.map_or(tables.span(), Spanned::span), reason + &near));
        }
        Ok(all)
    }
}
