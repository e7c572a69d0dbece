//! A description of a path, as it is written.

use std::path::Path;

use ekiden_config::Source;
use ekiden_files::{line_at, line_of};
use ekiden_model::rounds::Sender;
use ekiden_units::path::{BUFFERS, RATES, RTTS};
use ekiden_units::{BitRate, Bytes, Fraction, HostPort, HostText, Time};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_spanned::Spanned;

use crate::given::{self, Given, Values, in_range};
use crate::{Carries, Direction, Error, Estimate, Site};

/// More would make too many chains.
const SITES_MOST: usize = 12;
/// As a node's.
const NAME_LENGTH_MOST: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Option<Spanned<String>>,
    rtt: Option<Spanned<Time>>,
    rate: Option<Spanned<BitRate>>,
    buffer: Option<Spanned<Bytes>>,
    loss: Option<Spanned<Fraction>>,
    window: Option<Spanned<Bytes>>,
    client_window: Option<Spanned<Bytes>>,
    server_window: Option<Spanned<Bytes>>,
    policer: Option<RawPolicer>,
    mtu: Option<Spanned<u32>>,
    congestion: Option<RawControl>,
    streams: Option<Spanned<u32>>,
    size: Option<Spanned<Bytes>>,
    direction: Option<Direction>,
    carries: Option<Carries>,
    #[serde(default)]
    forth: RawDirection,
    #[serde(default)]
    back: RawDirection,
    #[serde(default)]
    site: IndexMap<Spanned<String>, RawSite>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawDirection {
    rate: Option<Spanned<BitRate>>,
    buffer: Option<Spanned<Bytes>>,
    loss: Option<Spanned<Fraction>>,
    window: Option<Spanned<Bytes>>,
    policer: Option<RawPolicer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicer {
    rate: Spanned<BitRate>,
    burst: Option<Spanned<Bytes>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSite {
    client_rtt: Spanned<Time>,
    server_rtt: Spanned<Time>,
    client_loss: Option<Spanned<Fraction>>,
    server_loss: Option<Spanned<Fraction>>,
    rate: Option<Spanned<BitRate>>,
    #[serde(default)]
    rtts: IndexMap<Spanned<String>, Spanned<Time>>,
    address: Option<Spanned<String>>,
    fingerprint: Option<Spanned<String>>,
}

/// Controls that hosts have by themselves.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawControl {
    Reno,
    Cubic,
    Bbr,
}

/// What a description says. `file` is the name that errors have; `direction` goes before that of the file.
pub fn values(text: &str, file: &str, direction: Option<Direction>) -> Result<Values, Error> {
    let source = Source { text, file: Path::new(file) };
    let raw = source.read()?;
    Description { source }.values(raw, direction)
}

/// Turns what is written into values that know where they stand.
struct Description<'a> {
    source: Source<'a>,
}

impl Description<'_> {
    fn place(&self, at: usize) -> String {
        format!("{}:{}", self.source.file.display(), line_at(self.source.text, at))
    }

    fn given<T>(&self, value: Spanned<T>) -> Given<T> {
        Given { place: self.place(value.span().start), value: value.into_inner() }
    }

    fn values(&self, raw: Raw, direction: Option<Direction>) -> Result<Values, Error> {
        let direction = direction.or(raw.direction);
        let own = match direction.unwrap_or(Direction::Back) {
            Direction::Forth => raw.forth,
            Direction::Back => raw.back,
        };
        let time = |key: &str, time: Spanned<Time>| {
            let given = self.given(time);
            let time = in_range(key, given.value, &given.place, &RTTS)?;
            Ok::<_, Error>(Given { value: Estimate::exact(time.as_secs()), place: given.place })
        };
        let rate = |key: &str, rate: Spanned<BitRate>| {
            let given = self.given(rate);
            let rate = in_range(key, given.value, &given.place, &RATES)?;
            Ok::<_, Error>(Given { value: Estimate::exact(rate.0 as f64), place: given.place })
        };
        let buffer = |bytes: Spanned<Bytes>| {
            let given = self.given(bytes);
            let bytes = in_range("buffer", given.value, &given.place, &BUFFERS)?;
            Ok::<_, Error>(Given { value: Estimate::exact(bytes.0 as f64), place: given.place })
        };
        let loss = |loss: Spanned<Fraction>| {
            let given = self.given(loss);
            let loss = given::loss("loss", given.value.as_f64(), &given.place)?;
            Ok::<_, Error>(Given { value: Estimate::exact(loss), place: given.place })
        };
        let policer = own.policer.or(raw.policer);
        let name = raw.name.map(|name| self.name("path", &name)).transpose()?;
        // Of one direction, a window goes before what is said of a host.
        let window = own.window.map(|window| self.given(window));
        let of_host = |host: Option<Spanned<Bytes>>| window.clone().or(host.map(|window| self.given(window)));
        Ok(Values {
            name,
            direction,
            rtt_s: raw.rtt.map(|rtt| time("rtt", rtt)).transpose()?,
            rate_bit_s: own.rate.or(raw.rate).map(|value| rate("rate", value)).transpose()?,
            buffer_bytes: own.buffer.or(raw.buffer).map(buffer).transpose()?,
            loss: own.loss.or(raw.loss).map(loss).transpose()?,
            unseen_loss: None,
            policer_burst: policer.as_ref().and_then(|policer| policer.burst.clone()).map(|burst| self.given(burst)),
            policer_rate: policer.map(|policer| self.given(policer.rate)),
            mtu: raw.mtu.map(|mtu| self.given(mtu)),
            client_window: of_host(raw.client_window),
            server_window: of_host(raw.server_window),
            window: raw.window.map(|window| self.given(window)),
            congestion: raw.congestion.map(|control| match control {
                RawControl::Reno => Sender::Reno,
                RawControl::Cubic => Sender::Cubic,
                RawControl::Bbr => Sender::Bbr,
            }),
            streams: raw.streams.map(|streams| self.given(streams)),
            size: raw.size.map(|size| self.given(size)),
            carries: raw.carries,
            sites: self.sites(raw.site)?,
            notes: Vec::new(),
        })
    }

    fn sites(&self, raw: IndexMap<Spanned<String>, RawSite>) -> Result<Vec<Site>, Error> {
        if raw.len() > SITES_MOST {
            let Source { text, file } = self.source;
            let file = file.display();
            let place = line_of(text, &["site"]).map_or(file.to_string(), |line| format!("{file}:{line}"));
            return Err(Error::wrong(place, format!("{} sites are too many: at most {SITES_MOST}", raw.len())));
        }
        let known: Vec<String> = raw.keys().map(|name| name.get_ref().clone()).collect();
        raw.into_iter().map(|(name, site)| self.site(&name, site, &known)).collect()
    }

    fn site(&self, name: &Spanned<String>, raw: RawSite, known: &[String]) -> Result<Site, Error> {
        let own = self.name("site", name)?;
        let key = |key: &str| format!("site.{own}.{key}");
        let rtt = |name: &str, time: Spanned<Time>| {
            let given = self.given(time);
            // Beside a host, or beside another site.
            let range = Time(0)..=*RTTS.end();
            Ok::<_, Error>(in_range(&key(name), given.value, &given.place, &range)?.as_secs())
        };
        let loss = |name: &str, loss: Option<Spanned<Fraction>>| {
            let loss = loss.map(|loss| self.given(loss));
            loss.map(|given| given::loss(&key(name), given.value.as_f64(), &given.place)).transpose()
        };
        let mut rtts_s = Vec::new();
        for (other, time) in raw.rtts {
            if !known.contains(other.get_ref()) || *other.get_ref() == own {
                let near = ekiden_files::suggestion(other.get_ref(), known.iter().map(String::as_str));
                let reason = format!("{}: there is no other site '{}'{near}", key("rtts"), other.get_ref());
                return Err(Error::wrong(self.place(other.span().start), reason));
            }
            rtts_s.push((other.get_ref().clone(), rtt("rtts", time)?));
        }
        let rate = raw.rate.map(|rate| self.given(rate));
        let address = raw.address.map(|address| self.address(&key("address"), address)).transpose()?;
        let fingerprint = raw.fingerprint.map(|text| self.fingerprint(&key("fingerprint"), text)).transpose()?;
        Ok(Site {
            client_rtt_s: rtt("client_rtt", raw.client_rtt)?,
            server_rtt_s: rtt("server_rtt", raw.server_rtt)?,
            client_loss: loss("client_loss", raw.client_loss)?,
            server_loss: loss("server_loss", raw.server_loss)?,
            rate: rate.map(|given| in_range(&key("rate"), given.value, &given.place, &RATES)).transpose()?,
            rtts_s,
            address,
            fingerprint,
            name: own,
        })
    }

    /// Names become those of nodes and files.
    fn name(&self, what: &str, name: &Spanned<String>) -> Result<String, Error> {
        let text = name.get_ref();
        let fits = (1..=NAME_LENGTH_MOST).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !text.starts_with('-');
        if fits && !(what == "site" && ["client", "server"].contains(&text.as_str())) {
            return Ok(text.clone());
        }
        let reason = format!(
            "'{}' cannot name a {what}: 1 to {NAME_LENGTH_MOST} letters, digits, '-' and '_', and a site is neither client nor server",
            text.replace(char::is_control, "\u{fffd}")
        );
        Err(Error::wrong(self.place(name.span().start), reason))
    }

    fn address(&self, key: &str, text: Spanned<String>) -> Result<String, Error> {
        let given = self.given(text);
        match HostPort::as_told(&given.value) {
            Ok(HostPort { host: HostText::Zoned(..), .. }) => Err(Error::wrong(
                given.place,
                format!("{key}: '{}' has a zone, which means nothing to others", given.value),
            )),
            Ok(_) => Ok(given.value),
            Err(error) => Err(Error::wrong(given.place, format!("{key}: {error}"))),
        }
    }

    fn fingerprint(&self, key: &str, text: Spanned<String>) -> Result<String, Error> {
        let given = self.given(text);
        let digits = given.value.strip_prefix("sha256:").unwrap_or_default();
        if digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Ok(given.value);
        }
        let reason = format!(
            "{key} is no fingerprint, which is sha256: and 64 hexadecimal digits, as `ekiden keygen` prints it"
        );
        Err(Error::wrong(given.place, reason))
    }
}
