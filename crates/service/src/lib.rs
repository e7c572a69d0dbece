//! What every program that stays has in common: how it starts, what signals mean to it, what it says when it is ready, how it is asked,
//! which files it reads again when they change, and which lines of its log others can cause how often.

mod announce;
pub mod ask_socket;
mod askers;
pub mod followed;
pub mod process;
pub mod reload;
mod signals;
pub mod status;
pub mod status_socket;
mod throttle;

pub use announce::announce;
pub use signals::{Asked, Signals};
pub use throttle::Throttle;
