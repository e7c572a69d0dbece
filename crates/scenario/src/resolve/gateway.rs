//! Gateways that balance windows.

use std::ops::RangeInclusive;

use ekiden_units::Fraction;
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::checker::Checker;
use crate::raw::{Named, RawGateway, RawNode};
use crate::{Error, Flow, Gateway, GatewayPolicy, ObservedFlow, PaperPolicy, Scenario};

/// S2, chapter 3, as the next.
const DEFAULT_REPEATS: u32 = 100;
const DEFAULT_PART: Fraction = Fraction(800_000_000);
const DEFAULT_OBSERVES: ObservedFlow = ObservedFlow::Acknowledged;
const DEFAULT_ENABLED: bool = true;

const REPEATS: RangeInclusive<u32> = 1..=100_000;
const PARTS: RangeInclusive<Fraction> = Fraction(1)..=Fraction::ONE;

impl Checker<'_> {
    pub fn gateways(
        &self,
        raw: &Named<RawGateway>,
        nodes: &Named<RawNode>,
        scenario: &Scenario,
    ) -> Result<IndexMap<String, Gateway>, Error> {
        let mut gateways = IndexMap::new();
        let mut groups: IndexMap<&str, &str> = IndexMap::new();
        for (name, gateway) in raw {
            self.name("gateway", name)?;
            self.forwards(&gateway.node, nodes)?;
            let node = gateway.node.get_ref();
            if gateway.flows.is_empty() {
                return Err(self.wrong(name.span(), format!("gateway '{}' has no flows", name.get_ref())));
            }
            for flow_name in &gateway.flows {
                let refuse = |reason: String| Err(self.wrong(flow_name.span(), reason));
                let Some(flow) = scenario.flows.get(flow_name.get_ref()) else {
                    return refuse(format!("there is no flow '{}'", flow_name.get_ref()));
                };
                if flow.file.is_some() {
                    return refuse(format!(
                        "flow '{}' has a 'file', so its connections follow one another; a gateway balances connections that are \
                         there at once",
                        flow_name.get_ref()
                    ));
                }
                if flow.fetch.is_some() {
                    return refuse(format!(
                        "the receiver fetches flow '{}', so its connections are not known before; a gateway's group has no such flow",
                        flow_name.get_ref()
                    ));
                }
                if flow.via.chosen().is_some() {
                    return refuse(format!(
                        "the nodes choose the path of flow '{}', so its connections are not known before; a gateway's group has no such flow",
                        flow_name.get_ref()
                    ));
                }
                if !passes(scenario, flow, node) {
                    return refuse(format!("flow '{}' does not pass through '{node}'", flow_name.get_ref()));
                }
                if let Some(other) = groups.insert(flow_name.get_ref(), name.get_ref()) {
                    return refuse(format!(
                        "flow '{}' is in the group of gateway '{other}' already",
                        flow_name.get_ref()
                    ));
                }
            }
            let resolved = Gateway {
                node: node.clone(),
                flows: gateway.flows.iter().map(|flow| flow.get_ref().clone()).collect(),
                policy: gateway.policy.unwrap_or_default(),
                paper: self.paper_policy(gateway)?,
                enabled: gateway.enabled.unwrap_or(DEFAULT_ENABLED),
            };
            gateways.insert(name.get_ref().clone(), resolved);
        }
        Ok(gateways)
    }

    /// The settings of the paper's policy, which another has no use for.
    fn paper_policy(&self, raw: &RawGateway) -> Result<Option<PaperPolicy>, Error> {
        let spans = [
            ("repeats", raw.repeats.as_ref().map(Spanned::span)),
            ("part", raw.part.as_ref().map(Spanned::span)),
            ("observes", raw.observes.as_ref().map(Spanned::span)),
        ];
        match raw.policy.unwrap_or_default() {
            GatewayPolicy::Paper => Ok(Some(PaperPolicy {
                repeats: self.within("repeats", &raw.repeats, DEFAULT_REPEATS, &REPEATS)?,
                part: self.within("part", &raw.part, DEFAULT_PART, &PARTS)?,
                observes: raw.observes.as_ref().map_or(DEFAULT_OBSERVES, |observes| *observes.get_ref()),
            })),
            _ => match spans.into_iter().find_map(|(key, span)| Some((key, span?))) {
                None => Ok(None),
                Some((key, span)) => Err(self.wrong(span, format!("'{key}' needs 'policy = \"paper\"'"))),
            },
        }
    }
}

/// Whether a stretch of the flow, between two ends of one connection, leads through `node` there and back: the gateway
/// needs data and acknowledgements.
fn passes(scenario: &Scenario, flow: &Flow, node: &str) -> bool {
    let through = |from: &str, to: &str| {
        let hops = scenario.path(from, to).unwrap_or_default();
        hops.iter().skip(1).any(|hop| hop.from == node)
    };
    let mut stops = vec![&flow.from];
    stops.extend(&flow.via);
    stops.push(&flow.to);
    stops.windows(2).any(|stretch| through(stretch[0], stretch[1]) && through(stretch[1], stretch[0]))
}
