//! What the C library's allocator keeps of memory that was freed (mallopt(3), malloc_trim(3)). Others than glibc are left alone.

/// Blocks of this size and more go back to the kernel as soon as they are freed, wherever they lie.
const LARGE: libc::c_int = 1 << 20;

/// Free memory at the end of the heap, in bytes, beyond which it goes back.
const SPARE: libc::c_int = 4 << 20;

/// Sets limits that stay. Without them glibc raises its own with the largest block that was ever freed, and keeps as much for
/// each of its arenas.
pub fn limit_spare() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets two numbers, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE);
    }
}

/// Gives every free page back, also those between blocks in use. Takes milliseconds for each 100 MB, in which threads that share
/// an arena wait for one another.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: concerns free memory only, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
