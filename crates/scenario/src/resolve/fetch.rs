//! Flows that the receiver fetches, and the programs of the proxies on their way.

use serde_spanned::Spanned;

use super::checker::Checker;
use crate::left_out::DEFAULT_PROGRAM;
use crate::raw::{Named, RawFlow, RawNode};
use crate::via::Via;
use crate::{Error, Fetch, NodeKind, Program};

impl Checker<'_> {
    /// Whether a node may have its `program`.
    pub fn program(&self, name: &Spanned<String>, kind: NodeKind, node: &RawNode) -> Result<(), Error> {
        let Some(program) = &node.program else { return Ok(()) };
        if kind != NodeKind::Proxy {
            let reason = format!("node '{}' has 'program', which only a proxy has", name.get_ref());
            return Err(self.wrong(program.span(), reason));
        }
        match node.next.first() {
            Some(next) if *program.get_ref() != Program::Ekiden => {
                let reason = format!(
                    "node '{}' has 'next', which ekiden alone has; another program goes on by the 'via' of flows",
                    name.get_ref()
                );
                Err(self.wrong(next.span(), reason))
            }
            _ => Ok(()),
        }
    }

    /// The `fetch` of a flow, which its proxies must have.
    pub fn fetch(
        &self,
        name: &Spanned<String>,
        flow: &RawFlow,
        via: &Via,
        nodes: &Named<RawNode>,
    ) -> Result<Option<Fetch>, Error> {
        let fetch = flow.fetch.as_ref().map(|fetch| *fetch.get_ref());
        let of = |proxy: &str| {
            nodes
                .get(proxy)
                .and_then(|node| node.program.as_ref())
                .map_or(DEFAULT_PROGRAM, |program| *program.get_ref())
        };
        for proxy in via.iter() {
            let (program, word) = match of(proxy) {
                Program::Ekiden => continue,
                Program::Dante if fetch == Some(Fetch::Socks) => continue,
                Program::Squid if matches!(fetch, Some(Fetch::Http | Fetch::Ftp)) => continue,
                Program::Dante => ("dante", "\"socks\""),
                Program::Squid => ("squid", "\"http\" or \"ftp\""),
            };
            let reason = format!(
                "flow '{}' goes via '{proxy}', whose program is {program}: that needs fetch = {word}",
                name.get_ref()
            );
            return Err(self.wrong(name.span(), reason));
        }
        let Some(raw) = &flow.fetch else { return Ok(None) };
        let wrong = |what: &str| {
            let reason = format!("flow '{}' has 'fetch', and so {what}", name.get_ref());
            Err(self.wrong(raw.span(), reason))
        };
        if let Some(other) = via.iter().find(|proxy| of(proxy) != of(&via[0])) {
            return wrong(&format!("all its proxies run one program; '{other}' runs another one than '{}'", via[0]));
        }
        if flow.bytes.is_none() {
            return wrong("needs 'bytes', the size of the file");
        }
        if flow.parallel.as_ref().is_some_and(|parallel| *parallel.get_ref() != 1) {
            return wrong("is one connection; leave 'parallel' out");
        }
        if via.chosen().is_some() {
            return wrong("names its proxies; 'auto' is for others");
        }
        if fetch == Some(Fetch::Socks) && via.is_empty() {
            return wrong("needs a proxy in 'via' that speaks SOCKS5");
        }
        Ok(fetch)
    }
}
