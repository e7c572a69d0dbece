//! What libbpf says, and how it wants its files.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::PrintLevel;

/// libbpf reads an ELF file in place, so it must be aligned to 8 bytes.
#[repr(C, align(8))]
pub struct Aligned<T: ?Sized>(pub T);

/// The latest messages of libbpf, which explain refusals better than its error numbers.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Forgets what was said, and keeps what is said from now on instead of printing it.
pub fn listen() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
        MESSAGES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    })));
    take();
}

/// What was said since.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *MESSAGES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The last line of it in parentheses, behind a space.
pub fn last(messages: &[String]) -> String {
    let last = messages.iter().rev().flat_map(|line| line.lines().rev()).find(|line| !line.trim().is_empty());
    last.map(|line| format!(" ({})", line.trim())).unwrap_or_default()
}
