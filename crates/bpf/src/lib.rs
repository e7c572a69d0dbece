//! eBPF programs and their loaders: congestion control for the running kernel.
//!
//! The kernel knows a congestion control by its name, for all namespaces at once. [`hold`] registers those it does not
//! have yet, and holds those that another ekiden has registered: a name stays as long as anyone holds or has pinned it,
//! and goes with the last, also when processes are killed. Connections that use it then go on with it.

mod error;
mod held;
mod links;
mod lock;
mod object;
mod pins;
mod trace;

pub use error::{Error, Kind};
pub use held::{Held, hold, registered};
pub use object::try_load;
pub use pins::{is_pinned, pin, unpin};
pub use trace::{Event, EventKind, Level, Trace};
