//! Tables and pictures from measured, predicted and published values.

mod chart;
mod frame;
mod page;
mod palette;
mod summary;
mod table;
mod timeline;

pub use chart::{BarChart, LineChart, Series};
pub use page::{Page, Section};
pub use summary::{FlowSummary, LATENESS_P99_MOST_US, Spread, Summary, is_invalid, summarize};
pub use table::Table;
pub use timeline::{Quantity, timeline};
