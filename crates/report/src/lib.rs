//! Tables and pictures from measured, predicted and published values. Without the feature `pictures`, tables and text alone.

mod escape;
mod page;
#[cfg(feature = "pictures")]
mod pictures;
mod table;
mod terminal;
mod toml;

pub use page::{Page, Section};
#[cfg(feature = "pictures")]
pub use pictures::{
    BarChart, FlowSummary, LEAST_POINTS, LineChart, MapLeg, MapSite, Middle, Quantity, Series, SiteMap, Spread,
    SpreadChart, Summary, Timeline, stacked, summarize, timeline,
};
pub use table::Table;
pub use terminal::{Plain, columns, plain, wrapped};
pub use toml::plain_toml;
