//! `[class.NAME]`, and who is of which class.

use ekiden_overlay::path::Class;
use ekiden_queue::Service;
use ekiden_units::BitRate;
use indexmap::IndexMap;
use serde_spanned::Spanned;

use super::{Resolver, Result};
use crate::config::classes::{Classes, INTERACTIVE, ServiceClass};
use crate::config::limits::Limits;
use crate::config::raw::{CLASS_RATES, CLASS_STREAMS, CLASS_WAITS, Raw, RawClass, RawKindOfPath, RawListen, WEIGHTS};
use ekiden_config::{Quantity, range};

impl Resolver<'_> {
    /// All classes. The users that they name must be users of a listener, or can come into a file of users.
    pub(super) fn classes(&self, raw: &Raw, limits: &Limits) -> Result<Classes> {
        let mut classes = IndexMap::new();
        let mut users: IndexMap<String, String> = IndexMap::new();
        for (name, written) in &raw.class {
            let class = self.class(name.get_ref(), written.get_ref(), limits)?;
            for user in written.get_ref().users.iter().flatten() {
                let known = |listener: &Spanned<RawListen>| {
                    let RawListen { users, users_file, tls, .. } = listener.get_ref();
                    let written = users.as_ref().map(Spanned::get_ref).filter(|users| !users.is_empty());
                    // Which names there are in certificates, their authority alone knows.
                    let is_certified = || tls.as_ref().is_some_and(|tls| tls.get_ref().client_ca_file.is_some());
                    written.map_or_else(is_certified, |users| users.contains_key(user.get_ref()))
                        || users_file.is_some()
                };
                if !raw.listen.values().any(known) {
                    return Err(self.error(Some(user.span()), format!("no listener has a user '{}'", user.get_ref())));
                }
                if let Some(other) = users.insert(user.get_ref().clone(), name.get_ref().clone()) {
                    let message = format!("the user '{}' is of the class '{other}' already", user.get_ref());
                    return Err(self.error(Some(user.span()), message));
                }
            }
            classes.insert(self.name(name, "class")?, class);
        }
        Ok(Classes::of(classes, limits.connect))
    }

    fn class(&self, name: &str, raw: &RawClass, limits: &Limits) -> Result<ServiceClass> {
        for (key, rate) in [("ceiling", &raw.ceiling), ("floor", &raw.floor)] {
            if let Some(rate) = rate.as_ref().filter(|rate| !CLASS_RATES.contains(rate.get_ref())) {
                return Err(self.error(Some(rate.span()), format!("{key} must be from {}", range(&CLASS_RATES))));
            }
        }
        if let Some(weight) = raw.weight.as_ref().filter(|weight| !WEIGHTS.contains(weight.get_ref())) {
            return Err(self.error(Some(weight.span()), format!("weight must be from {}", range(&WEIGHTS))));
        }
        if let Some(streams) = raw.streams.as_ref().filter(|streams| !CLASS_STREAMS.contains(streams.get_ref())) {
            return Err(self.error(Some(streams.span()), format!("streams must be from {}", range(&CLASS_STREAMS))));
        }
        if let Some(wait) = raw.wait.as_ref().filter(|wait| !CLASS_WAITS.contains(wait.get_ref())) {
            return Err(self.error(Some(wait.span()), format!("wait must be from {}", range(&CLASS_WAITS))));
        }
        if let (Some(wait), None) = (&raw.wait, &raw.streams) {
            return Err(self.error(Some(wait.span()), "'wait' needs 'streams': without it no stream waits".into()));
        }
        let rate = |rate: &Option<Spanned<BitRate>>| rate.as_ref().map(|rate| *rate.get_ref());
        let (ceiling, floor) = (rate(&raw.ceiling), rate(&raw.floor));
        if let (Some(ceiling), Some(floor), Some(written)) = (ceiling, floor, &raw.floor)
            && floor > ceiling
        {
            let message = format!("the floor of '{name}', {floor}, is above its ceiling, {ceiling}");
            return Err(self.error(Some(written.span()), message));
        }
        let kind = match raw.kind {
            Some(RawKindOfPath::Bulk) => Class::Bulk,
            Some(RawKindOfPath::Interactive) => Class::Interactive,
            None if name == INTERACTIVE => Class::Interactive,
            None => Class::Bulk,
        };
        Ok(ServiceClass {
            kind,
            service: Service { weight: raw.weight().value(), ceiling, floor },
            users: raw.users.iter().flatten().map(|user| user.get_ref().clone()).collect(),
            streams: raw.streams.as_ref().map(|streams| streams.get_ref().value()),
            wait: raw.wait.as_ref().map_or(limits.connect, |wait| wait.get_ref().value()),
        })
    }

    /// A class that a route or a listener names.
    pub(super) fn class_name(&self, name: &Spanned<String>, classes: &Classes) -> Result<String> {
        if !classes.has(name.get_ref()) {
            let known: Vec<&str> = classes.iter().map(|(name, _)| name).collect();
            let message = format!("there is no [class.{}]: known are {}", name.get_ref(), known.join(", "));
            return Err(self.error(Some(name.span()), message));
        }
        Ok(name.get_ref().clone())
    }
}
