//! Sweeps: many runs of one scenario, in shards and resumable, merged and shown as one table.
//!
//! A sweep is a scenario and the values of it that vary. The names of all records follow from these, so an interrupted sweep
//! can be resumed, and machines can share one. The caller supplies the function that does a run. `docs/guide/record.md`
//! describes the directory of records.

mod error;
mod index;
mod merge;
mod plan;
mod run;
mod shard;
mod table;

pub use error::{Error, ErrorKind};
pub use index::Index;
pub use merge::{Merged, merge};
pub use plan::{Plan, Run, expected, is_file};
pub use run::{RunFailure, RunOutcome, Runner, SweepObserver, run_missing};
pub use shard::Shard;
pub use table::{PointSummary, point_summaries, table};

/// The version of a sweep's description that this program writes, and the newest it reads.
const FORMAT: u32 = 1;
