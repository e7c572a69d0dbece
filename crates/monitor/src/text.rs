//! The history on a terminal.

use ekiden_report::Table;

use crate::gain::gains;
use crate::hours::{ByHour, HOURS, Quartiles, Zone, by_hour};
use crate::measurement::{Measurement, digits, mbit};

/// Two tables of at most `columns` columns: each target over all hours, and each hour of the day.
pub fn to_text(measurements: &[Measurement], zone: &Zone, columns: Option<usize>) -> String {
    let (Some(first), Some(last)) = (measurements.first(), measurements.last()) else {
        return "no measurements\n".into();
    };
    let targets = by_hour(measurements, zone);
    let [from, to] = [first, last].map(|row| zone.minute(row.started_unix_ms));
    let mut text = format!(
        "{} measurements, {from} to {to} ({})\n\n{}\n",
        measurements.len(),
        zone.name(),
        summary(&targets, &gains(measurements)).to_text_within(columns)
    );
    text += &format!("\nMbit/s by hour of day, median (quartiles)\n\n{}\n", hours(&targets).to_text_within(columns));
    let failed = measurements.iter().rev().find_map(|row| Some((row, row.result.as_ref().err()?)));
    if let Some((row, failure)) = failed {
        let at = zone.minute(row.started_unix_ms);
        text += &format!("\nlast failure: {at}, {}: {}\n", plain(&row.target), plain(&failure.0));
    }
    text
}

fn summary(targets: &[ByHour], gains: &[(String, Quartiles)]) -> Table {
    let mut table =
        Table::new(["target", "measured", "failed", "Mbit/s", "quartiles", "RTT ms", "loaded ms", "× direct"]);
    for target in targets {
        let ms = |times: Option<Quartiles>| times.map_or("-".into(), |times| digits(times.median));
        let gain = gains.iter().find(|(name, _)| *name == target.target);
        table.row([
            plain(&target.target),
            target.all.map_or(0, |all| all.count).to_string(),
            target.failed.to_string(),
            target.all.map_or("-".into(), |all| mbit(all.median)),
            target.all.map_or("-".into(), |all| format!("{} to {}", mbit(all.lower), mbit(all.upper))),
            ms(target.rtt_base_ms),
            ms(target.rtt_loaded_ms),
            gain.map_or("-".into(), |(_, gain)| format!("{:.2}", gain.median)),
        ]);
    }
    table
}

fn hours(targets: &[ByHour]) -> Table {
    let names = targets.iter().map(|target| plain(&target.target));
    let mut table = Table::new(["hour".to_owned()].into_iter().chain(names));
    for hour in (0..HOURS).filter(|hour| targets.iter().any(|target| target.hours[*hour].is_some())) {
        let cells = targets.iter().map(|target| match &target.hours[hour] {
            Some(found) => format!("{} ({} to {})", mbit(found.median), mbit(found.lower), mbit(found.upper)),
            None => "-".into(),
        });
        table.row([format!("{hour:02}")].into_iter().chain(cells));
    }
    table
}

/// The file's content goes to a terminal.
fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Failure, Measured};

    #[test]
    fn targets_and_hours_are_there_with_the_last_failure() {
        let row = |at: u64, target: &str, via: Option<&str>, result: Result<u64, &str>| Measurement {
            round_unix_ms: at,
            started_unix_ms: at * 3_600_000,
            target: target.into(),
            server: "s".into(),
            via: via.map(str::to_owned),
            direction: "receive".into(),
            result: result
                .map(|received_bit_s| Measured { received_bit_s, rtt_base_us: Some(38_600), ..Measured::default() })
                .map_err(|why| Failure(why.into())),
        };
        let rows = [
            row(20, "direct", None, Ok(48_200_000)),
            row(20, "overlay", Some("x:1"), Ok(65_800_000)),
            row(21, "direct", None, Err("gone\u{1b}[2J")),
        ];
        let text = to_text(&rows, &Zone::utc(), None);
        for piece in [
            "3 measurements, 1970-01-01 20:00 to 1970-01-01 21:00 (UTC)",
            "× direct",
            "48.2",
            "38.6",
            "1.37",
            " 20     48.2 (48.2 to 48.2)   65.8",
            "last failure: 1970-01-01 21:00, direct: gone\u{fffd}[2J",
        ] {
            assert!(text.contains(piece), "no {piece:?} in\n{text}");
        }
        let named = to_text(&[row(1, "a\u{1b}[2J", None, Err("gone"))], &Zone::utc(), None);
        assert!(
            named.contains("last failure: 1970-01-01 01:00, a\u{fffd}[2J: gone") && !named.contains('\u{1b}'),
            "{named}"
        );
        assert_eq!(to_text(&[], &Zone::utc(), None), "no measurements\n");
    }
}
