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
    let head: Vec<_> = R::COLUMNS.iter().map(|(name, ..)| *name).collect();
    writeln!(out, "{}", head.join(","))?;
    let mut line = Vec::new();
    for row in rows {
        let row = row?;
        line.clear();
        // Names are letters, digits, `-` and `_`, so none needs quotes; writing to memory does not fail.
        row.cells(|cell| {
            let _ = match cell {
                Cell::Number(number) => write!(line, "{number},"),
                Cell::Name(name) => write!(line, "{name},"),
                Cell::Absent => write!(line, ","),
            };
        });
        line.pop();
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(())
}
