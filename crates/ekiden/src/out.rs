//! Standard output, where a reader that has seen enough (`ekiden … | head`) is no error; and standard error, where none is.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use ekiden_report::{plain, plain_toml};

/// The output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("standard output: {0}")]
pub struct Unwritten(io::Error);

/// The maximum number of columns of wrapped text, however wide the terminal is.
pub const WIDEST: usize = 100;

/// How wide what is printed may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct Width {
    /// Print tables and lines as wide as they are, instead of as wide as the terminal. Into a pipe or a file they always are.
    #[arg(long)]
    wide: bool,
}

impl Width {
    /// The maximum number of columns; `None` without a limit.
    pub fn columns(self) -> Option<usize> {
        if self.wide { None } else { ekiden_report::columns() }
    }

    /// Sentences within the width, without the end of the last line.
    pub fn wrapped(self, text: &str) -> String {
        within(self.columns(), text).trim_end().to_owned()
    }

    /// Text with tables that were drawn within the width: its sentences are wrapped. A table that does not fit stays whole.
    pub fn fitted(self, text: &str) -> String {
        self.columns().map_or_else(|| text.to_owned(), |columns| fitted(text, columns))
    }
}

fn fitted(text: &str, columns: usize) -> String {
    let mut is_in_table = false;
    let fitted = text.split_inclusive('\n').map(|line| {
        let is_edge = line.starts_with("───");
        let is_of_table = is_edge || is_in_table;
        is_in_table ^= is_edge;
        if is_of_table { line.to_owned() } else { ekiden_report::wrapped(line, columns) }
    });
    fitted.collect()
}

/// Wrapped to the terminal's width; whole lines without a terminal. A continued line keeps its indent.
pub fn wrapped(text: &str) -> String {
    within(ekiden_report::columns(), text)
}

fn within(columns: Option<usize>, text: &str) -> String {
    ekiden_report::wrapped(text, columns.map_or(usize::MAX, |columns| columns.min(WIDEST)))
}

/// Prints a line.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    write(format_args!("{text}\n"))
}

/// Prints text that ends its last line itself.
pub fn text(text: impl Display) -> anyhow::Result<()> {
    write(format_args!("{text}"))
}

/// Prints a TOML file, which is read back as the same.
pub fn toml(text: impl Display) -> anyhow::Result<()> {
    write(format_args!("{}", plain_toml(&text.to_string())))
}

/// Prints what the parser of the command line outputs: help to standard output, and errors to standard error.
pub fn said(said: &clap::Error) -> anyhow::Result<()> {
    let printed = said.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(error) if error.kind() == ErrorKind::BrokenPipe || said.use_stderr() => Ok(()),
        printed => Ok(printed.map_err(Unwritten)?),
    }
}

/// Prints CSV, as `print` writes it.
#[cfg(feature = "lab")]
pub fn csv(
    print: impl FnOnce(&mut io::BufWriter<io::StdoutLock<'_>>) -> Result<(), ekiden_record::Error>,
) -> anyhow::Result<()> {
    use ekiden_record::Error;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = print(&mut out).and_then(|()| Ok(out.flush()?));
    match written {
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(Error::Output(error)) => Err(Unwritten(error).into()),
        written => Ok(written?),
    }
}

/// Text from a record, a file or another host may contain control characters: none reaches the terminal.
fn write(text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(plain(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result.map_err(Unwritten)?),
    }
}

/// Prints a line on standard error. If standard error is closed, the run goes on without it.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", plain(text));
}

/// Columns as wide as their widest cell; the first to the left, the others to the right. If they are wider than `within`,
/// each row has a line for each of its figures.
pub fn aligned<const N: usize>(rows: &[[String; N]], within: Option<usize>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let whole = (0..N).map(width).sum::<usize>() + 2 * (N - 1);
    if let Some((head, rows)) = rows.split_first().filter(|_| within.is_some_and(|within| whole > within)) {
        return blocks(head, rows);
    }
    let line = |row: &[String; N]| {
        let first = format!("{:<1$}", row[0], width(0));
        let rest = (1..N).map(|column| format!("  {:>1$}", row[column], width(column)));
        first + &rest.collect::<String>() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Rows as blocks: the row's name, and below it each figure behind its column's title.
fn blocks<const N: usize>(head: &[String; N], rows: &[[String; N]]) -> String {
    let widest =
        |texts: &mut dyn Iterator<Item = &String>| texts.map(|text| text.chars().count()).max().unwrap_or_default();
    let names = widest(&mut head.iter().skip(1));
    let figures = widest(&mut rows.iter().flat_map(|row| row.iter().skip(1)));
    let mut text = if head[0].is_empty() { String::new() } else { format!("{}\n", head[0]) };
    for row in rows {
        text += &format!("{}\n", row[0]);
        for (name, figure) in head.iter().zip(row).skip(1) {
            text += &format!("  {name:<names$}  {figure:>figures$}\n");
        }
    }
    text
}

/// Columns of texts as wide as their widest cell, all to the left. If they are wider than `within`, the last one has lines
/// of its own.
pub fn columns<const N: usize>(rows: &[[String; N]], within: Option<usize>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let is_narrow = within.is_some_and(|within| widths.iter().sum::<usize>() + 2 * (N - 1) > within);
    let line = |row: &[String; N]| {
        let cell = |(at, (cell, width)): (usize, (&String, usize))| match is_narrow && at + 1 == N {
            true => format!("\n    {cell}"),
            false => format!("{cell:<width$}  "),
        };
        let lines: String = row.iter().zip(widths).enumerate().map(cell).collect();
        lines.lines().map(|line| line.trim_end().to_owned() + "\n").collect::<String>()
    };
    rows.iter().map(line).collect()
}

/// The error with its causes on one line. Many errors already say their cause; none is said twice.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// How many of these there are, such as `1 link`, `2 links`.
pub fn amount(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// A time for a table, in the unit that suits it.
pub fn ago(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::fitted;

    #[test]
    fn sentences_are_wrapped_and_tables_are_not() {
        let edge = "─".repeat(30);
        let table = format!("{edge}\n a cell that is wide   another \n{edge}\n");
        let text = format!("one sentence that is long\n{table}and one more sentence\n");
        let wrapped = format!("one sentence that\nis long\n{table}and one more\nsentence\n");
        assert_eq!(fitted(&text, 18), wrapped);
    }
}
