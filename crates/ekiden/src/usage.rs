//! Command lines that are wrong in a way that their definition cannot tell, and values that several commands read.

use std::path::PathBuf;

use clap::error::ErrorKind;

/// Ends the program for wrong usage that the command line's definition cannot tell.
pub fn misused(reason: &str) -> ! {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{reason}\n")).exit()
}

/// Reads where a picture goes.
pub fn svg(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    match file.extension() {
        Some(extension) if !extension.eq_ignore_ascii_case("svg") => {
            Err("pictures are SVG only: name a file that ends in .svg".into())
        }
        _ => Ok(file),
    }
}
