//! Copies of nodes: `[node.sender] copies = 8` stands for `sender-0` to `sender-7`. Links, flows, background and pings that name
//! `sender` are copied with it, each copy for the node of its number.
//!
//! This is done on the raw file, so that nothing after it knows of copies.

use std::ops::RangeInclusive;

use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::NODES_MOST;
use super::checker::Checker;
use crate::Error;
use crate::raw::{Named, RawBackground, RawFlow, RawLink, RawPing, RawScenario};

const COPIES: RangeInclusive<u32> = 1..=NODES_MOST as u32;

/// How many copies there are of nodes or flows, by their name in the file.
type Counts = IndexMap<String, u32>;

impl Checker<'_> {
    /// The file with every copy written out.
    pub fn copies(&self, mut raw: RawScenario) -> Result<RawScenario, Error> {
        let mut counts = Counts::new();
        for (name, node) in &raw.node {
            if node.copies.is_some() {
                counts.insert(name.get_ref().clone(), self.within("copies", &node.copies, 1, &COPIES)?);
            }
        }
        if counts.is_empty() {
            return Ok(raw);
        }
        self.names_no_copied(&raw, &counts)?;
        let mut nodes = Named::new();
        for (name, node) in raw.node {
            match counts.get(name.get_ref()) {
                None => self.add(&mut nodes, "node", name, node)?,
                Some(&count) => {
                    for number in 0..count {
                        self.add(&mut nodes, "node", numbered(&name, number), node.clone())?;
                    }
                }
            }
        }
        raw.node = nodes;
        raw.link = self.copied("link", raw.link, &counts)?.0;
        let flow_counts;
        (raw.flow, flow_counts) = self.copied("flow", raw.flow, &counts)?;
        raw.background = self.copied("background", raw.background, &counts)?.0;
        raw.ping = self.copied("ping", raw.ping, &counts)?.0;
        for gateway in raw.gateway.values_mut() {
            let all = |flow: &Spanned<String>| match flow_counts.get(flow.get_ref()) {
                None => vec![flow.clone()],
                Some(&count) => (0..count).map(|number| numbered(flow, number)).collect(),
            };
            gateway.flows = gateway.flows.iter().flat_map(all).collect();
        }
        Ok(raw)
    }

    /// Everything with its copies, and how many there are of what was copied.
    fn copied<T: Joins>(&self, kind: &str, things: Named<T>, counts: &Counts) -> Result<(Named<T>, Counts), Error> {
        let mut all = Named::new();
        let mut copied = Counts::new();
        for (name, mut thing) in things {
            match self.count(kind, &name, &mut thing, counts)? {
                None => self.add(&mut all, kind, name, thing)?,
                Some(count) => {
                    for number in 0..count {
                        let mut copy = thing.clone();
                        for node in copy.nodes().into_iter().filter(|node| counts.contains_key(node.get_ref())) {
                            *node = numbered(node, number);
                        }
                        self.add(&mut all, kind, numbered(&name, number), copy)?;
                    }
                    copied.insert(name.into_inner(), count);
                }
            }
        }
        Ok((all, copied))
    }

    /// How many copies there are of each copied node that `thing` names. `None` if it names none.
    fn count(
        &self,
        kind: &str,
        name: &Spanned<String>,
        thing: &mut impl Joins,
        counts: &Counts,
    ) -> Result<Option<u32>, Error> {
        let mut first: Option<(String, u32)> = None;
        for node in thing.nodes() {
            let Some(&count) = counts.get(node.get_ref()) else { continue };
            match &first {
                None => first = Some((node.get_ref().clone(), count)),
                Some((other, others)) if *others != count => {
                    let (name, node_name) = (name.get_ref(), node.get_ref());
                    let reason = format!(
                        "{kind} '{name}' joins copy to copy, but there are {others} of '{other}' and {count} of '{node_name}'"
                    );
                    return Err(self.wrong(node.span(), reason));
                }
                Some(_) => {}
            }
        }
        Ok(first.map(|(_, count)| count))
    }

    /// Chains, tunnels and gateways name one node each.
    fn names_no_copied(&self, raw: &RawScenario, counts: &Counts) -> Result<(), Error> {
        let chains = raw.node.values().flat_map(|node| &node.next);
        let tunnels = raw.tunnel.values().flat_map(|tunnel| &tunnel.ends);
        let gateways = raw.gateway.values().map(|gateway| &gateway.node);
        match chains.chain(tunnels).chain(gateways).find(|name| counts.contains_key(name.get_ref())) {
            Some(name) => {
                let reason = format!("node '{0}' has copies; name one of them here, such as '{0}-0'", name.get_ref());
                Err(self.wrong(name.span(), reason))
            }
            None => Ok(()),
        }
    }

    fn add<T>(&self, all: &mut Named<T>, kind: &str, name: Spanned<String>, thing: T) -> Result<(), Error> {
        if all.contains_key(&name) {
            let reason = format!("{kind} '{}' is there twice, once of them as a copy", name.get_ref());
            return Err(self.wrong(name.span(), reason));
        }
        all.insert(name, thing);
        Ok(())
    }
}

/// What is copied along with the nodes that it names.
trait Joins: Clone {
    fn nodes(&mut self) -> Vec<&mut Spanned<String>>;
}

impl Joins for RawLink {
    fn nodes(&mut self) -> Vec<&mut Spanned<String>> {
        self.ends.iter_mut().collect()
    }
}

impl Joins for RawFlow {
    fn nodes(&mut self) -> Vec<&mut Spanned<String>> {
        [&mut self.from, &mut self.to].into_iter().chain(&mut self.via).collect()
    }
}

impl Joins for RawBackground {
    fn nodes(&mut self) -> Vec<&mut Spanned<String>> {
        vec![&mut self.from, &mut self.to]
    }
}

impl Joins for RawPing {
    fn nodes(&mut self) -> Vec<&mut Spanned<String>> {
        vec![&mut self.from, &mut self.to]
    }
}

fn numbered(name: &Spanned<String>, number: u32) -> Spanned<String> {
    Spanned::new(name.span(), format!("{}-{number}", name.get_ref()))
}
