//! The legs between the nodes of an overlay, as the scenario has them.

use ekiden_scenario::{Outage, Scenario};
use ekiden_units::Time;

use crate::sockets::{Between, Sockets};

/// All legs, each direction by itself.
pub(super) struct Legs {
    nodes: usize,
    list: Vec<Leg>,
}

struct Leg {
    between: Between,
    /// The base round trip; `None` where there is no way.
    rtt: Option<Time>,
    outages: Vec<Outage>,
}

impl Legs {
    pub fn new(scenario: &Scenario, names: &[&str], sockets: &Sockets) -> Self {
        let pairs = names.iter().flat_map(|from| names.iter().map(move |to| [*from, *to]));
        let leg = |nodes: [&str; 2]| Leg {
            between: sockets.between(nodes, nodes.map(|node| &scenario.nodes[node].tcp)),
            rtt: scenario.base_rtt(nodes[0], nodes[1]),
            outages: {
                let hops = scenario.path(nodes[0], nodes[1]).unwrap_or_default();
                hops.iter().flat_map(|hop| hop.direction().outages.clone()).collect()
            },
        };
        Self { nodes: names.len(), list: pairs.map(leg).collect() }
    }

    fn leg(&self, from: usize, to: usize) -> &Leg {
        &self.list[from * self.nodes + to]
    }

    pub fn between(&self, from: usize, to: usize) -> &Between {
        &self.leg(from, to).between
    }

    /// The base round trip; none where there is no way.
    pub fn rtt(&self, from: usize, to: usize) -> Time {
        self.leg(from, to).rtt.unwrap_or_default()
    }

    /// Whether nothing comes from one to the other now.
    pub fn is_cut(&self, from: usize, to: usize, now: Time) -> bool {
        let leg = self.leg(from, to);
        leg.rtt.is_none() || leg.outages.iter().any(|outage| (outage.at..outage.at + outage.lasts).contains(&now))
    }

    /// How long something takes from one end of a path to the other.
    pub fn there(&self, path: &[usize]) -> Time {
        path.windows(2).fold(Time(0), |sum, leg| sum + Time(self.rtt(leg[0], leg[1]).0 / 2))
    }
}
