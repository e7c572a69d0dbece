//! Charts, maps, and what is summed up of records for them.

mod chart;
mod frame;
mod map;
mod palette;
mod spread_chart;
mod stack;
mod summary;
mod timeline;

pub use chart::{BarChart, LineChart, Series};
pub use map::{MapLeg, MapSite, SiteMap};
pub use spread_chart::{Middle, SpreadChart};
pub use stack::stacked;
pub use summary::{FlowSummary, Spread, Summary, summarize};
pub use timeline::{LEAST_POINTS, Quantity, Timeline, timeline};
