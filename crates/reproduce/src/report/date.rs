//! Days of the calendar.

/// The minute of a time in milliseconds since 1970, such as `2026-11-29 17:30` (UTC).
pub(crate) fn minute(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let (days, minute) = (minutes / 1440, minutes % 1440);
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}", minute / 60, minute % 60)
}

/// Year, month and day of a number of days since 1970, counting years from March on, so that leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::minute;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix_s, expected) in [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_868_800, "2000-03-01 00:00"),
            (1_709_164_800, "2024-02-29 00:00"),
            (1_795_973_400, "2026-11-29 17:30"),
        ] {
            assert_eq!(minute(unix_s * 1000), expected);
        }
    }
}
