//! What is concluded from what both ends have seen of a load: how fast it was, what limited it, what the path is made of. Without I/O.
//!
//! [`measured`] is what came in; [`plausible`] refuses what cannot be. [`outcome`] says what each direction carried, and [`verdict`] what
//! limited it; [`path`] what the path is made of, and [`hole`] that long segments do not arrive. [`budget`] says when a sender has shown what
//! it can show. [`jitter`], [`spread`] and [`thinned`] keep what comes again and again in bounded memory.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod budget;
mod episodes;
pub mod hole;
pub mod jitter;
pub mod latency;
pub mod limit;
pub mod measured;
pub mod outcome;
pub mod path;
pub mod plausible;
pub mod spread;
pub mod thinned;
pub mod verdict;
