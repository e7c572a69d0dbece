//! The parameters of the congestion controls that a node brings into the kernel.

use ekiden_congestion::{CongestionParameters, ParameterError, Tunables};
use ekiden_files::suggestion;
use serde_spanned::Spanned;

use super::{Result, Source};
use crate::config::raw::RawCongestion;

impl Source<'_> {
    pub(super) fn congestion(&self, table: &Spanned<RawCongestion>) -> Result<Box<Tunables>> {
        let mut settings = CongestionParameters::default();
        for (group, parameters) in table.get_ref() {
            let name = group.get_ref();
            CongestionParameters::check_group(name).map_err(|error| self.error(Some(group.span()), message(&error)))?;
            for (parameter, value) in parameters {
                let set = settings.set_number(&format!("{name}.{}", parameter.get_ref()), *value.get_ref());
                set.map_err(|error| self.error(Some(parameter.span()), message(&error)))?;
            }
        }
        let tunables = Tunables::new(&settings);
        tunables.map(Box::new).map_err(|error| self.error(Some(table.span()), error.to_string()))
    }
}

fn message(error: &ParameterError) -> String {
    let near = error.unknown().map_or(String::new(), |(wrong, known)| suggestion(wrong, known));
    format!("{error}{near}")
}
