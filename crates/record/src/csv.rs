//! Series as CSV (RFC 4180).

use std::io::{self, Write};

use crate::sample::{Cell, Row};

/// Writes a series: a line with the names of the columns, then a line for each sample. What is absent is empty. An error of
/// `rows` ends it.
///
/// # Errors
/// The first of `rows`, or of `out`.
pub fn write_csv<R: Row, E: From<io::Error>>(
    rows: impl Iterator<Item = Result<R, E>>,
    out: &mut impl Write,
) -> Result<(), E> {
    write_csv_head::<R>(&[], out)?;
    write_csv_rows(&[], rows, out)
}

/// Writes the line with the names of the columns: of those `before`, and of the series.
///
/// # Errors
/// Those of `out`.
pub fn write_csv_head<R: Row>(before: &[String], out: &mut impl Write) -> io::Result<()> {
    let own = R::COLUMNS.iter().map(|(name, ..)| (*name).to_owned());
    let head: Vec<_> = before.iter().map(|name| quoted(name)).chain(own).collect();
    writeln!(out, "{}", head.join(","))
}

/// Writes a line for each sample, each behind the values of the columns `before`.
///
/// # Errors
/// The first of `rows`, or of `out`.
pub fn write_csv_rows<R: Row, E: From<io::Error>>(
    before: &[String],
    rows: impl Iterator<Item = Result<R, E>>,
    out: &mut impl Write,
) -> Result<(), E> {
    let before: String = before.iter().map(|value| quoted(value) + ",").collect();
    let mut line = Vec::new();
    for row in rows {
        let row = row?;
        line.clear();
        line.extend_from_slice(before.as_bytes());
        // Writing to memory does not fail.
        row.cells(|cell| {
            let _ = match cell {
                Cell::Number(number) => write!(line, "{number},"),
                Cell::Name(name) if is_plain(name) => write!(line, "{name},"),
                // A file of others may have anything there, and a terminal shows it.
                Cell::Name(name) => write!(line, "{},", quoted(&name.escape_debug().to_string())),
                Cell::Absent => write!(line, ","),
            };
        });
        line.pop();
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(())
}

/// Whether it has what names have: letters, digits, `-` and `_`.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// A value as a field: in quotes if it has what separates fields.
fn quoted(value: &str) -> String {
    match value.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    }
}
