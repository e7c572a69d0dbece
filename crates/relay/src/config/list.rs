//! The patterns of a file, one a line, indexed: a look-up takes as long however many they are.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::Path;

use ekiden_files::ConfigError;
use ekiden_relay_proto::{Host, Target};
use ekiden_units::without_dot;
use ipnet::IpNet;

use crate::config::address::embedded_v4;
use crate::config::pattern::{Hosts, Pattern};

/// A set of destinations: the union of many patterns.
#[derive(Debug, Default)]
pub struct List {
    /// Those of patterns without a port ...
    at_all_ports: HostSet,
    /// ... and of patterns with one.
    at_port: HashMap<u16, HostSet>,
}

#[derive(Debug, Default)]
struct HostSet {
    has_all: bool,
    names: HashSet<Box<str>>,
    /// Domains, with all below them.
    domains: HashSet<Box<str>>,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// First and last of each range. They are apart, and in order, once they are merged.
#[derive(Debug, Default)]
struct Ranges<T>(Vec<(T, T)>);

impl List {
    /// Reads the patterns of `text`, one a line. What begins with `#`, at the line's beginning or after a blank, is a comment.
    ///
    /// # Errors
    /// A line is no pattern: with its number in `file`.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let mut list = Self::default();
        for (before, line) in text.lines().enumerate() {
            let written = without_comment(line);
            if written.is_empty() {
                continue;
            }
            let pattern = Pattern::parse(written)
                .map_err(|reason| ConfigError { line: Some(before + 1), ..ConfigError::whole(file, reason) })?;
            list.add(&pattern);
        }
        list.at_port.values_mut().chain([&mut list.at_all_ports]).for_each(HostSet::merge);
        Ok(list)
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.at_port.is_empty() && self.at_all_ports.is_empty()
    }

    fn add(&mut self, pattern: &Pattern) {
        let (hosts, port) = pattern.parts();
        match port {
            None => self.at_all_ports.add(hosts),
            Some(port) => self.at_port.entry(port).or_default().add(hosts),
        }
    }

    /// Whether `target` is in the set.
    pub fn matches(&self, target: &Target) -> bool {
        self.at(Some(target.port)).any(|set| match &target.host {
            // An IPv4 network also means its addresses written as IPv4-mapped IPv6.
            Host::Ip(ip) => set.has_all || set.has_ip(*ip) || set.has_ip_of(ip),
            Host::Name(name) => set.has_all || set.has_name(without_dot(name)),
        })
    }

    /// Whether `target` is in the set, or an IPv6 address by which packets may reach an IPv4 address in it.
    pub fn reaches(&self, target: &Target) -> bool {
        let embedded = match target.host {
            Host::Ip(ip) if ip.is_ipv6() => embedded_v4(ip),
            Host::Ip(_) | Host::Name(_) => None,
        };
        self.matches(target)
            || embedded.is_some_and(|v4| self.matches(&Target { host: Host::Ip(v4.into()), port: target.port }))
    }

    /// Whether all that `pattern` is for is in the set, at that port.
    pub fn covers(&self, pattern: &Pattern) -> bool {
        let (hosts, port) = pattern.parts();
        self.at(port).any(|set| set.covers(hosts))
    }

    /// What counts at a port.
    fn at(&self, port: Option<u16>) -> impl Iterator<Item = &HostSet> {
        [&self.at_all_ports].into_iter().chain(port.and_then(|port| self.at_port.get(&port)))
    }
}

impl HostSet {
    fn is_empty(&self) -> bool {
        !self.has_all
            && self.names.is_empty()
            && self.domains.is_empty()
            && self.v4.0.is_empty()
            && self.v6.0.is_empty()
    }

    fn add(&mut self, hosts: &Hosts) {
        match hosts {
            Hosts::All => self.has_all = true,
            Hosts::Net(IpNet::V4(net)) => self.v4.0.push((net.network().into(), net.broadcast().into())),
            Hosts::Net(IpNet::V6(net)) => self.v6.0.push((net.network().into(), net.broadcast().into())),
            Hosts::Suffix(domain) => drop(self.domains.insert(domain.as_str().into())),
            Hosts::Name(name) => drop(self.names.insert(name.as_str().into())),
        }
    }

    fn merge(&mut self) {
        self.v4.merge();
        self.v6.merge();
    }

    fn has_ip(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.v4.have(ip.into(), ip.into()),
            IpAddr::V6(ip) => self.v6.have(ip.into(), ip.into()),
        }
    }

    /// Whether it has the IPv4 address that an IPv6 address is mapped from.
    fn has_ip_of(&self, ip: &IpAddr) -> bool {
        let canonical = ip.to_canonical();
        canonical != *ip && self.has_ip(canonical)
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.contains(name) || self.has_domain_of(name)
    }

    /// Whether a name or domain is one of the domains, or below one.
    fn has_domain_of(&self, name: &str) -> bool {
        let mut rest = (!self.domains.is_empty()).then_some(name);
        while let Some(domain) = rest {
            if self.domains.contains(domain) {
                return true;
            }
            rest = domain.split_once('.').map(|(_, above)| above);
        }
        false
    }

    fn covers(&self, hosts: &Hosts) -> bool {
        self.has_all
            || match hosts {
                Hosts::All => false,
                Hosts::Net(IpNet::V4(net)) => self.v4.have(net.network().into(), net.broadcast().into()),
                Hosts::Net(IpNet::V6(net)) => self.v6.have(net.network().into(), net.broadcast().into()),
                Hosts::Suffix(domain) => self.has_domain_of(domain),
                Hosts::Name(name) => self.has_name(name),
            }
    }
}

impl<T: Copy + Ord> Ranges<T> {
    /// Puts them in order, and makes one of those that overlap.
    fn merge(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|(first, last), (_, before)| {
            let overlaps = *first <= *before;
            if overlaps {
                *before = (*before).max(*last);
            }
            overlaps
        });
        self.0.shrink_to_fit();
    }

    /// Whether all from `first` to `last` are in one of them.
    fn have(&self, first: T, last: T) -> bool {
        let at = self.0.partition_point(|&(begins, _)| begins <= first);
        at.checked_sub(1).is_some_and(|at| self.0[at].1 >= last)
    }
}

/// What a line says.
fn without_comment(line: &str) -> &str {
    let is_comment = |&(at, _): &(usize, &str)| at == 0 || line[..at].ends_with([' ', '\t']);
    let end = line.match_indices('#').find(is_comment).map_or(line.len(), |(at, _)| at);
    line[..end].trim()
}

#[cfg(test)]
mod tests;
