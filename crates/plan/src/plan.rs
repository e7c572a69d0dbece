//! Planning: tries every remedy on a path, and chooses.

use ekiden_model::rounds::Sender;
use ekiden_model::s1::{Harm, Tunnel};
use ekiden_model::s2::Group;
use ekiden_queue::Pull;
use ekiden_units::{BitRate, Bytes, Time};

use crate::answer::{Advice, LargerWindows, LegPlan, NodePlan, Plan, Remedy};
use crate::candidate::{Candidate, buffer, candidates, direct};
use crate::forecast::{Forecaster, Hop};
use crate::{Carries, Estimate, Forecast, Limit, Path, choice, verdict};

/// The least duration of a transfer, in seconds and in round trips: by then slow start is over, and there are several
/// saw-teeth.
const SECONDS_LEAST: f64 = 20.0;
const ROUND_TRIPS_LEAST: f64 = 50.0;

impl Plan {
    /// Tries every remedy. `seconds` is how long the transfers last; unless said, 20 s and at least 50 round trips.
    pub fn of(path: &Path, seconds: Option<f64>) -> Self {
        let seconds = seconds.unwrap_or_else(|| SECONDS_LEAST.max(ROUND_TRIPS_LEAST * path.rtt_s.value));
        let mut forecaster = Forecaster::new(seconds);
        let hop = direct(path, None);
        let forecast = forecaster.chain(&[hop], &[], path.size);
        let mut notes = path.notes.clone();
        let remedies: Vec<Remedy> = match path.carries {
            Carries::Tcp => {
                candidates(path).iter().map(|chain| remedy(path, chain, &forecast, &mut forecaster)).collect()
            }
            Carries::Packets => Vec::new(),
        };
        if path.loss.value > 0.0 && remedies.iter().any(|remedy| remedy.legs.len() > 1) && !knows_losses(path) {
            notes.push(
                "On which leg packets are lost is not known. Values have the loss spread over the legs by their round trips; ranges reach from \
                 the best to the worst place for all of it."
                    .into(),
            );
        }
        if !path.sites.is_empty() {
            notes.extend(unknown_legs(path));
        }
        if path.policer.is_some() && remedies.iter().any(|remedy| remedy.legs.len() > 1) {
            notes.push(
                "It is not known on which leg the policer is. Values have it on the longest; ranges reach from the best to the worst place for it."
                    .into(),
            );
        }
        let chosen = choice::best(forecast.goodput_bit_s.value, &remedies, choice::worth(path));
        notes.extend(unseen_loss(path, &forecast, chosen.map(|number| &remedies[number]), &mut forecaster));
        notes.extend(chosen.and_then(|number| of_neighbours(&remedies[number])));
        notes.extend(chosen.and_then(|number| of_kernels(&remedies[number])));
        let larger_windows = larger_windows(path, &hop, &forecast, &mut forecaster);
        let mut plan = Self {
            path: path.name.clone(),
            direction: path.direction,
            verdict: String::new(),
            seconds,
            direct: forecast,
            larger_windows,
            chosen,
            tunnel: tunnel(path),
            gateway: gateway(path),
            remedies,
            notes,
        };
        plan.verdict = verdict::verdict(&plan, path);
        plan
    }
}

fn remedy(path: &Path, chain: &Candidate, direct: &Forecast, forecaster: &mut Forecaster) -> Remedy {
    let hops = chain.hops(path);
    let controls = choice::controls(chain, path, &hops, forecaster);
    let with = |hops: Vec<Hop>| -> Vec<Hop> {
        hops.into_iter().zip(&controls).map(|(hop, &control)| Hop { control, ..hop }).collect()
    };
    let hops = with(hops);
    let elsewhere = chain.elsewhere(path).into_iter().chain(chain.policed_elsewhere(path));
    let elsewhere: Vec<Vec<Hop>> = elsewhere.map(with).collect();
    let forecast = forecaster.chain(&hops, &elsewhere, path.size);
    let (sends, _) = chain.host_legs(path);
    let point = |number: usize| match number {
        0 => "client".to_owned(),
        _ => chain.places.get(number - 1).map_or("server".to_owned(), |place| place.name.clone()),
    };
    let leg = |(number, hop): (usize, &Hop)| {
        let (alone_bit_s, limit) = forecaster.alone(hop);
        LegPlan {
            from: point(number),
            to: point(number + 1),
            rtt_s: hop.rtt_s.value,
            rate_bit_s: hop.rate_bit_s.value,
            loss: hop.loss.value,
            is_policed: hop.policer.is_some(),
            congestion: hop.control,
            host_sends: number == sends,
            buffer_bytes: buffer(path, &hop.rtt_s, &hop.rate_bit_s).0,
            alone_bit_s,
            limit,
        }
    };
    let legs: Vec<LegPlan> = hops.iter().enumerate().map(leg).collect();
    let mut from_client_s = 0.0;
    let nodes = chain.places.iter().zip(&legs).map(|(place, leg)| {
        from_client_s += leg.rtt_s;
        let site = place.site.map(|number| &path.sites[number]);
        NodePlan {
            name: place.name.clone(),
            from_client_s,
            address: site.and_then(|site| site.address.clone()),
            fingerprint: site.and_then(|site| site.fingerprint.clone()),
        }
    });
    let nodes = nodes.collect();
    let of = direct.goodput_bit_s;
    let to = forecast.goodput_bit_s;
    let ratio = |rate: f64, of: f64| if of > 0.0 { rate / of } else { 0.0 };
    let gain = Estimate::between(ratio(to.low, of.high), ratio(to.value, of.value), ratio(to.high, of.low));
    Remedy { name: chain.name.clone(), nodes, legs, forecast, gain }
}

/// What a remedy requires of the hosts of its proxies, if anything.
fn of_kernels(remedy: &Remedy) -> Option<String> {
    remedy.legs.iter().any(|leg| !leg.host_sends && leg.congestion == Sender::Far).then(|| {
        "ekiden_far wants Linux 6.4 and root on the host that sends (`ekiden doctor` there); elsewhere that leg falls back to reno, and carries far less."
            .into()
    })
}

/// What a remedy costs other traffic on the path, if anything.
fn of_neighbours(remedy: &Remedy) -> Option<String> {
    remedy.legs.iter().any(|leg| !leg.host_sends && leg.congestion == Sender::Bbr).then(|| {
        "bbr does not heed losses: it fills a line that loses packets, and takes most of it from connections beside it that heed them. Where \
         others share the line, set `congestion = \"cubic\"` on that leg."
            .into()
    })
}

/// The result with the highest random loss that may have gone unseen.
fn unseen_loss(path: &Path, direct: &Forecast, chosen: Option<&Remedy>, forecaster: &mut Forecaster) -> Option<String> {
    let loss = path.unseen_loss?;
    let lossy = Path { loss: Estimate::exact(loss), unseen_loss: None, ..path.clone() };
    let mbit = |forecast: &Forecast| verdict::number(forecast.goodput_bit_s.value);
    let now = forecaster.chain(&[crate::candidate::direct(&lossy, None)], &[], None);
    let chain = chosen.and_then(|chosen| candidates(&lossy).into_iter().find(|chain| chain.name == chosen.name));
    let chain = chain.map(|chain| remedy(&lossy, &chain, direct, forecaster).forecast);
    let chain = chain.map_or(String::new(), |chain| {
        format!(" and {} {} Mbit/s", chosen.map_or("", |chosen| &chosen.name), mbit(&chain))
    });
    Some(format!(
        "No random loss was seen, and none was assumed; up to {:.2} % might not have been. With that much the direct connection would carry {} Mbit/s{chain}. \
         --loss says what is known.",
        loss * 100.0,
        mbit(&now)
    ))
}

fn knows_losses(path: &Path) -> bool {
    !path.sites.is_empty() && path.sites.iter().all(|site| site.client_loss.is_some() && site.server_loss.is_some())
}

fn unknown_legs(path: &Path) -> Option<String> {
    let sites = &path.sites;
    let pairs =
        sites.iter().enumerate().flat_map(|(number, one)| sites[number + 1..].iter().map(move |other| (one, other)));
    let unknown: Vec<String> = pairs
        .filter(|(one, other)| path.between_s(one, other).is_none())
        .map(|(one, other)| format!("{} – {}", one.name, other.name))
        .collect();
    (!unknown.is_empty())
        .then(|| format!("No chain passes both of {}: the round trip between them is not known.", unknown.join(", ")))
}

/// Windows that hold what path and queue hold, if that would help.
fn larger_windows(path: &Path, hop: &Hop, now: &Forecast, forecaster: &mut Forecaster) -> Option<LargerWindows> {
    let window = buffer(path, &hop.rtt_s, &hop.rate_bit_s);
    if now.limit != Limit::Window || window <= path.window() {
        return None;
    }
    let forecast = forecaster.chain(&[direct(path, Some(window))], &[], path.size);
    let is_more = forecast.goodput_bit_s.value > choice::WORTH * now.goodput_bit_s.value;
    is_more.then_some(LargerWindows { window_bytes: window.0, forecast })
}

/// S1's conditions for a tunnel from end to end, with a queue and buffers as `ekiden tunnel` has them.
fn tunnel(path: &Path) -> Advice {
    let seconds = |seconds: f64| Time((seconds * 1e9) as u64);
    let rtt = seconds(path.rtt_s.value);
    let tunnel = Tunnel {
        rate: BitRate(path.rate_bit_s.value as u64),
        rtt,
        whole_rtt: rtt,
        buffer: buffer(path, &path.rtt_s, &path.rate_bit_s),
        inner_buffer: path.window(),
        queue: Pull::LIMIT,
        data: path.size.unwrap_or(Bytes::mib(1 << 20)),
        sack: true,
        inner_rto_min: Time::ms(200),
    };
    let harms: Vec<&str> = tunnel
        .harms()
        .iter()
        .map(|harm| match harm {
            Harm::LateForTimer => "a loss holds what is behind it for longer than the timers inside wait",
            Harm::TunnelBuffer => "the tunnel's buffers do not fill the path",
            Harm::InnerBuffer => "the hosts' windows do not fill the path, and a tunnel leaves the round trip as it is",
            Harm::Queue => "the queue in front of it would overflow",
        })
        .collect();
    let costs = if harms.is_empty() { String::new() } else { format!(", but {}", harms.join("; ")) };
    match path.carries {
        Carries::Packets => Advice {
            advised: true,
            reason: format!("a tunnel: whole packets must pass, and proxies carry TCP only{costs}"),
        },
        Carries::Tcp => Advice {
            advised: false,
            reason: format!(
                "no tunnel: it shortens no round trip; it is for what is not TCP{}",
                costs.replacen(", but", ". Here", 1)
            ),
        },
    }
}

/// S2's condition for a gateway.
fn gateway(path: &Path) -> Advice {
    let group = Group {
        streams: path.streams,
        window: path.window(),
        bdp: Bytes(path.bdp_bytes() as u64),
        queue: Bytes(path.buffer_bytes.value as u64),
        ends_in_time: path.congestion != Sender::Reno,
    };
    let why_not = if path.streams < 2 {
        "there is one stream"
    } else if group.ends_in_time {
        "the hosts' congestion control ends slow start before the queue overflows"
    } else if group.overshoot().0 == 0 {
        "the streams' windows are too small to overflow the queue"
    } else {
        "the queue is too short for it: less than an eighth of the path"
    };
    match path.streams > 1 && group.can_help() {
        true => Advice {
            advised: true,
            reason: format!(
                "a gateway at the sender's side: slow start can send {} more than path and queue hold",
                Bytes(rounded(group.overshoot().0))
            ),
        },
        false => Advice { advised: false, reason: format!("no gateway: {why_not}") },
    }
}

/// Rounded to three digits, for people.
fn rounded(bytes: u64) -> u64 {
    let step = 10_u64.pow(bytes.max(1).ilog10().saturating_sub(2));
    bytes / step * step
}
