//! Flows whose proxies take connections that pass.

use super::checker::Checker;
use crate::raw::RawFlow;
use crate::{Error, Program, Scenario};

impl Checker<'_> {
    /// A `transparent` flow passes its first and its last proxy by itself, in both directions.
    pub fn transparent(&self, scenario: &Scenario, name: &str, raw: &RawFlow) -> Result<(), Error> {
        let Some(key) = raw.transparent.as_ref().filter(|key| *key.get_ref()) else { return Ok(()) };
        let flow = &scenario.flows[name];
        let wrong = |what: &str| {
            let reason = format!("flow '{name}' is 'transparent', and so {what}");
            Err(self.wrong(key.span(), reason))
        };
        if flow.fetch.is_some() {
            return wrong("is opened by its sender; leave 'fetch' out");
        }
        if flow.via.chosen().is_some() {
            return wrong("names its proxies; 'auto' is for others");
        }
        let (Some(first), Some(last)) = (flow.via.first(), flow.via.last()) else {
            return wrong("needs a proxy in 'via' that takes it");
        };
        let passes = |from: &str, to: &str, node: &str| {
            scenario.path(from, to).is_some_and(|path| path.iter().any(|hop| hop.to == node))
        };
        for (from, to) in [(&flow.from, &flow.to), (&flow.to, &flow.from)] {
            if let Some(beside) = [first, last].into_iter().find(|proxy| !passes(from, to, proxy)) {
                return wrong(&format!(
                    "its first and its last proxy are on the way; '{beside}' is not on that from '{from}' to '{to}'"
                ));
            }
        }
        match flow.via.iter().find(|proxy| scenario.nodes[*proxy].program != Program::Ekiden) {
            Some(other) => wrong(&format!("all its proxies run ekiden; '{other}' runs another program")),
            None => Ok(()),
        }
    }
}
