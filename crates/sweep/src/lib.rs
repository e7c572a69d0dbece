//! Many runs of a scenario: which there are, who does which, what is there already, and one table of what came out.
//!
//! A sweep is a scenario and what of it varies. The names of all its records follow from that, so an interrupted sweep goes on
//! where it was, and machines can share one. What a run is, the caller says; the directory of records is described in
//! `docs/guide/record.md`.

mod error;
mod index;
mod merge;
mod plan;
mod run;
mod shard;
mod table;

pub use error::{Error, Kind};
pub use index::Index;
pub use merge::{Merged, merge};
pub use plan::{Plan, Run, expected, is_file};
pub use run::{Done, Failure, Runner, Watch, carry_out};
pub use shard::Shard;
pub use table::{Shown, shown, table};

/// The version of a sweep's description that this program writes, and the newest it reads.
const FORMAT: u32 = 1;
