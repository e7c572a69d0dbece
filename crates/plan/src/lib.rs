//! From what is known of a path to what helps there: where proxies would have to be, with which settings, and what that should give.
//!
//! A [`Path`] comes from a description, from `ekiden measure path`, or from flags. [`Plan::of`] tries every remedy on it by the models of
//! crate `model` and chooses. [`nodes`] writes the configurations of the chain, [`tunnel_gateway`] those of a tunnel and a gateway, [`network`] the scenario that puts a forecast to the test.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod answer;
mod candidate;
mod choice;
mod error;
mod estimate;
mod flags;
mod forecast;
mod given;
mod measured;
pub mod network;
pub mod nodes;
mod path;
mod plan;
mod raw;
mod read;
pub mod tunnel_gateway;
mod verdict;

pub use answer::{Advice, LargerWindows, LegPlan, NodePlan, Plan, Remedy};
pub use error::Error;
pub use estimate::Estimate;
pub use flags::Flags;
pub use forecast::{Forecast, Limit};
pub use given::STREAMS;
pub use path::{Carries, Direction, Path, Site};
pub use read::read;
