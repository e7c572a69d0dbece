//! The parameters of ekiden's own congestion controls.

use ekiden_congestion::{CongestionParameters, ParameterError, Tunables};
use ekiden_files::suggestion;
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::checker::Checker;
use crate::Error;
use crate::raw::RawCongestion;

impl Checker<'_> {
    /// As they are written, by group and name.
    pub fn congestion(
        &self,
        raw: Option<&Spanned<RawCongestion>>,
    ) -> Result<IndexMap<String, IndexMap<String, f64>>, Error> {
        let mut written: IndexMap<String, IndexMap<String, f64>> = IndexMap::new();
        let Some(raw) = raw else { return Ok(written) };
        let mut all = CongestionParameters::default();
        for (group, parameters) in raw.get_ref() {
            let name = group.get_ref();
            CongestionParameters::check_group(name).map_err(|error| self.wrong(group.span(), message(&error)))?;
            let of_group = written.entry(name.clone()).or_default();
            for (parameter, value) in parameters {
                let set = all.set_number(&format!("{name}.{}", parameter.get_ref()), *value);
                set.map_err(|error| self.wrong(parameter.span(), message(&error)))?;
                of_group.insert(parameter.get_ref().clone(), *value);
            }
        }
        Tunables::new(&all).map_err(|error| self.wrong(raw.span(), message(&error)))?;
        Ok(written)
    }
}

fn message(error: &ParameterError) -> String {
    let near = error.unknown().map_or(String::new(), |(wrong, known)| suggestion(wrong, known));
    format!("{error}{near}")
}
