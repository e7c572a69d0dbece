//! The ekiden command line.
fn main() {}
