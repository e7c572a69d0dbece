//! HTTP placeholder.
