//! Checks what a configuration says, and puts in the defaults.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use ekiden_files::{explain, in_range};
use ekiden_units::{Bytes, HostPort, Time};
use serde_spanned::Spanned;

use super::raw::{Raw, RawTarget};
use super::{Config, ConfigError, Direction, Offset, Server, Target, long_time};

/// A measurement takes seconds, and its server serves others too.
const INTERVAL: RangeInclusive<Time> = Time::secs(10)..=Time::secs(7 * 86_400);
const INTERVAL_DEFAULT: Time = Time::secs(1800);
/// A day at least: the picture is by hour of day.
const KEEP: RangeInclusive<Time> = Time::secs(86_400)..=Time::secs(100 * 365 * 86_400);
const BYTES: RangeInclusive<Bytes> = Bytes(1000)..=Bytes(1_000_000_000_000);
const BYTES_DEFAULT: Bytes = Bytes(100_000_000);
const DURATION: RangeInclusive<Time> = Time::ms(100)..=Time::secs(3600);
const DURATION_DEFAULT: Time = Time::secs(10);
const STREAMS: RangeInclusive<i64> = 1..=128;

/// A configuration, from its text. `file` is where errors say that it is.
pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
    let source = Source { text, file };
    let raw: Raw = toml::from_str(text).map_err(|error| source.error(error.span(), explain(text, &error)))?;
    source.resolve(&raw)
}

/// The file that errors name, and its text, in which they find the line.
struct Source<'a> {
    text: &'a str,
    file: &'a Path,
}

impl Source<'_> {
    fn resolve(&self, raw: &Raw) -> Result<Config, ConfigError> {
        let interval = self.or_default("interval", raw.interval.as_ref(), INTERVAL_DEFAULT, &INTERVAL)?;
        let offset = raw.offset.as_ref().map_or(Ok(Offset::Random), |offset| self.offset(offset, interval))?;
        let keep = raw.keep.as_ref().map(|keep| self.in_range("keep", keep, &KEEP)).transpose()?;
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
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !(1..=64).contains(&name.get_ref().len()) || !name.get_ref().chars().all(letters) {
            let reason = "cannot be the name of a target: 1 to 64 letters, digits, '-', '_' and '.'";
            return Err(self.error(Some(name.span()), format!("{:?} {reason}", name.get_ref())));
        }
        let target = raw.get_ref();
        let streams = target.streams.as_ref().map_or(Ok(1), |streams| self.in_range("streams", streams, &STREAMS))?;
        let via = target.via.as_ref().map(|via| self.address("via", via, true)).transpose()?;
        Ok(Target {
            name: name.get_ref().clone(),
            server: self.server(name, target, has_key)?,
            via,
            direction: target.direction.unwrap_or(Direction::Receive),
            bytes: target.bytes.as_ref().map_or(Ok(BYTES_DEFAULT), |bytes| self.bytes(bytes))?,
            duration: self.or_default("duration", target.duration.as_ref(), DURATION_DEFAULT, &DURATION)?,
            streams: streams as u32,
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
        Ok(self.file.parent().unwrap_or(Path::new("")).join(raw.get_ref()))
    }

    fn or_default<T: Copy + PartialOrd + Display>(
        &self,
        key: &str,
        value: Option<&Spanned<T>>,
        default: T,
        range: &RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        value.map_or(Ok(default), |value| self.in_range(key, value, range))
    }

    fn bytes(&self, value: &Spanned<Bytes>) -> Result<Bytes, ConfigError> {
        in_range("bytes", value.get_ref(), &BYTES, |bytes| bytes.rounded())
            .map_err(|reason| self.error(Some(value.span()), reason))
    }

    fn in_range<T: Copy + PartialOrd + Display>(
        &self,
        key: &str,
        value: &Spanned<T>,
        range: &RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        in_range(key, value.get_ref(), range, |value| long_time(value))
            .map_err(|reason| self.error(Some(value.span()), reason))
    }

    fn error(&self, span: Option<Range<usize>>, reason: String) -> ConfigError {
        ConfigError::at(self.file, self.text, span, reason)
    }
}
