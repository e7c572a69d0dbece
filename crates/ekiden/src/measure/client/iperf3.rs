//! A load of a plain iperf3 server, told as one of ours.

use std::time::Duration;

use crate::usage::{command_line, misused};
use ekiden_diagnosis::thinned::Thinned;
use ekiden_iperf3::{LoadDirection, Outcome, Settings, StreamOutcome, Until};
use ekiden_measure::client::Progress;
use ekiden_measure::server::end_settings;
use ekiden_measure_proto::message::{LOOKS_MOST, ROWS_MOST};
use ekiden_measure_proto::settings::Asked;
use ekiden_record::{Delays, Load, LoadSettings, MEASUREMENT_FORMAT, Measurement, Sample, Shares, StreamLoad, Way};
use ekiden_units::{Bytes, quantile};

/// Measures with the iperf3 server `name`. Returns what came out, and the samples of our connections.
pub fn measure(
    name: &str,
    via: Option<&String>,
    asked: &Asked,
    started_unix_ms: u64,
    progress: &mut dyn FnMut(Progress),
) -> anyhow::Result<(Measurement, Vec<Sample>)> {
    let settings = settings(name, via, asked.get())?;
    let streams = asked.get().streams as usize * asked.get().ways.len();
    let mut looks = Thinned::new(LOOKS_MOST.min(ROWS_MOST / streams.max(1)));
    let outcome = ekiden_iperf3::run(&settings, &mut |said| {
        if let ekiden_iperf3::Progress::Sampled { at_us, samples, .. } = said {
            let bytes = samples.iter().map(|sample| sample.received_bytes).sum();
            progress(Progress { elapsed: Duration::from_micros(at_us), bytes });
            looks.push(samples.to_vec());
        }
    })?;
    let kept: Vec<Sample> = looks.into_kept().into_iter().flatten().collect();
    let loads = asked.get().ways.iter().map(|way| load(*way, &outcome, &kept)).collect();
    let mut near = end_settings();
    near.congestion = outcome.congestion.clone();
    let measurement = Measurement {
        measurement_format: MEASUREMENT_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        command: command_line(),
        started_unix_ms,
        from: "here".into(),
        to: format!("{name} (iperf3)"),
        settings: asked.get().clone(),
        near,
        far: None,
        loads,
        latency: None,
        series: None,
    };
    Ok((measurement, kept))
}

/// What iperf3 servers can be asked for.
fn settings(name: &str, via: Option<&String>, asked: &LoadSettings) -> anyhow::Result<Settings> {
    let cannot = [
        ("--window", asked.window_bytes.is_some()),
        ("--mss", asked.mss_bytes.is_some()),
        ("--pacing", asked.pacing_bit_s.is_some()),
        ("--offered", asked.offered_bit_s.is_some()),
        ("--send-buffer other than --receive-buffer", asked.send_buffer_bytes != asked.receive_buffer_bytes),
    ];
    if let Some((flag, _)) = cannot.iter().find(|(_, is_asked)| *is_asked) {
        misused(&format!("an iperf3 server is not asked for {flag}"));
    }
    let direction = match asked.ways[..] {
        [Way::Forth] => LoadDirection::Send,
        [Way::Back] => LoadDirection::Receive,
        _ => LoadDirection::Both,
    };
    let plain = Settings::new(name);
    let bytes = asked.bytes.map(Bytes);
    Ok(Settings {
        streams: asked.streams,
        direction,
        until: match (asked.duration_us, bytes) {
            (Some(us), _) => Until::Time(Duration::from_micros(us)),
            (None, Some(bytes)) => Until::Bytes(bytes),
            (None, None) => plain.until,
        },
        bytes_most: bytes.filter(|_| asked.duration_us.is_some()),
        via: via.cloned(),
        block_bytes: asked.data_bytes.unwrap_or(plain.block_bytes),
        congestion: asked.congestion.clone(),
        window: asked.send_buffer_bytes.map(Bytes),
        sample_every: Duration::from_micros(asked.sample_us.into()),
        ..plain
    })
}

fn load(way: Way, outcome: &Outcome, samples: &[Sample]) -> Load {
    let is_sent = way == Way::Forth;
    let flow = if is_sent { "send" } else { "receive" };
    let streams = || outcome.streams.iter().filter(move |stream| stream.is_sent == is_sent);
    let of_flow = || samples.iter().filter(move |sample| &*sample.flow == flow);
    let mut cwnds: Vec<u64> = of_flow().map(|sample| sample.cwnd_segments.into()).collect();
    cwnds.sort_unstable();
    let shares: Vec<Shares> = streams().filter_map(|stream| stream.shares).collect();
    Load {
        way,
        bytes: streams().map(|stream| stream.received_bytes).sum(),
        duration_us: streams().map(|stream| stream.duration_us).max().unwrap_or_default(),
        goodput_bit_s: outcome.received_bit_s(is_sent).unwrap_or_default(),
        tenths_bytes: Vec::new(),
        retransmits: streams().filter_map(|stream| stream.retransmits).sum(),
        delivered_segments: 0,
        rtt_min_us: streams().filter_map(|stream| stream.rtt_min_us).min().unwrap_or_default(),
        rtt: Delays::of(of_flow().map(|sample| sample.rtt_us as f64).filter(|rtt| *rtt > 0.0).collect()),
        cwnd_p50_segments: quantile::above(&cwnds, 50).unwrap_or_default(),
        write_to_ack: None,
        shares: Shares::mean(&shares),
        path_limit: None,
        lost_segment_bytes: None,
        streams: streams().map(stream).collect(),
        sampler_late: outcome.late.map_or(Delays::of(Vec::new()), |late| Delays {
            count: late.samples,
            min_us: 0.0,
            p50_us: late.p50_us as f64,
            p99_us: late.p99_us as f64,
            max_us: late.max_us as f64,
        }),
        sender_cpu_us: 0,
        receiver_cpu_us: 0,
    }
}

fn stream(stream: &StreamOutcome) -> StreamLoad {
    StreamLoad {
        bytes: stream.received_bytes,
        goodput_bit_s: stream.received_bit_s,
        retransmits: stream.retransmits.unwrap_or_default(),
        shares: stream.shares,
    }
}
