//! The proxies that a flow goes through.

use serde_spanned::Spanned;

use super::checker::Checker;
use crate::Error;
use crate::raw::{Named, RawNode};
use crate::via::{AUTO, Via};

impl Checker<'_> {
    /// The `via` of the flow of this name: a chain of proxies, or two with `auto` between them.
    pub fn via(&self, flow: &str, raw: &[Spanned<String>], nodes: &Named<RawNode>) -> Result<Via, Error> {
        let autos: Vec<_> = raw.iter().filter(|word| word.get_ref() == AUTO).collect();
        let names = |words: &[Spanned<String>]| words.iter().map(|word| word.get_ref().clone()).collect();
        match (&autos[..], raw) {
            ([], chain) => {
                self.proxies(chain, nodes)?;
                Ok(Via::chain(names(chain)))
            }
            ([auto], [entry, middle, exit]) if *auto == middle => {
                self.proxies(&[entry.clone(), exit.clone()], nodes)?;
                Ok(Via::auto(entry.get_ref().clone(), exit.get_ref().clone()))
            }
            ([_, again, ..], _) => {
                let reason = format!("via: flow '{flow}' has '{AUTO}' twice; once stands for all that nodes choose");
                Err(self.wrong(again.span(), reason))
            }
            ([auto], _) => {
                let reason = format!(
                    "via: in flow '{flow}' '{AUTO}' must stand between two proxies, where it enters the overlay and where it leaves it, and \
                     these alone: [\"a\", \"{AUTO}\", \"c\"]"
                );
                Err(self.wrong(auto.span(), reason))
            }
        }
    }
}
