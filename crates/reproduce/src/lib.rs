//! The experiments of papers as data, and what ours say of their claims.
//!
//! A description names a figure of a paper, the runs that repeat it, and its claims in numbers. [`Catalogue`] reads the descriptions;
//! [`RunSet::plan`] says which runs there are in which engine, and `ekiden-sweep` which are missing. [`judge`] reads their records and gives
//! every claim a verdict by the one rule of [`verdict`]. [`Report`] shows all of that. Nothing here runs anything.
//! `docs/guide/reproduce.md` describes rule and descriptions.

mod axis;
mod catalogue;
mod description;
mod engine;
mod files;
mod judge;
mod plot;
mod quantity;
mod report;
mod results;
mod time;
pub mod verdict;

pub use catalogue::{Catalogue, Experiment, Selected};
pub use description::{Amount, Because, Claim, Comparison, Plot, PlotKind, PointId, RunSet, Term};
pub use engine::{Effort, Engine};
pub use files::Files;
pub use judge::{Figure, Judged, Row, judge};
pub use plot::Picture;
pub use quantity::Quantity;
pub use report::{Manifest, Report, table};
pub use results::{Origin, Results, Values};
pub use time::expected;
