//! The figures that come out of the loads.

use crate::load::Interval;
use crate::load::stream::Bulk;
use crate::stats::percentile;

/// A figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Seconds of CPU that the relay spends on 10⁹ bytes of this number of streams at once.
    CpuPerGb(u16),
    /// Seconds of CPU that the whole machine spends on them.
    MachinePerGb(u16),
    /// Gbit/s of all of them.
    Rate(u16),
    /// Jain's index of fairness over them.
    Fairness(u16),
    /// MiB of the relay's memory while they run. What is in pipes and sockets is the kernel's and does not count.
    Memory(u16),
    /// Short connections per second.
    Connections,
    /// Microseconds of CPU that the relay spends on one.
    CpuPerConnection,
    /// The time of a small message there and back, in microseconds: the median ...
    DelayP50,
    /// ... and the 99th percentile.
    DelayP99,
    /// KiB of the relay's memory per idle connection.
    IdleKilobytes,
}

impl Measure {
    /// Its name for programs.
    pub fn key(self) -> String {
        match self {
            Measure::CpuPerGb(streams) => format!("cpu_s_per_gb_{streams}"),
            Measure::MachinePerGb(streams) => format!("machine_s_per_gb_{streams}"),
            Measure::Rate(streams) => format!("gbit_per_s_{streams}"),
            Measure::Fairness(streams) => format!("jain_{streams}"),
            Measure::Memory(streams) => format!("relay_mib_{streams}"),
            Measure::Connections => "connections_per_s".into(),
            Measure::CpuPerConnection => "cpu_us_per_connection".into(),
            Measure::DelayP50 => "pingpong_p50_us".into(),
            Measure::DelayP99 => "pingpong_p99_us".into(),
            Measure::IdleKilobytes => "kib_per_idle_connection".into(),
        }
    }

    /// Its name for people.
    pub fn label(self) -> String {
        match self {
            Measure::CpuPerGb(streams) => format!("relay CPU s/GB, {}", counted(streams)),
            Measure::MachinePerGb(streams) => format!("machine CPU s/GB, {}", counted(streams)),
            Measure::Rate(streams) => format!("Gbit/s, {}", counted(streams)),
            Measure::Fairness(streams) => format!("Jain's index, {}", counted(streams)),
            Measure::Memory(streams) => format!("relay MiB, {}", counted(streams)),
            Measure::Connections => "connections/s".into(),
            Measure::CpuPerConnection => "relay CPU µs/connection".into(),
            Measure::DelayP50 => "ping-pong µs, p50".into(),
            Measure::DelayP99 => "ping-pong µs, p99".into(),
            Measure::IdleKilobytes => "KiB per idle connection".into(),
        }
    }

    /// The decimals that mean something.
    pub fn decimals(self) -> usize {
        match self {
            Measure::CpuPerGb(_) | Measure::MachinePerGb(_) => 3,
            Measure::Fairness(_) | Measure::IdleKilobytes => 2,
            Measure::Connections => 0,
            _ => 1,
        }
    }

    /// Whether it is about the relay alone, so that there is none on a way without a relay.
    pub fn is_the_relays_own(self) -> bool {
        use Measure::*;
        matches!(self, CpuPerGb(_) | Memory(_) | CpuPerConnection | IdleKilobytes)
    }
}

/// "1 stream", "8 streams".
pub fn counted(streams: u16) -> String {
    format!("{streams} stream{}", if streams == 1 { "" } else { "s" })
}

/// What bulk streams are measured by. One stream is as fair as can be.
pub fn of_bulk(streams: u16, bulk: &Bulk) -> Vec<(Measure, f64)> {
    let (bytes, Interval { elapsed, cpu, machine, .. }) = (bulk.interval.count as f64, bulk.interval);
    let mut values = vec![
        (Measure::Rate(streams), bytes * 8.0 / 1e9 / elapsed.as_secs_f64()),
        (Measure::CpuPerGb(streams), cpu.as_secs_f64() / (bytes / 1e9)),
        (Measure::MachinePerGb(streams), machine.as_secs_f64() / (bytes / 1e9)),
        (Measure::Memory(streams), bulk.memory as f64 / f64::from(1 << 20)),
    ];
    if streams > 1 {
        values.push((Measure::Fairness(streams), bulk.fairness));
    }
    values
}

/// What short connections are measured by.
pub fn of_connections(interval: &Interval) -> Vec<(Measure, f64)> {
    let connections = interval.count as f64;
    vec![
        (Measure::Connections, connections / interval.elapsed.as_secs_f64()),
        (Measure::CpuPerConnection, interval.cpu.as_secs_f64() * 1e6 / connections),
    ]
}

/// What round trips, in microseconds, are measured by.
pub fn of_delays(samples: &[f64]) -> Vec<(Measure, f64)> {
    let at = |percent, measure| percentile(samples, percent).map(|value| (measure, value));
    [at(50.0, Measure::DelayP50), at(99.0, Measure::DelayP99)].into_iter().flatten().collect()
}
