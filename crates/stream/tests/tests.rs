//! Tests of crate `ekiden_stream`.

mod faults;
mod kernel;
