//! Tests of crate `ekiden_stream`.

mod kernel;
