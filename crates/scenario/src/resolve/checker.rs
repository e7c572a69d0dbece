//! What is checked alike in several places.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use ekiden_config::Source;
use ekiden_files::suggestion;
use serde_spanned::Spanned;

use crate::left_out::DEFAULT_FORWARDS;
use crate::raw::{Named, RawNode};
use crate::via::AUTO;
use crate::{Error, NodeKind};

const NAME_LENGTH_MOST: usize = 32;

/// Turns what is wrong at a place of the text into an error that names its line.
pub(super) struct Checker<'a> {
    pub source: Source<'a>,
}

impl Checker<'_> {
    /// What is wrong with what stands at `span`.
    pub fn wrong(&self, span: Range<usize>, reason: impl Into<String>) -> Error {
        self.source.error(Some(span), reason.into()).into()
    }

    /// Names become file names, host names and parts of `--set` paths.
    pub fn name(&self, what: &str, name: &Spanned<String>) -> Result<(), Error> {
        let text = name.get_ref();
        let fits = (1..=NAME_LENGTH_MOST).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !text.starts_with('-');
        if fits {
            return Ok(());
        }
        let reason = format!("'{text}' cannot name a {what}: 1 to {NAME_LENGTH_MOST} letters, digits, '-' and '_'");
        Err(self.wrong(name.span(), reason))
    }

    /// As any name, but for the word that a flow's `via` has for nodes' own choice.
    pub fn node_name(&self, name: &Spanned<String>) -> Result<(), Error> {
        if name.get_ref() == AUTO {
            let reason = format!("'{AUTO}' cannot name a node: in a flow's 'via' it lets nodes choose the path");
            return Err(self.wrong(name.span(), reason));
        }
        self.name("node", name)
    }

    pub fn known(&self, name: &Spanned<String>, nodes: &Named<RawNode>) -> Result<(), Error> {
        if nodes.contains_key(name) {
            return Ok(());
        }
        let near = suggestion(name.get_ref(), nodes.keys().map(|known| known.get_ref().as_str()));
        Err(self.wrong(name.span(), format!("there is no node '{}'{near}", name.get_ref())))
    }

    /// A known node that forwards packets.
    pub fn forwards(&self, name: &Spanned<String>, nodes: &Named<RawNode>) -> Result<(), Error> {
        self.known(name, nodes)?;
        let node = &nodes[name];
        match node.kind {
            Some(NodeKind::Router) => Ok(()),
            Some(NodeKind::Proxy)
                if node.forwards.as_ref().map_or(DEFAULT_FORWARDS, |forwards| *forwards.get_ref()) =>
            {
                Ok(())
            }
            Some(NodeKind::Proxy) => {
                let reason = format!("node '{}' has forwards = false, and must forward packets here", name.get_ref());
                Err(self.wrong(name.span(), reason))
            }
            _ => {
                let reason = format!("node '{}' is a host; only routers and proxies forward", name.get_ref());
                Err(self.wrong(name.span(), reason))
            }
        }
    }

    /// Each is a known proxy, and none comes twice.
    pub fn proxies(&self, chain: &[Spanned<String>], nodes: &Named<RawNode>) -> Result<(), Error> {
        for (i, proxy) in chain.iter().enumerate() {
            self.known(proxy, nodes)?;
            if nodes[proxy].kind != Some(NodeKind::Proxy) {
                return Err(self.wrong(proxy.span(), format!("node '{}' is not a proxy", proxy.get_ref())));
            }
            if chain[..i].contains(proxy) {
                return Err(self.wrong(proxy.span(), format!("'{}' comes twice in a chain", proxy.get_ref())));
            }
        }
        Ok(())
    }

    pub fn within<T: Copy + PartialOrd + Display>(
        &self,
        key: &str,
        raw: &Option<Spanned<T>>,
        default: T,
        range: &RangeInclusive<T>,
    ) -> Result<T, Error> {
        match raw {
            None => Ok(default),
            Some(value) if range.contains(value.get_ref()) => Ok(*value.get_ref()),
            Some(value) => Err(self.outside(key, &value.span(), *value.get_ref(), range)),
        }
    }

    pub fn outside<T: Display>(&self, key: &str, at: &Range<usize>, value: T, range: &RangeInclusive<T>) -> Error {
        let reason = format!("{key} = {value} is out of range: {} to {}", range.start(), range.end());
        self.wrong(at.clone(), reason)
    }
}
