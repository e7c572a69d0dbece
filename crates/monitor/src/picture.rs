//! The history as a picture by hour of day.

use ekiden_report::{Middle, SpreadChart};

use crate::hours::{Zone, by_hour};
use crate::measurement::Measurement;

/// One SVG document: each target's throughput by hour of day, median and quartiles.
pub fn picture(measurements: &[Measurement], zone: &Zone) -> String {
    let days = match (measurements.first(), measurements.last()) {
        (Some(first), Some(last)) => {
            let day = |row: &Measurement| zone.minute(row.started_unix_ms).chars().take(10).collect::<String>();
            format!(", {} to {}", day(first), day(last))
        }
        _ => String::new(),
    };
    let mbit = |bit_s: f64| bit_s / 1e6;
    let targets = by_hour(measurements, zone).into_iter().map(|target| {
        let hours = target.hours.iter().map(|hour| {
            hour.map(|found| Middle { lower: mbit(found.lower), middle: mbit(found.median), upper: mbit(found.upper) })
        });
        (target.target, hours.collect())
    });
    SpreadChart {
        title: format!("Throughput by hour of day: median and quartiles{days}"),
        across: format!("hour of day ({})", zone.name()),
        quantity: "Mbit/s at the receiver".into(),
        series: targets.collect(),
    }
    .to_svg()
}
