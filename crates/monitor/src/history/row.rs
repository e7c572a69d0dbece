//! A measurement as a row, and back.

use ekiden_diagnosis::limit::Shares;
use rusqlite::{Connection, Row, params};

use crate::measurement::{Failure, Measured, Measurement};

const COLUMNS: &str = "round_unix_ms, started_unix_ms, target, server, via, direction, failure, received_bit_s, received_bytes,
    duration_us, rtt_base_us, rtt_loaded_us, retransmits, limited_application, limited_receive_window, limited_send_buffer,
    limited_path";

/// Adds a row.
pub fn insert(connection: &Connection, measurement: &Measurement) -> rusqlite::Result<()> {
    let Measurement { round_unix_ms, started_unix_ms, target, server, via, direction, result } = measurement;
    let (measured, failure) = match result {
        Ok(measured) => (Some(measured), None),
        Err(Failure(reason)) => (None, Some(reason)),
    };
    let number = |of: fn(&Measured) -> Option<u64>| measured.and_then(of).map(signed);
    let shares = measured.and_then(|measured| measured.shares);
    let text = format!(
        "INSERT INTO measurement ({COLUMNS}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17)"
    );
    connection.prepare(&text)?.execute(params![
        signed(*round_unix_ms),
        signed(*started_unix_ms),
        target,
        server,
        via,
        direction,
        failure,
        number(|m| Some(m.received_bit_s)),
        number(|m| Some(m.received_bytes)),
        number(|m| Some(m.duration_us)),
        number(|m| m.rtt_base_us),
        number(|m| m.rtt_loaded_us),
        number(|m| m.retransmits),
        shares.map(|shares| shares.application),
        shares.map(|shares| shares.receive_window),
        shares.map(|shares| shares.send_buffer),
        shares.map(|shares| shares.path),
    ])?;
    Ok(())
}

/// The rows that began at this time or later.
pub fn select(connection: &Connection, since_unix_ms: u64) -> rusqlite::Result<Vec<Measurement>> {
    let text = format!("SELECT {COLUMNS} FROM measurement WHERE started_unix_ms >= ?1 ORDER BY started_unix_ms, id");
    connection.prepare(&text)?.query_map([signed(since_unix_ms)], of)?.collect()
}

/// The last row of each target, and its last without a failure.
pub fn select_latest(connection: &Connection) -> rusqlite::Result<Vec<Measurement>> {
    let text = format!(
        "SELECT {COLUMNS} FROM measurement WHERE id IN (SELECT max(id) FROM measurement GROUP BY target)
         OR id IN (SELECT max(id) FROM measurement WHERE failure IS NULL GROUP BY target) ORDER BY id"
    );
    connection.prepare(&text)?.query_map([], of)?.collect()
}

fn of(row: &Row<'_>) -> rusqlite::Result<Measurement> {
    let failure: Option<String> = row.get(6)?;
    let result = match failure {
        Some(reason) => Err(Failure(reason)),
        None => Ok(Measured {
            received_bit_s: count(row, 7)?,
            received_bytes: count(row, 8)?,
            duration_us: count(row, 9)?,
            rtt_base_us: perhaps(row, 10)?,
            rtt_loaded_us: perhaps(row, 11)?,
            retransmits: perhaps(row, 12)?,
            shares: shares(row)?,
        }),
    };
    Ok(Measurement {
        round_unix_ms: count(row, 0)?,
        started_unix_ms: count(row, 1)?,
        target: row.get(2)?,
        server: row.get(3)?,
        via: row.get(4)?,
        direction: row.get(5)?,
        result,
    })
}

fn shares(row: &Row<'_>) -> rusqlite::Result<Option<Shares>> {
    let [application, receive_window, send_buffer, path] =
        [13, 14, 15, 16].map(|column| row.get::<_, Option<f64>>(column));
    let all = (application?, receive_window?, send_buffer?, path?);
    let (Some(application), Some(receive_window), Some(send_buffer), Some(path)) = all else { return Ok(None) };
    Ok(Some(Shares { application, receive_window, send_buffer, path }))
}

/// A number that is not negative.
pub fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

fn perhaps(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    let number: Option<i64> = row.get(column)?;
    number
        .map(|number| u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number)))
        .transpose()
}

/// As SQLite has it; what is greater than anything that is measured becomes the greatest.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
