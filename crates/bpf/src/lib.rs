//! eBPF programs and their loaders: congestion control for the running kernel, and the gateway that keeps parallel streams in balance
//! ([`gateway`]).
//!
//! The kernel knows a congestion control by its name, for all network namespaces at once. [`register`] registers those that
//! the kernel does not have yet, and shares the registrations of other ekiden processes. A registration lasts as long as any
//! process has it or it is pinned, and ends with the last, even if processes are killed. Connections that use the
//! congestion control then keep it. Programs that stay take those that their configuration names, [`named`].

mod bpffs;
mod error;
pub mod gateway;
mod links;
mod lock;
mod messages;
pub mod named;
mod object;
mod pins;
mod registration;
mod trace;

pub use error::{Error, ErrorKind};
pub use object::try_load;
pub use pins::{is_pinned, pin, unpin};
pub use registration::{Registration, register, registered};
pub use trace::{Event, EventKind, Level, Model, Phase, Trace};
