//! Standard output, where a reader that has seen enough (`ekiden … | head`) is no error; and standard error, where none is.

use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, Write};
use std::process::exit;

use anyhow::Context;
use ekiden_record::{Error, Row, Rows, write_csv};

/// The most columns of a text that is wrapped, however wide the terminal is.
pub const WIDEST: usize = 100;

/// As wide as the terminal, as help texts are. A line that is continued keeps its indent.
pub fn wrapped(text: &str) -> String {
    let page = clap::Command::new("text").help_template("{about}").max_term_width(WIDEST);
    page.about(text.to_owned()).render_help().to_string()
}

/// Prints a line.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    write(format_args!("{text}\n"))
}

/// Prints text that ends its last line itself.
pub fn text(text: impl Display) -> anyhow::Result<()> {
    write(format_args!("{text}"))
}

/// Prints a series as CSV.
pub fn csv<R: Row>(rows: Rows<R>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = write_csv(rows, &mut out).and_then(|()| Ok(out.flush()?));
    match written {
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => exit(0),
        Err(Error::Output(error)) => Err(error).context("standard output"),
        written => Ok(written?),
    }
}

fn write(text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(0),
        result => result.context("standard output"),
    }
}

/// Prints a line on standard error. What nobody reads is not missed: a run goes on without it.
pub fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Columns as wide as their widest cell; the first to the left, the others to the right.
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let line = |row: &[String; N]| {
        let first = format!("{:<1$}", row[0], width(0));
        let rest = (1..N).map(|column| format!("  {:>1$}", row[column], width(column)));
        first + &rest.collect::<String>() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Columns of texts as wide as their widest cell, all to the left.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}  "));
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
