//! Checks what a configuration says, and puts in the defaults.

use std::ops::{Deref, RangeInclusive};
use std::path::PathBuf;

use ekiden_config::{Quantity, Source};
use ekiden_files::in_range;
use ekiden_units::{Bytes, HostPort, Time, is_node_name};
use serde_spanned::Spanned;

use super::raw::{BYTES, DURATIONS, INTERVALS, KEEP, Raw, RawTarget, STREAMS};
use super::{Config, ConfigError, Offset, Server, Target, long_time};

/// A configuration, from its text.
pub fn parse(source: Source<'_>) -> Result<Config, ConfigError> {
    Resolver(source).resolve(&source.read()?)
}

/// What is written in a file, on its way to a configuration.
struct Resolver<'a>(Source<'a>);

impl<'a> Deref for Resolver<'a> {
    type Target = Source<'a>;

    fn deref(&self) -> &Source<'a> {
        &self.0
    }
}

impl Resolver<'_> {
    fn resolve(&self, raw: &Raw) -> Result<Config, ConfigError> {
        self.time("interval", raw.interval.as_ref(), &INTERVALS)?;
        let interval = raw.interval();
        let offset = raw.offset.as_ref().map_or(Ok(Offset::Random), |offset| self.offset(offset, interval))?;
        let keep = self.time("keep", raw.keep.as_ref(), &KEEP)?;
        let history = self.file_named("history", &raw.history)?;
        let prometheus = raw.prometheus.as_ref().map(|file| self.file_named("prometheus", file)).transpose()?;
        if let Some(named) = raw.prometheus.as_ref().filter(|_| prometheus.as_ref() == Some(&history)) {
            return Err(self.error(Some(named.span()), "prometheus and history name the same file".into()));
        }
        let key_file = raw.key_file.as_ref().map(|file| self.file_named("key_file", file)).transpose()?;
        let mut targets = Vec::new();
        for (name, target) in &raw.target {
            targets.push(self.target(name, target, key_file.is_some())?);
        }
        if targets.is_empty() {
            let reason = "no target is named: a table [target.NAME] with iperf3 = \"HOST:PORT\" or server = \"HOST:PORT\" is needed";
            return Err(self.error(None, reason.into()));
        }
        let config = Config { interval, offset, history, keep, prometheus, key_file, targets };
        let round = config.targets.iter().fold(Time::default(), |sum, target| sum + target.duration);
        if round > interval {
            let reason = format!(
                "the targets take up to {} one after another, longer than interval = {}",
                long_time(round),
                long_time(interval)
            );
            return Err(self.error(raw.interval.as_ref().map(Spanned::span), reason));
        }
        Ok(config)
    }

    fn offset(&self, raw: &Spanned<String>, interval: Time) -> Result<Offset, ConfigError> {
        if raw.get_ref() == "random" {
            return Ok(Offset::Random);
        }
        let error = |reason: String| self.error(Some(raw.span()), reason);
        let time: Time = raw.get_ref().parse().map_err(|_| {
            error(format!("offset: {:?} is neither \"random\" nor a time such as \"5min\"", raw.get_ref()))
        })?;
        match time < interval {
            true => Ok(Offset::Fixed(time)),
            false => {
                Err(error(format!("offset = {} must be less than interval = {}", long_time(time), long_time(interval))))
            }
        }
    }

    fn target(&self, name: &Spanned<String>, raw: &Spanned<RawTarget>, has_key: bool) -> Result<Target, ConfigError> {
        if !is_node_name(name.get_ref()) {
            let reason = "cannot be the name of a target: 1 to 64 letters, digits, '-', '_' and '.'";
            return Err(self.error(Some(name.span()), format!("{:?} {reason}", name.get_ref())));
        }
        let target = raw.get_ref();
        self.in_range_if_set("streams", target.streams.as_ref(), &STREAMS)?;
        self.time("duration", target.duration.as_ref(), &DURATIONS)?;
        target.bytes.as_ref().map(|bytes| self.bytes(bytes)).transpose()?;
        let via = target.via.as_ref().map(|via| self.address("via", via, true)).transpose()?;
        Ok(Target {
            name: name.get_ref().clone(),
            server: self.server(name, target, has_key)?,
            via,
            direction: target.direction(),
            bytes: target.bytes(),
            duration: target.duration(),
            streams: target.streams().value(),
        })
    }

    fn server(&self, name: &Spanned<String>, raw: &RawTarget, has_key: bool) -> Result<Server, ConfigError> {
        let at_target = |reason: &str| self.error(Some(name.span()), format!("[target.{}] {reason}", name.get_ref()));
        match (&raw.server, &raw.iperf3) {
            (Some(_), Some(iperf3)) => {
                Err(self.error(Some(iperf3.span()), "a target has either server or iperf3, not both".into()))
            }
            (None, None) => {
                Err(at_target("needs server = \"HOST:PORT\" (ekiden measure server) or iperf3 = \"HOST:PORT\""))
            }
            (None, Some(iperf3)) => match &raw.fingerprint {
                Some(useless) => {
                    Err(self.error(Some(useless.span()), "fingerprint: an iperf3 server has no key".into()))
                }
                None => Ok(Server::Iperf3(self.address("iperf3", iperf3, false)?)),
            },
            (Some(server), None) => {
                let address = self.address("server", server, true)?;
                let Some(fingerprint) = &raw.fingerprint else {
                    return Err(at_target(
                        "needs fingerprint = \"sha256:…\", which `ekiden keygen` printed at the server",
                    ));
                };
                if !has_key {
                    return Err(at_target(
                        "needs a key of ours: key_file = \"FILE\" at the top; `ekiden keygen FILE` makes one",
                    ));
                }
                let wrong = |reason: String| self.error(Some(fingerprint.span()), format!("fingerprint: {reason}"));
                let fingerprint = fingerprint
                    .get_ref()
                    .parse()
                    .map_err(|error: ekiden_keys::FingerprintError| wrong(error.to_string()))?;
                Ok(Server::Ekiden { address, fingerprint })
            }
        }
    }

    /// `HOST:PORT`; without a port only where there is one by default.
    fn address(&self, key: &str, raw: &Spanned<String>, needs_port: bool) -> Result<String, ConfigError> {
        let text = raw.get_ref();
        let read = if needs_port { text.parse::<HostPort>().map(drop) } else { HostPort::optional(text).map(drop) };
        match read {
            Ok(()) => Ok(text.clone()),
            Err(error) => Err(self.error(Some(raw.span()), format!("{key}: {error}"))),
        }
    }

    fn file_named(&self, key: &str, raw: &Spanned<String>) -> Result<PathBuf, ConfigError> {
        if raw.get_ref().is_empty() {
            return Err(self.error(Some(raw.span()), format!("{key} names no file")));
        }
        Ok(self.beside(raw))
    }

    fn bytes(&self, value: &Spanned<Bytes>) -> Result<Bytes, ConfigError> {
        in_range("bytes", value.get_ref(), &BYTES, |bytes| bytes.rounded())
            .map_err(|reason| self.error(Some(value.span()), reason))
    }

    /// A time, which errors tell in minutes and hours.
    fn time(
        &self,
        key: &str,
        value: Option<&Spanned<Time>>,
        range: &RangeInclusive<Time>,
    ) -> Result<Option<Time>, ConfigError> {
        let checked = |value: &Spanned<Time>| {
            in_range(key, value.get_ref(), range, |time| long_time(time))
                .map_err(|reason| self.error(Some(value.span()), reason))
        };
        value.map(checked).transpose()
    }
}
