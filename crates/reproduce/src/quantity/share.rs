//! What a flow could carry at most, of which a share is told.

use ekiden_scenario::{Flow, Scenario};

use super::Quantity;

impl Quantity {
    /// The rate of the slowest link on the flows' way, in Mbit/s.
    pub(super) fn line(&self, scenario: &Scenario) -> Option<f64> {
        let slowest = |flow: &Flow| {
            let way = scenario.path(&flow.from, &flow.to)?;
            way.iter().map(|hop| hop.direction().rate.0).min()
        };
        let rates: Option<Vec<u64>> = self.flows(scenario).map(slowest).collect();
        Some(rates?.into_iter().min()? as f64 / 1e6)
    }

    /// What the flows' receive buffers, once per round trip of the links' delays, would carry together, in Mbit/s; nothing on a way without
    /// delay.
    pub(super) fn windows(&self, scenario: &Scenario) -> Option<f64> {
        let each = |flow: &Flow| {
            let seconds = scenario.base_rtt(&flow.from, &flow.to)?.as_secs();
            let buffer = scenario.nodes.get(&flow.to)?.tcp.receive_buffer.0 as f64;
            (seconds > 0.0).then(|| f64::from(flow.parallel) * buffer * 8.0 / seconds / 1e6)
        };
        self.flows(scenario).map(each).sum()
    }

    fn flows<'a>(&'a self, scenario: &'a Scenario) -> impl Iterator<Item = &'a Flow> {
        scenario.flows.iter().filter(|(name, _)| self.is_of(name)).map(|(_, flow)| flow)
    }
}
