//! `ekiden measure client`.

mod iperf3;
mod show;
mod sweep;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use ekiden_diagnosis::measured::Measured;
use ekiden_diagnosis::outcome::{samples, told as loads_of};
use ekiden_files::{check_directory, check_target, is_stream};
use ekiden_measure::client::{Server, measure};
use ekiden_measure::server::end_settings;
use ekiden_measure_proto::message::Trace;
use ekiden_measure_proto::settings::Asked;
use ekiden_record::{
    LoadSettings, MEASUREMENT_FORMAT, Measurement, SAMPLES_MOST, Sample, Series, SeriesWriter, Way, series_of,
};
use ekiden_sweep::is_file;
use ekiden_units::{BitRate, Bytes, HostPort, Time};

use super::target::{Target, with_port};
use super::{amount, within};
use crate::out::{self, Width};
use crate::usage::{command_line, misused, now_unix_ms, whole_number};

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLES: &str = "Examples:
    # ten seconds to the peer 'city', with its keys
    ekiden measure client city -c island.toml
    # both directions at once, four streams each
    ekiden measure client city -c island.toml \\
        --way both --streams 4
    # every combination, three times: medians
    ekiden measure client city -c island.toml --repeat 3 \\
        --receive-buffer 16KiB,64KiB,1MiB --data 100B,1000B";

/// Load a path, and say what it carried, how long packets took beside the load, and what limited it.
///
/// Throughput is counted at the receiver. Latency is measured beside every load: small messages on a connection of their own, every 20 ms
/// and no more than a hundredth of what the load carries, and on the loaded ones from writing a byte to its ACK. What limited the sender
/// are shares that sum to 100 %: the program, the receiver's window, the send buffer, the path.
///
/// Several values, separated by commas, make a sweep: every combination is measured, and shown as one table.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    load: Load,
    /// SERVER is a plain iperf3 server, which listens on port 5201 and knows no keys. There are no probes beside the load, and of what the
    /// server sends only it knows what limits it.
    #[arg(long, conflicts_with_all = ["config", "key", "open"])]
    iperf3: bool,
    /// Go through a SOCKS5 listener without password, such as a node's. What TCP says of itself is then of the connections to it.
    #[arg(long, value_name = "HOST:PORT")]
    via: Option<String>,
    /// Measure each combination so often, and show medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number(1_u32, 1000))]
    repeat: u32,
    /// Measure no more than this in each direction, and end there.
    #[arg(long, value_name = "BYTES", default_value = "10GB", value_parser = amount)]
    limit: Bytes,
    /// Where the record goes: a file if it ends in .json (a single measurement only), else a directory.
    #[arg(long, value_name = "FILE|DIR")]
    record: Option<PathBuf>,
    /// Replace the FILE of --record if it is there already.
    #[arg(long, requires = "record")]
    force: bool,
    /// Print the records as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// The load. Each may have several values.
#[derive(clap::Args)]
struct Load {
    /// The direction: to the server, from it, or both at once.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "forth")]
    way: Vec<AskedWay>,
    /// How long data is sent [default: 10s without --bytes].
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = within::<Time>("1ms", "1h"))]
    time: Vec<Time>,
    /// How much is sent in each direction, over all its streams.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = amount)]
    bytes: Vec<Bytes>,
    /// Connections in each direction.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = whole_number(1_u32, 128))]
    streams: Vec<u32>,
    /// What the sending program hands over at a time, which goes at once (TCP_NODELAY).
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = within::<Bytes>("1B", "1MiB"))]
    data: Vec<Bytes>,
    /// The senders' socket buffer, which the kernel doubles.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = within::<Bytes>("1B", "1GiB"))]
    send_buffer: Vec<Bytes>,
    /// The receivers' socket buffer, which the kernel doubles.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = within::<Bytes>("1B", "1GiB"))]
    receive_buffer: Vec<Bytes>,
    /// The most that receivers advertise. A server's connections obey it only after the first 64 KiB.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = within::<Bytes>("1B", "1GiB"))]
    window: Vec<Bytes>,
    /// The largest segment.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = within::<Bytes>("88B", "65495B"))]
    mss: Vec<Bytes>,
    /// The senders' congestion control.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    congestion: Vec<String>,
    /// The most that each stream sends, evenly spaced.
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = within::<BitRate>("8kbit/s", "1Tbit/s"))]
    pacing: Vec<BitRate>,
    /// The most that the program of each stream hands over, every 5 ms.
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = within::<BitRate>("8kbit/s", "1Tbit/s"))]
    offered: Vec<BitRate>,
    /// How often each end looks at its connections.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = within::<Time>("1ms", "10s"))]
    sample: Time,
}

/// A direction, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AskedWay {
    Forth,
    Back,
    Both,
}

impl AskedWay {
    fn ways(self) -> Vec<Way> {
        match self {
            Self::Forth => vec![Way::Forth],
            Self::Back => vec![Way::Back],
            Self::Both => vec![Way::Forth, Way::Back],
        }
    }
}

/// Measures.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let points = sweep::points(&args.load, args.limit)?;
    let is_single = points.len() == 1 && args.repeat == 1;
    if let Some(record) = &args.record {
        let is_file = is_file(record);
        if is_file && !is_single {
            misused("--record must name a directory when there is more than one measurement");
        }
        let checked = match is_file {
            true => check_target(record, args.force),
            false => check_directory(record),
        };
        checked.with_context(|| record.display().to_string())?;
        if is_file && !is_stream(record) {
            let samples = series_of::<Sample>(record);
            check_target(&samples, args.force).with_context(|| samples.display().to_string())?;
        }
    }
    let server = match args.iperf3 {
        true => Server { name: with_port(args.target.name(), ekiden_iperf3::PORT), security: None, via: None },
        false => args.target.server("measure client")?,
    };
    if let Some(Err(error)) = args.via.as_deref().map(str::parse::<HostPort>) {
        misused(&format!("--via: {error}"));
    }
    let server = Server { via: args.via.clone(), ..server };
    out::note(args.width.wrapped(&sweep::announcement(&points, args.repeat)));
    if !is_single {
        return sweep::run(args, &server, &points);
    }
    let Some(point) = points.first() else { return Ok(()) };
    let bar = show::Bar::new(point.asked.get());
    let (measurement, written) = one(args, &server, &point.asked, &mut |progress| bar.show(&progress))?;
    bar.clear();
    match args.json {
        true => out::line(serde_json::to_string_pretty(&measurement)?)?,
        false => out::text(show::text(&measurement, args.width))?,
    }
    written
}

/// The bytes that end a load before its time, and whose bound that is.
fn bound(asked: &Asked, server: Option<u64>) -> Option<(u64, &'static str)> {
    let LoadSettings { bytes: own, duration_us, .. } = asked.get();
    match (*own, server) {
        (own, Some(server)) if own.is_none_or(|own| own > server) => Some((server, "the limit of the server")),
        (Some(own), _) if duration_us.is_some() => Some((own, "--limit or --bytes")),
        _ => None,
    }
}

/// One measurement, written where the user wants it; and whether it could be written. What came out is to be shown in any case.
fn one(
    args: &Args,
    server: &Server,
    asked: &Asked,
    progress: &mut dyn FnMut(ekiden_measure::client::Progress),
) -> anyhow::Result<(Measurement, anyhow::Result<()>)> {
    let started_unix_ms = now_unix_ms();
    let (mut measurement, samples) = match args.iperf3 {
        true => iperf3::measure(&server.name, server.via.as_ref(), asked, started_unix_ms, progress)?,
        false => {
            let measured = measure(server, asked, Trace::No, progress)?;
            if let Some((most, whose)) = bound(asked, measured.bytes_most) {
                for way in measured.reached(most, asked) {
                    out::note(format_args!("{whose} ended the load {}", way.word()));
                }
            }
            (told(server, asked, &measured, started_unix_ms)?, samples(&measured))
        }
    };
    let written = match &args.record {
        Some(record) => write(record, &mut measurement, samples),
        None => Ok(()),
    };
    Ok((measurement, written))
}

/// Writes a record and its samples, both or none.
fn write(record: &Path, measurement: &mut Measurement, samples: Vec<Sample>) -> anyhow::Result<()> {
    let place = match is_file(record) {
        true => record.to_path_buf(),
        false => record.join(format!("measurement-{}.json", measurement.started_unix_ms)),
    };
    let mut series = SeriesWriter::new(&place, SAMPLES_MOST);
    let mut last = None;
    for sample in samples {
        if last != Some(sample.at_us) {
            last = Some(sample.at_us);
            let _ = series.look(sample.at_us);
        }
        series.sample(sample);
    }
    let written = series.finish_with(|files| {
        measurement.series = Some(files?);
        let text = serde_json::to_string_pretty(&measurement)? + "\n";
        ekiden_files::write(&place, text.as_bytes()).map_err(|source| {
            let file = place.display().to_string();
            anyhow::Error::from(ekiden_record::Error::Unwritable { file, source })
        })
    });
    written.inspect_err(|_| measurement.series = None)
}

fn told(
    server: &Server,
    asked: &Asked,
    measured: &Measured,
    started_unix_ms: u64,
) -> Result<Measurement, ekiden_measure::Error> {
    let (loads, latency) = loads_of(asked, measured)?;
    let of = |seen: &[ekiden_measure_proto::seen::LoadSeen]| {
        let sender = seen.iter().find(|seen| !seen.end.congestion.is_empty());
        sender.map(|seen| seen.end.congestion.clone())
    };
    let mut near = end_settings();
    let mut far = measured.far.clone();
    near.congestion = of(&measured.near_seen).unwrap_or(near.congestion);
    far.congestion = of(&measured.far_seen).unwrap_or(far.congestion);
    Ok(Measurement {
        measurement_format: MEASUREMENT_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        command: command_line(),
        started_unix_ms,
        from: measured.from.ip().to_string(),
        to: server.name.clone(),
        settings: asked.get().clone(),
        near,
        far: Some(far),
        loads,
        latency: Some(latency),
        series: None,
    })
}

/// The settings that the command line starts from.
fn base(load: &Load) -> LoadSettings {
    let sample_us = u32::try_from(load.sample.0 / 1_000).unwrap_or(u32::MAX);
    let default = Asked::default().get().clone();
    LoadSettings { sample_us, duration_us: None, ..default }
}
