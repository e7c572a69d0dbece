//! The files that are fetched: pseudo-random, so that nothing on the way can guess or compress them, and the same for
//! whoever makes them.

use std::convert::Infallible;
use std::io::{self, Write};

use ekiden_units::Bytes;
use ekiden_units::random::Random;
use sha2::{Digest, Sha256};

const BLOCK: usize = 64 * 1024;

/// Writes `size` bytes.
///
/// # Errors
/// Those of `out`.
pub fn write(size: Bytes, out: &mut impl Write) -> io::Result<()> {
    in_pieces(size, |piece| out.write_all(piece))
}

/// The SHA-256 of what [`write`] writes, in hexadecimal.
pub fn sha256(size: Bytes) -> String {
    let mut hash = Sha256::new();
    let Ok(()) = in_pieces(size, |piece| {
        hash.update(piece);
        Ok::<(), Infallible>(())
    });
    hex(&hash.finalize())
}

fn in_pieces<E>(size: Bytes, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let mut block = vec![0; BLOCK];
    let mut random = Random::new(size.0);
    let mut left = size.0;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&random.draw().to_le_bytes());
        }
        let piece = left.min(BLOCK as u64) as usize;
        take(&block[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
