//! The data path, crate `ekiden_stream`, on this node's connections.

mod observed;

use ekiden_stream::{between_streams, duplex, output, pump};
use ekiden_transport::Connection;

pub use ekiden_stream::closing;
pub use ekiden_stream::duplex::Broken;
pub use ekiden_stream::expiry::{self, Expiry};
pub use ekiden_stream::framing::Framing;
pub use ekiden_stream::pump::PumpError;
pub use observed::Observed;

pub type BetweenStreams = between_streams::BetweenStreams<Connection>;
pub type Duplex = duplex::Duplex<Connection>;
pub type Output<'a> = output::Output<'a, Connection>;
pub type Pump = pump::Pump<Connection>;
pub type Side = duplex::Side<Connection>;
