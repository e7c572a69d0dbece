//! Limits how much freed memory the C library's allocator keeps (mallopt(3), malloc_trim(3)). It does nothing with other
//! libraries than glibc.

/// Blocks of this size and more go back to the kernel as soon as they are freed, wherever they lie.
const LARGE: libc::c_int = 1 << 20;

/// If more than this is free at the end of the heap, in bytes, it goes back.
const SPARE: libc::c_int = 4 << 20;

/// Sets both limits. Without them glibc raises its own limits with the largest block that was ever freed, and keeps as much for
/// each of its arenas.
pub fn limit_spare() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets two numbers, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE);
    }
}

/// Gives every free page back, those between blocks in use too. It takes milliseconds for each 100 MB, during which threads
/// that share an arena wait.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: concerns free memory only, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
