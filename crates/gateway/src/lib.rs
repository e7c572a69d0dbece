//! A gateway: groups of parallel TCP streams that pass through this host are kept in balance, in the kernel.
//!
//! What the programs in the [`kernel`] decide is `ekiden-window-balance`'s. This crate reads a configuration, puts the
//! programs on a device, gives the keeper's word while it lives, and tells what they do.

mod config;
mod error;
mod full;
mod keeper;
pub mod kernel;
mod listing;
mod pins;
mod programs;
mod renewing;
pub mod status;
mod throttlings;

pub use config::{Config, ConfigError, Group, sections};
pub use error::{RemoveError, StartError};
pub use keeper::run;
pub use programs::remove;
