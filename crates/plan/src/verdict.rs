//! The answer in a sentence.

use crate::candidate::direct;
use crate::{Carries, Limit, Path, Plan, choice};

/// Below it, in seconds, a round trip is nothing that a proxy could shorten.
const SHORT_S: f64 = 0.005;

/// The answer in a sentence or two.
pub fn verdict(plan: &Plan, path: &Path) -> String {
    let now = rate(plan.direct.goodput_bit_s.value);
    if path.carries == Carries::Packets {
        return format!(
            "Use `ekiden tunnel`: whole packets must pass, and proxies carry TCP only. A connection inside gets at most what it gets now, {now}."
        );
    }
    let Some(remedy) = plan.chosen() else {
        return format!("Nothing helps here: {}. A direct connection carries {now}.", why_nothing(plan, path));
    };
    let to = remedy.forecast.goodput_bit_s;
    let range = format!("{} ({} to {})", rate(to.value), number(to.low), number(to.high));
    let (before, after) = (plan.direct.limit, remedy.forecast.limit);
    let then = if before == after {
        "and still bounds the chain".to_owned()
    } else {
        format!("and {} the chain", what(after))
    };
    let chain = sentence(&remedy.name, remedy.nodes.len());
    format!("{chain} would give {range} instead of {now}: {} bounds the direct connection, {then}.", what(before))
}

fn why_nothing(plan: &Plan, path: &Path) -> String {
    let hop = direct(path, None);
    let more = if choice::worth(path) > choice::WORTH { "a quarter" } else { "a tenth" };
    let payload = f64::from(ekiden_model::rounds::segment_bytes(hop.mtu)) / f64::from(hop.mtu);
    let part = 100.0 * plan.direct.goodput_bit_s.value / (payload * path.rate_bit_s.value);
    match plan.direct.limit {
        Limit::Line if path.sites.is_empty() || part >= 80.0 => {
            format!("the line is full ({part:.0} % of what it can carry)")
        }
        Limit::Policer => {
            let rate_limit = path.policer.map_or(String::new(), |policer| format!(" of {}", policer.rate));
            format!("a policer{rate_limit} is the limit, and proxies do not get past it")
        }
        _ if path.rtt_s.value < SHORT_S => {
            format!("a round trip of {:.1} ms is too short for proxies to make it much shorter", path.rtt_s.value * 1e3)
        }
        _ if !path.sites.is_empty() => format!("no chain of these sites gives {more} more than the direct path"),
        limit => format!("{} is the limit, and no split of the path lifts it by {more}", what(limit)),
    }
}

/// What bounds, as the subject of a sentence.
pub fn what(limit: Limit) -> &'static str {
    match limit {
        Limit::Window => "the hosts' window",
        Limit::Line => "the line",
        Limit::Loss => "random loss",
        Limit::Policer => "the policer",
    }
}

fn sentence(name: &str, proxies: usize) -> String {
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        return name.to_owned();
    }
    format!("{proxies} {} at {name}", if proxies == 1 { "proxy" } else { "proxies" })
}

/// In Mbit/s, with three digits.
pub fn number(bit_s: f64) -> String {
    let mbit = bit_s / 1e6;
    match mbit {
        mbit if mbit >= 100.0 => format!("{mbit:.0}"),
        mbit if mbit >= 10.0 => format!("{mbit:.1}"),
        mbit if mbit >= 1.0 => format!("{mbit:.2}"),
        mbit => format!("{mbit:.3}"),
    }
}

fn rate(bit_s: f64) -> String {
    format!("{} Mbit/s", number(bit_s))
}
