//! `ekiden measure monitor`: measures the same targets through the day, keeps what came out, and shows it by hour of day.
//!
//! What measures is given to it: [`Service`] knows only [`Measured`] and [`Failure`].

mod by_iperf3;
mod by_server;
mod config;
mod export;
mod gain;
mod history;
mod hours;
mod measurement;
mod picture;
mod schedule;
mod service;
pub mod status;
mod text;

pub use by_iperf3::by_iperf3;
pub use by_server::by_server;
pub use config::{Config, ConfigError, Direction, Offset, Server, Target, sections};
pub use export::{to_csv, to_json, to_prometheus};
pub use gain::gains;
pub use history::{History, HistoryError, Tally};
pub use hours::{ByHour, Quartiles, Zone, by_hour, since};
pub use measurement::{Failure, Measured, Measurement};
pub use picture::picture;
pub use schedule::Rounds;
pub use service::{EndError, Event, Measure, Service, now_unix_ms};
pub use text::to_text;
