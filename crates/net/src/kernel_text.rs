//! Files of the kernel's, such as those of `/proc`.

use std::path::Path;
use std::{fs, io};

/// The text of a file of the kernel's. Names of others in it, of a mount, a socket, a device or a process, may be any bytes: what is
/// not UTF-8 is shown as U+FFFD, and costs nothing else of the file.
///
/// # Errors
/// If it cannot be read.
pub fn kernel_text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
