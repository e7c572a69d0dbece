//! The parameters of the congestion controls that a node brings into the kernel.

use ekiden_congestion::{TableError, Tunables};
use ekiden_files::nearest;
use serde_spanned::Spanned;

use super::{Result, Source};
use crate::config::raw::RawCongestion;

impl Source<'_> {
    pub(super) fn congestion(&self, table: &Spanned<RawCongestion>) -> Result<Box<Tunables>> {
        let groups = table.get_ref().iter().map(|(group, parameters)| {
            let parameters = parameters.iter().map(|(name, value)| (name.get_ref().as_str(), *value.get_ref()));
            (group.get_ref().as_str(), parameters)
        });
        Tunables::from_tables(groups).map(Box::new).map_err(|wrong| {
            let TableError { group, parameter, known, reason } = wrong;
            let group = table.get_ref().iter().find(|(name, _)| Some(name.get_ref().as_str()) == group);
            let inner = group.and_then(|(_, all)| all.keys().find(|name| Some(name.get_ref().as_str()) == parameter));
            let place = inner.or(group.map(|(name, _)| name));
            let near = place.and_then(|name| nearest(name.get_ref(), known));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            self.error(Some(place.map_or(table.span(), Spanned::span)), reason + &near)
        })
    }
}
