//! Standard output. A reader that has seen enough (`ekiden … | head`) is no error.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::process::exit;

/// Prints a line.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    write(format_args!("{text}\n"))
}

/// Prints text that ends its last line itself.
pub fn text(text: impl Display) -> anyhow::Result<()> {
    write(format_args!("{text}"))
}

fn write(text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(0),
        result => Ok(result?),
    }
}
