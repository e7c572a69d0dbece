//! The parameters of the congestion controls that a node brings into the kernel.

use ekiden_congestion::{CongestionParameters, PARAMETERS, Tunables};
use ekiden_files::nearest;
use serde_spanned::Spanned;

use super::{Result, Source};
use crate::config::raw::RawCongestion;

impl Source<'_> {
    pub(super) fn congestion(&self, table: &Spanned<RawCongestion>) -> Result<Box<Tunables>> {
        let mut settings = CongestionParameters::default();
        for (group, parameters) in table.get_ref() {
            if !known().any(|(known, _)| known == group.get_ref()) {
                let mut groups: Vec<&str> = known().map(|(group, _)| group).collect();
                groups.dedup();
                let near = suggestion(group.get_ref(), groups.iter().copied());
                let message =
                    format!("there is no [congestion.{}] (there are {}){near}", group.get_ref(), groups.join(", "));
                return Err(self.error(Some(group.span()), message));
            }
            for (parameter, value) in parameters {
                let name = format!("{}.{}", group.get_ref(), parameter.get_ref());
                let set = settings.set_number(&name, *value.get_ref());
                set.map_err(|error| {
                    let others = known().filter(|(known, _)| known == group.get_ref()).map(|(_, parameter)| parameter);
                    let is_known = others.clone().any(|known| known == parameter.get_ref());
                    let near = if is_known { String::new() } else { suggestion(parameter.get_ref(), others) };
                    self.error(Some(parameter.span()), format!("{error}{near}"))
                })?;
            }
        }
        let tunables = Tunables::new(&settings);
        tunables.map(Box::new).map_err(|error| self.error(Some(table.span()), error.to_string()))
    }
}

/// Every parameter, with the table that it is in before it.
fn known() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    PARAMETERS.iter().filter_map(|parameter| parameter.name.split_once('.'))
}

fn suggestion(wrong: &str, known: impl Iterator<Item = &'static str>) -> String {
    nearest(wrong, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}
