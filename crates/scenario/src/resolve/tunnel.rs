//! TCP tunnels.

use ekiden_units::Bytes;
use indexmap::IndexMap;
use toml::Spanned;

use super::checker::Checker;
use crate::left_out::DEFAULT_SEPARATE;
use crate::raw::{Named, RawNode, RawTunnel};
use crate::{Discipline, Error, Pull, Queue, Scenario, Tunnel};

const DEFAULT_CONNECTIONS: u32 = 1;
const DEFAULT_DISCIPLINE: Discipline = Discipline::DropTail;

impl Checker<'_> {
    pub fn tunnels(
        &self,
        raw: &Named<RawTunnel>,
        nodes: &Named<RawNode>,
        scenario: &Scenario,
    ) -> Result<IndexMap<String, Tunnel>, Error> {
        let mut tunnels: IndexMap<String, Tunnel> = IndexMap::new();
        for (name, tunnel) in raw {
            self.name("tunnel", name)?;
            let what = format!("tunnel '{}'", name.get_ref());
            let [first, second] = &tunnel.ends;
            self.forwards(first, nodes)?;
            self.forwards(second, nodes)?;
            if first == second {
                let reason = format!("{what} leads from '{}' to itself", first.get_ref());
                return Err(self.wrong(second.span(), reason));
            }
            self.stretches(scenario, &what, first, std::slice::from_ref(second))?;
            let ends = tunnel.ends.each_ref().map(|end| end.get_ref().clone());
            if let Some((other, _)) = tunnels.iter().find(|(_, other)| ends.iter().all(|end| other.ends.contains(end)))
            {
                let reason = format!("{what} has the same ends as tunnel '{other}'");
                return Err(self.wrong(name.span(), reason));
            }
            let at_an_end = scenario.links.values().filter(|link| ends.iter().any(|end| link.ends.contains(end)));
            let mtu = at_an_end.map(|link| link.mtu()).max().unwrap_or_default();
            let connections =
                self.within("connections", &tunnel.connections, DEFAULT_CONNECTIONS, &Pull::CONNECTIONS)?;
            let separate = tunnel.separate.unwrap_or(DEFAULT_SEPARATE);
            if separate && connections == *Pull::CONNECTIONS.end() {
                let span = tunnel.connections.as_ref().map_or(name.span(), Spanned::span);
                let most = connections - 1;
                let reason = format!("connections may be at most {most} with 'separate', which adds one");
                return Err(self.wrong(span, reason));
            }
            let queue = self.queue(tunnel.queue.as_ref(), Queue::Bytes(Pull::LIMIT), mtu)?;
            self.tunnel_limit(tunnel.queue.as_ref(), mtu)?;
            let discipline = tunnel.discipline.as_ref().map_or(DEFAULT_DISCIPLINE, |discipline| *discipline.get_ref());
            let pull = self.pull(tunnel, discipline)?;
            let tcp = self.tcp(&tunnel.tcp, &scenario.nodes[&ends[0]].tcp)?;
            tunnels
                .insert(name.get_ref().clone(), Tunnel { ends, connections, separate, queue, discipline, pull, tcp });
        }
        Ok(tunnels)
    }

    /// A tunnel that runs holds less than a link may: it is this host's memory.
    fn tunnel_limit(&self, raw: Option<&Spanned<Queue>>, mtu: u32) -> Result<(), Error> {
        let Some(raw) = raw else { return Ok(()) };
        let bytes = match *raw.get_ref() {
            Queue::Bytes(bytes) => bytes,
            Queue::Packets(packets) => Bytes(packets.saturating_mul(mtu.max(Pull::MTU_LEAST).into())),
        };
        match Pull::LIMITS.contains(&bytes) {
            true => Ok(()),
            false => Err(self.outside("queue", &raw.span(), bytes, &Pull::LIMITS)),
        }
    }

    /// What only FQ-CoDel has.
    fn pull(&self, raw: &RawTunnel, discipline: Discipline) -> Result<Option<Pull>, Error> {
        let keys = [
            ("target", raw.target.as_ref().map(Spanned::span)),
            ("interval", raw.interval.as_ref().map(Spanned::span)),
            ("unsent", raw.unsent.as_ref().map(Spanned::span)),
            ("paced", raw.paced.as_ref().map(Spanned::span)),
        ];
        match (discipline, keys.into_iter().find_map(|(key, span)| Some((key, span?)))) {
            (Discipline::FqCodel, _) => {
                let default = Pull::default();
                let target = self.within("target", &raw.target, default.target, &Pull::DELAYS)?;
                let interval = self.within("interval", &raw.interval, default.interval, &Pull::DELAYS)?;
                let unsent = self.within("unsent", &raw.unsent, default.unsent, &Pull::UNSENT)?;
                let paced = raw.paced.as_ref().map_or(default.paced, |paced| *paced.get_ref());
                let pull = Pull { target, interval, unsent, paced };
                match raw.target.as_ref().or(raw.interval.as_ref()).zip(pull.problem()) {
                    Some((longer, reason)) => Err(self.wrong(longer.span(), reason)),
                    None => Ok(Some(pull)),
                }
            }
            (Discipline::DropTail, None) => Ok(None),
            (Discipline::DropTail, Some((key, span))) => {
                Err(self.wrong(span, format!("'{key}' needs 'discipline = \"fq_codel\"'")))
            }
            (Discipline::Red | Discipline::Codel, _) => {
                let span = raw.discipline.as_ref().map(Spanned::span).unwrap_or_default();
                Err(self.wrong(span, "a tunnel's discipline is \"drop_tail\" or \"fq_codel\""))
            }
        }
    }
}
