//! ekiden congestion from outside.
fn main() {}
