//! A quantity of a run, from its record and samples.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ekiden_record::{Error, Flow, Record, Sample, TunnelDirection};
use ekiden_scenario::Scenario;
use ekiden_units::quantile;

use super::{Kind, Quantity, Window};

/// From when on a greatest round-trip time counts, unless a quantity says it: when slow start is over.
const SETTLED_US: u64 = 5_000_000;
/// At most this threshold, in segments, is a collapse.
const COLLAPSED: f64 = 10.0;

impl Quantity {
    /// The quantities of a run in their order, each in its [`Quantity::unit`]; `None` where the run has no such number. `file` is the
    /// record's, beside which its samples are; `scenario` is the record's.
    ///
    /// # Errors
    /// If samples are needed and cannot be read.
    pub fn of_run(all: &[&Self], record: &Record, scenario: &Scenario, file: &Path) -> Result<Vec<Option<f64>>, Error> {
        let samples = match all.iter().any(|quantity| quantity.is_sampled()) {
            true => record.samples(file)?.collect::<Result<Vec<Sample>, Error>>()?,
            false => Vec::new(),
        };
        Ok(all.iter().map(|quantity| quantity.of(record, scenario, &samples)).collect())
    }

    fn of(&self, record: &Record, scenario: &Scenario, samples: &[Sample]) -> Option<f64> {
        let flows = || record.flows.iter().filter(|flow| self.is_of(&flow.name));
        let tunnels = |of: fn(&TunnelDirection) -> f64| {
            let own = || record.tunnels.iter().filter(|tunnel| self.is_of(&tunnel.tunnel));
            own().next().map(|_| own().map(of).sum())
        };
        match self.kind {
            Kind::Goodput if self.window == Window::default() => {
                sum(flows().map(|flow| flow.goodput_bit_s as f64 / 1e6))
            }
            Kind::Goodput => self.goodput_within(scenario, samples),
            Kind::Duration => greatest(flows().map(|flow| flow.duration_us as f64 / 1e6)),
            Kind::Transfer => transfer(flows()),
            Kind::ConnectionMean => {
                greatest(flows().filter_map(|flow| flow.connection_mean_us).map(|us| us as f64 / 1e6))
            }
            Kind::Retransmits => sum(flows().map(|flow| flow.retransmits as f64)),
            Kind::RttMin => least(flows().filter_map(|flow| flow.rtt_min_us).map(milliseconds)),
            Kind::RttMax => {
                let from = self.window.from.map_or(SETTLED_US, |time| time.0 / 1000);
                let late = self.within(samples).filter(|sample| sample.at_us >= from);
                greatest(late.map(|sample| milliseconds(sample.rtt_us)))
            }
            Kind::RttMean => {
                let known: Vec<f64> =
                    self.within(samples).map(|sample| sample.rtt_us).filter(|us| *us > 0).map(milliseconds).collect();
                (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
            }
            Kind::SsthreshMin => least(self.thresholds(samples).into_values()),
            Kind::Collapsed => {
                let all = self.thresholds(samples);
                (!samples.is_empty()).then(|| all.values().filter(|least| **least <= COLLAPSED).count() as f64)
            }
            Kind::QueueDrops => {
                sum(record.links.iter().filter(|link| self.is_of(&link.link)).map(|link| link.queue_drops as f64))
            }
            Kind::QueueMax => greatest(
                record.links.iter().filter(|link| self.is_of(&link.link)).map(|link| link.queue_max_bytes as f64 / 1e3),
            ),
            Kind::PingMedian => record.pings.iter().find(|ping| self.is_of(&ping.name))?.p50_us.map(|us| us / 1e3),
            Kind::PingHigh => record.pings.iter().find(|ping| self.is_of(&ping.name))?.p99_us.map(|us| us / 1e3),
            Kind::TunnelDrops => tunnels(|tunnel| tunnel.queue_drops as f64),
            Kind::TunnelTimeouts => tunnels(|tunnel| tunnel.timeouts as f64),
            Kind::TunnelRetransmits => tunnels(|tunnel| tunnel.retransmits as f64),
            Kind::TunnelQueue => {
                let own = record.tunnels.iter().filter(|tunnel| self.is_of(&tunnel.tunnel));
                greatest(own.map(|tunnel| tunnel.queue_max_bytes as f64 / 1e3))
            }
        }
    }

    fn is_of(&self, name: &str) -> bool {
        self.of.as_ref().is_none_or(|of| of == name)
    }

    /// Its flows' samples, in the part of the run that counts.
    fn within<'a>(&self, samples: &'a [Sample]) -> impl Iterator<Item = &'a Sample> {
        let end = samples.last().map_or(0, |sample| sample.at_us);
        let from = match (self.window.last, self.window.from) {
            (Some(last), _) => end.saturating_sub(last.0 / 1000),
            (None, from) => from.map_or(0, |time| time.0 / 1000),
        };
        let to = self.window.to.map_or(u64::MAX, |time| time.0 / 1000);
        let of = self.of.clone();
        let is_own = move |sample: &&Sample| of.as_ref().is_none_or(|of| **of == *sample.flow);
        samples.iter().filter(is_own).filter(move |sample| (from..=to).contains(&sample.at_us))
    }

    /// What arrived between the first and the last sample of each flow, all flows together.
    fn goodput_within(&self, scenario: &Scenario, samples: &[Sample]) -> Option<f64> {
        let mut arrived: BTreeMap<Arc<str>, Arrived> = BTreeMap::new();
        for sample in self.within(samples) {
            let file = scenario.flows.get(&*sample.flow).and_then(|flow| flow.file);
            arrived.entry(Arc::clone(&sample.flow)).or_default().note(sample, file.map(|file| file.0));
        }
        sum(arrived.values().filter_map(Arrived::rate))
    }

    /// The least threshold of each flow.
    fn thresholds(&self, samples: &[Sample]) -> BTreeMap<Arc<str>, f64> {
        let mut all: BTreeMap<Arc<str>, f64> = BTreeMap::new();
        for sample in self.within(samples) {
            if let Some(segments) = sample.ssthresh_segments.map(f64::from) {
                let least = all.entry(Arc::clone(&sample.flow)).or_insert(segments);
                *least = least.min(segments);
            }
        }
        all
    }
}

/// What had arrived of a flow, over time.
#[derive(Default)]
struct Arrived {
    /// Of each connection, at its last sample.
    connections: BTreeMap<u32, u64>,
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl Arrived {
    /// Of a flow that sends one file after another each connection before this one has sent one of so many bytes.
    fn note(&mut self, sample: &Sample, file: Option<u64>) {
        let total = match file {
            Some(file) => u64::from(sample.connection) * file + sample.received_bytes,
            None => {
                self.connections.insert(sample.connection, sample.received_bytes);
                self.connections.values().sum()
            }
        };
        // The samples of one look have the same time: the first look is whole when the next begins.
        match self.first {
            Some((at, _)) if at != sample.at_us => {}
            _ => self.first = Some((sample.at_us, total)),
        }
        self.last = (sample.at_us, total);
    }

    fn rate(&self) -> Option<f64> {
        let (first, last) = (self.first?, self.last);
        (last.0 > first.0).then(|| last.1.saturating_sub(first.1) as f64 * 8.0 / (last.0 - first.0) as f64)
    }
}

/// From the first data to its last acknowledgement, of the slowest flow: a record counts from the SYN to the last arrival.
fn transfer<'a>(flows: impl Iterator<Item = &'a Flow>) -> Option<f64> {
    let flows: Vec<&Flow> = flows.collect();
    let mut least: Vec<f64> = flows.iter().filter_map(|flow| flow.rtt_min_us).map(|us| us as f64).collect();
    least.sort_by(f64::total_cmp);
    let shift = quantile::median(&least).unwrap_or_default() / 2.0;
    greatest(flows.iter().map(|flow| (flow.duration_us as f64 - shift) / 1e6))
}

fn milliseconds(us: u64) -> f64 {
    us as f64 / 1e3
}

fn sum(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(|sum, value| sum + value)
}

fn greatest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.max_by(f64::total_cmp)
}

fn least(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::{Quantity, Sample};

    fn sample(at_ms: u64, connection: u32, received_bytes: u64, rtt_us: u64) -> Sample {
        Sample {
            at_us: at_ms * 1000,
            flow: "f".into(),
            connection,
            received_bytes,
            acked_bytes: 0,
            cwnd_segments: 1,
            ssthresh_segments: (rtt_us > 1).then_some(rtt_us as u32),
            unacked_segments: 0,
            window_bytes: 0,
            rtt_us,
            rtt_min_us: 0,
            retransmits: 0,
            delivery_bit_s: 0,
        }
    }

    fn of(quantity: &str, file: &str, samples: &[Sample]) -> Option<f64> {
        let text = format!(
            "name = \"x\"\n[node.a]\n[node.b]\n[link.l]\nends = [\"a\", \"b\"]\nrate = \"1Mbit/s\"\n\
             [flow.f]\nfrom = \"a\"\nto = \"b\"\nduration = \"9s\"\n{file}"
        );
        let scenario = ekiden_scenario::Scenario::parse(&text, "x").unwrap();
        let record = r#"{"format":2,"manifest":{"producer":"lab","version":"","command":[],"kernel":null,"seed":0,
            "scenario_name":"s","scenario":"","started_unix_ms":0},"flows":[],"paths":[],"links":[],"events":[]}"#;
        let record = ekiden_record::Record::parse(record, "x").unwrap();
        quantity.parse::<Quantity>().unwrap().of(&record, &scenario, samples)
    }

    #[test]
    fn a_goodput_of_a_part_is_of_all_connections_from_its_first_look_to_its_last() {
        let samples = [(0, [0, 0]), (1000, [500, 500]), (2000, [1000, 1500]), (3000, [9000, 9500])];
        let samples: Vec<Sample> = samples
            .into_iter()
            .flat_map(|(at, bytes)| (0..2).map(move |of| sample(at, of, bytes[of as usize] * 1000, 1)))
            .collect();
        assert_eq!(of("goodput f from 1s to 2s", "", &samples), Some(12.0));
        assert_eq!(of("goodput f last 1s", "", &samples), Some(128.0));
        assert_eq!(of("goodput f from 3s", "", &samples), None);
    }

    #[test]
    fn files_before_the_last_one_count_whole() {
        let samples = [sample(0, 0, 100_000, 1), sample(1000, 1, 50_000, 1), sample(2000, 2, 0, 1)];
        assert_eq!(of("goodput f from 0s", "file = \"125KB\"\n", &samples), Some(0.6));
    }

    #[test]
    fn round_trips_count_in_their_time() {
        let samples = [sample(1000, 0, 0, 90_000), sample(6000, 0, 0, 30_000), sample(7000, 0, 0, 20_000)];
        assert_eq!(of("rtt_max f", "", &samples), Some(30.0));
        assert_eq!(of("rtt_max f from 0s", "", &samples), Some(90.0));
        assert_eq!(of("rtt_mean f last 1s", "", &samples), Some(25.0));
        assert_eq!(of("ssthresh_min to 6s", "", &samples), Some(30_000.0));
        assert_eq!(of("collapsed", "", &samples), Some(0.0));
        assert_eq!(of("collapsed", "", &[sample(1, 0, 0, 10)]), Some(1.0));
    }
}
