//! The scenario in which a forecast is put to the test, by lab and simulator.

use std::fmt::Write;

use ekiden_units::{BitRate, Bytes, Fraction, Time};

use crate::candidate::BUFFER_LEAST;
use crate::{Direction, Path, Plan, Remedy};

/// The scenario of the path with the best estimates, direct, or with the proxies of a remedy: one flow, for the plan's duration. Each leg is a
/// link with the path's rate and buffer, and its own loss in the direction of the data. Runs with the same `seed` lose the same packets.
pub fn scenario(path: &Path, plan: &Plan, remedy: Option<&Remedy>, name: &str, seed: u64) -> String {
    let mut text = format!("name = \"{name}\"\nseed = {seed}\n");
    let (sender, receiver) = match path.direction {
        Direction::Forth => ("client", "server"),
        Direction::Back => ("server", "client"),
    };
    for (host, window) in [("client", path.client_window), ("server", path.server_window)] {
        let control = if host == sender { path.congestion.name() } else { "cubic" };
        node(&mut text, host, "host", control, window);
    }
    let direct = [(path.rtt_s.value, path.rate_bit_s.value, path.loss.value, true)];
    let legs: Vec<(f64, f64, f64, bool)> = match remedy {
        Some(remedy) => remedy.legs.iter().map(|leg| (leg.rtt_s, leg.rate_bit_s, leg.loss, leg.is_policed)).collect(),
        None => direct.into(),
    };
    let mut names: Vec<String> = Vec::new();
    for (number, proxy) in remedy.iter().flat_map(|remedy| remedy.nodes.iter().enumerate()) {
        let legs = &remedy.map(|remedy| &remedy.legs[..]).unwrap_or_default()[number..=number + 1];
        let buffer = legs.iter().map(|leg| leg.buffer_bytes).max().unwrap_or(BUFFER_LEAST.0);
        // A proxy sends on the leg that is nearer to the receiver.
        let sends = match path.direction {
            Direction::Forth => &legs[1],
            Direction::Back => &legs[0],
        };
        node(&mut text, &proxy.name, "proxy", sends.congestion.name(), Bytes(buffer));
        names.push(proxy.name.clone());
    }
    let points: Vec<&str> =
        std::iter::once("client").chain(names.iter().map(String::as_str)).chain(["server"]).collect();
    for (number, (rtt_s, rate_bit_s, loss, is_policed)) in legs.iter().enumerate() {
        let _ = write!(
            text,
            "\n[link.leg-{number}]\nends = [\"{}\", \"{}\"]\nrate = \"{}\"\ndelay = \"{}\"\nqueue = \"{}\"\nmtu = {}\n",
            points[number],
            points[number + 1],
            BitRate(*rate_bit_s as u64),
            // Whole microseconds, which every part of the path can have.
            Time((rtt_s * 5e5).round() as u64 * 1_000),
            Bytes((path.buffer_bytes.value as u64).max(path.mtu.into())),
            path.mtu,
        );
        let way = match path.direction {
            Direction::Forth => "forth",
            Direction::Back => "back",
        };
        if *loss > 0.0 {
            let _ = writeln!(text, "{way}.loss = \"{}\"", Fraction((loss * 1e9) as u64));
        }
        if let Some(policer) = path.policer.filter(|_| *is_policed) {
            let _ = writeln!(text, "{way}.policer = {{ rate = \"{}\", burst = \"{}\" }}", policer.rate, policer.burst);
        }
    }
    let _ = write!(text, "\n[flow.transfer]\nfrom = \"{sender}\"\nto = \"{receiver}\"\n");
    let _ = writeln!(text, "duration = \"{}\"", Time((plan.seconds * 1e3).round() as u64 * 1_000_000));
    if path.streams > 1 {
        let _ = writeln!(text, "parallel = {}", path.streams);
    }
    if !names.is_empty() {
        if path.direction == Direction::Back {
            names.reverse();
        }
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        let _ = writeln!(text, "via = [{}]", names.join(", "));
    }
    text
}

fn node(text: &mut String, name: &str, kind: &str, congestion: &str, buffer: Bytes) {
    let _ = write!(
        text,
        "\n[node.{name}]\nkind = \"{kind}\"\ntcp = {{ congestion = \"{congestion}\", send_buffer = \"{buffer}\", receive_buffer = \"{buffer}\" }}\n"
    );
}
