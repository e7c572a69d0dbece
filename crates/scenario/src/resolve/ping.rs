//! Pings.

use std::ops::RangeInclusive;

use ekiden_units::Time;
use indexmap::IndexMap;

use super::checker::Checker;
use super::{DEFAULT_START, STARTS};
use crate::raw::{Named, RawNode, RawPing};
use crate::{Error, Ping, Scenario};

const DEFAULT_INTERVAL: Time = Time::ms(100);
const INTERVALS: RangeInclusive<Time> = Time::ms(1)..=Time::secs(60);

impl Checker<'_> {
    pub fn pings(
        &self,
        raw: &Named<RawPing>,
        nodes: &Named<RawNode>,
        scenario: &Scenario,
    ) -> Result<IndexMap<String, Ping>, Error> {
        let mut all = IndexMap::new();
        for (name, ping) in raw {
            self.name("ping", name)?;
            let (from, to) = (&ping.from, &ping.to);
            self.joined(&format!("ping '{}'", name.get_ref()), from, to, nodes, scenario)?;
            let resolved = Ping {
                from: from.get_ref().clone(),
                to: to.get_ref().clone(),
                interval: self.within("interval", &ping.interval, DEFAULT_INTERVAL, &INTERVALS)?,
                start: self.within("start", &ping.start, DEFAULT_START, &STARTS)?,
            };
            all.insert(name.get_ref().clone(), resolved);
        }
        Ok(all)
    }
}
