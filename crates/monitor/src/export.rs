//! The history for other programs: CSV, JSON, and the text format of Prometheus.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::history::Tally;
use crate::hours::utc_text;
use crate::measurement::{Measured, Measurement};

/// The columns of the CSV, and the fields of the JSON.
const COLUMNS: [&str; 17] = [
    "started",
    "round",
    "target",
    "server",
    "via",
    "direction",
    "failure",
    "received_bit_s",
    "received_bytes",
    "duration_us",
    "rtt_base_us",
    "rtt_loaded_us",
    "retransmits",
    "limited_application",
    "limited_receive_window",
    "limited_send_buffer",
    "limited_path",
];

/// A value for each of [`COLUMNS`].
fn values(measurement: &Measurement) -> [Value; 17] {
    let measured = measurement.result.as_ref().ok();
    let shares = measured.and_then(|measured| measured.shares);
    let number = |of: fn(&Measured) -> Option<u64>| json!(measured.and_then(of));
    [
        json!(utc_text(measurement.started_unix_ms)),
        json!(utc_text(measurement.round_unix_ms)),
        json!(measurement.target),
        json!(measurement.server),
        json!(measurement.via),
        json!(measurement.direction),
        json!(measurement.result.as_ref().err().map(|failure| &failure.0)),
        number(|m| Some(m.received_bit_s)),
        number(|m| Some(m.received_bytes)),
        number(|m| Some(m.duration_us)),
        number(|m| m.rtt_base_us),
        number(|m| m.rtt_loaded_us),
        number(|m| m.retransmits),
        json!(shares.map(|shares| shares.application)),
        json!(shares.map(|shares| shares.receive_window)),
        json!(shares.map(|shares| shares.send_buffer)),
        json!(shares.map(|shares| shares.path)),
    ]
}

/// One line per measurement (RFC 4180, with line feeds), after one with the columns. What is absent is empty.
pub fn to_csv(measurements: &[Measurement]) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for measurement in measurements {
        let cells = values(measurement).map(|value| match value {
            Value::Null => String::new(),
            Value::String(text) => quoted(&text),
            other => other.to_string(),
        });
        text += &(cells.join(",") + "\n");
    }
    text
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

/// A list with an object per measurement, one a line. What is absent is null.
pub fn to_json(measurements: &[Measurement]) -> String {
    let object = |measurement: &Measurement| {
        let fields = COLUMNS.iter().zip(values(measurement));
        let fields: Vec<String> = fields.map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    };
    let objects: Vec<String> = measurements.iter().map(object).collect();
    format!("[\n{}\n]\n", objects.join(",\n"))
}

/// A metric: its name, what it is, and its value of a measurement.
type Metric = (&'static str, &'static str, fn(&Measured) -> Option<f64>);

/// In Prometheus' base units: seconds and bytes.
const METRICS: [Metric; 5] = [
    (
        "throughput_bytes_per_second",
        "Payload at the receiver per second, in the last measurement that succeeded.",
        |m| Some(m.received_bit_s as f64 / 8.0),
    ),
    ("received_bytes", "Payload that the last measurement that succeeded has moved.", |m| {
        Some(m.received_bytes as f64)
    }),
    ("rtt_base_seconds", "Round-trip time without load, in the last measurement that succeeded.", |m| {
        m.rtt_base_us.map(|us| us as f64 / 1e6)
    }),
    ("rtt_loaded_seconds", "Round-trip time under load, in the last measurement that succeeded.", |m| {
        m.rtt_loaded_us.map(|us| us as f64 / 1e6)
    }),
    ("retransmitted_segments", "Segments sent again in the last measurement that succeeded.", |m| {
        m.retransmits.map(|count| count as f64)
    }),
];

/// The last values and the counts in the text format of Prometheus, for node_exporter's textfile collector. `latest` has the last
/// measurement of each target and its last that succeeded.
pub fn to_prometheus(latest: &[Measurement], tallies: &[Tally]) -> String {
    let good = || latest.iter().filter_map(|row| Some((labels(row), row, row.result.as_ref().ok()?)));
    let mut text = String::new();
    for (name, help, of) in METRICS {
        let lines = good().filter_map(|(labels, _, measured)| Some((labels, of(measured)?)));
        family(&mut text, name, "gauge", help, lines);
    }
    let shares = good().filter_map(|(labels, _, measured)| Some((labels, measured.shares?)));
    let shares = shares.flat_map(|(labels, shares)| {
        let by = |what: &str| format!("{labels},by=\"{what}\"");
        [
            (by("application"), shares.application),
            (by("receive_window"), shares.receive_window),
            (by("send_buffer"), shares.send_buffer),
            (by("path"), shares.path),
        ]
    });
    let help = "Part of the time in which this limited the sender, in the last measurement that succeeded.";
    family(&mut text, "limited_ratio", "gauge", help, shares);
    let seconds = |ms: u64| ms as f64 / 1e3;
    let help = "When the last measurement that succeeded began, in seconds since 1970.";
    family(
        &mut text,
        "success_timestamp_seconds",
        "gauge",
        help,
        good().map(|(labels, row, _)| (labels, seconds(row.started_unix_ms))),
    );
    let last = |row: &&Measurement| {
        !latest.iter().any(|other| other.target == row.target && other.started_unix_ms > row.started_unix_ms)
    };
    let up = latest.iter().filter(last).map(|row| (labels(row), f64::from(u8::from(row.result.is_ok()))));
    family(&mut text, "success", "gauge", "1 if the last measurement succeeded, 0 if it failed.", up);
    let counts = tallies.iter().flat_map(|tally| {
        let of = |outcome: &str| format!("target=\"{}\",outcome=\"{outcome}\"", escaped(&tally.target));
        [(of("succeeded"), tally.succeeded as f64), (of("failed"), tally.failed as f64)]
    });
    family(&mut text, "measurements_total", "counter", "Measurements since the history began.", counts);
    text
}

fn labels(row: &Measurement) -> String {
    let via = row.via.as_deref().unwrap_or_default();
    format!("target=\"{}\",direction=\"{}\",via=\"{}\"", escaped(&row.target), escaped(&row.direction), escaped(via))
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A metric with all its lines; nothing without any.
fn family(text: &mut String, name: &str, kind: &str, help: &str, lines: impl Iterator<Item = (String, f64)>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    let name = format!("ekiden_monitor_{name}");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in lines {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use ekiden_diagnosis::limit::Shares;

    use super::*;
    use crate::measurement::Failure;

    fn rows() -> Vec<Measurement> {
        let shares = Shares { application: 0.0, receive_window: 0.25, send_buffer: 0.0, path: 0.75 };
        let measured = Measured {
            received_bit_s: 80_000_000,
            received_bytes: 20_000_000,
            duration_us: 2_000_000,
            rtt_base_us: Some(38_600),
            rtt_loaded_us: None,
            retransmits: Some(3),
            shares: Some(shares),
        };
        let good = Measurement {
            round_unix_ms: 1_000,
            started_unix_ms: 1_500,
            target: "direct".into(),
            server: "192.0.2.1:7100".into(),
            via: None,
            direction: "receive".into(),
            result: Ok(measured),
        };
        let why = Failure("no \"connection\", again".into());
        let via = Some("127.0.0.1:1080".into());
        vec![
            good.clone(),
            Measurement { target: "overlay".into(), started_unix_ms: 2_000, via, result: Err(why), ..good },
        ]
    }

    #[test]
    fn csv_has_a_line_for_each() {
        let text = to_csv(&rows());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("started,round,target,server,via,direction,failure,received_bit_s,"));
        assert_eq!(
            lines[1],
            "1970-01-01T00:00:01.500Z,1970-01-01T00:00:01.000Z,direct,192.0.2.1:7100,,receive,,80000000,20000000,2000000,38600,,3,0.0,0.25,0.0,0.75"
        );
        let end = ",,,,,,,,,,";
        assert!(lines[2].ends_with(&format!("receive,\"no \"\"connection\"\", again\"{end}")), "{}", lines[2]);
    }

    #[test]
    fn json_is_a_list_of_objects() {
        let list: Vec<serde_json::Map<String, Value>> = serde_json::from_str(&to_json(&rows())).unwrap();
        assert_eq!(list[0]["received_bit_s"], 80_000_000);
        assert_eq!((&list[0]["rtt_loaded_us"], &list[1]["received_bit_s"]), (&Value::Null, &Value::Null));
        assert_eq!(list[1]["failure"], "no \"connection\", again");
        assert_eq!(list[0].len(), COLUMNS.len());
        assert_eq!(serde_json::from_str::<Vec<Value>>(&to_json(&[])).unwrap().len(), 0);
    }

    #[test]
    fn metrics_have_help_type_and_base_units() {
        let tally = Tally { target: "direct".into(), succeeded: 7, failed: 2 };
        let text = to_prometheus(&rows(), &[tally]);
        for line in [
            "# HELP ekiden_monitor_throughput_bytes_per_second Payload at the receiver per second, in the last measurement that succeeded.",
            "# TYPE ekiden_monitor_throughput_bytes_per_second gauge",
            "ekiden_monitor_throughput_bytes_per_second{target=\"direct\",direction=\"receive\",via=\"\"} 10000000",
            "ekiden_monitor_rtt_base_seconds{target=\"direct\",direction=\"receive\",via=\"\"} 0.0386",
            "ekiden_monitor_limited_ratio{target=\"direct\",direction=\"receive\",via=\"\",by=\"path\"} 0.75",
            "ekiden_monitor_success{target=\"overlay\",direction=\"receive\",via=\"127.0.0.1:1080\"} 0",
            "ekiden_monitor_success_timestamp_seconds{target=\"direct\",direction=\"receive\",via=\"\"} 1.5",
            "# TYPE ekiden_monitor_measurements_total counter",
            "ekiden_monitor_measurements_total{target=\"direct\",outcome=\"failed\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "no line\n{line}\nin\n{text}");
        }
        assert!(!text.contains("rtt_loaded") && text.ends_with('\n'), "{text}");
        // A metric's lines stand together, after one HELP and one TYPE.
        let helps = text.lines().filter(|line| line.starts_with("# HELP")).count();
        assert_eq!(helps, text.lines().filter(|line| line.starts_with("# TYPE")).count());
        assert_eq!(to_prometheus(&[], &[]), "");
    }
}
