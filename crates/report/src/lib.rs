//! Tables and pictures from measured, predicted and published values.

mod chart;
mod escape;
mod frame;
mod map;
mod page;
mod palette;
mod spread_chart;
mod stack;
mod summary;
mod table;
mod terminal;
mod timeline;
mod toml;

pub use chart::{BarChart, LineChart, Series};
pub use map::{MapLeg, MapSite, SiteMap};
pub use page::{Page, Section};
pub use spread_chart::{Middle, SpreadChart};
pub use stack::stacked;
pub use summary::{FlowSummary, Spread, Summary, summarize};
pub use table::Table;
pub use terminal::{Plain, columns, plain, wrapped};
pub use timeline::{LEAST_POINTS, Quantity, Timeline, timeline};
pub use toml::plain_toml;
