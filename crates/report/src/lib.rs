//! Tables and pictures from measured, predicted and published values.

mod chart;
mod page;
mod table;

pub use chart::{BarChart, LineChart, Series};
pub use page::{Page, Section};
pub use table::Table;
