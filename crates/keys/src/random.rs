//! Random numbers from the kernel.

use std::io;

/// 32 bytes that nobody can guess.
pub fn random_secret() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}
