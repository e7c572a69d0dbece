//! eBPF in the running kernel: programs of congestion control and their loader, and what a loader of other programs needs too.
//!
//! The kernel knows a congestion control by its name, for all network namespaces at once. [`register`] registers those that
//! the kernel does not have yet, and shares the registrations of other ekiden processes. A registration lasts as long as any
//! process has it or it is pinned, and ends with the last, even if processes are killed. Connections that use the
//! congestion control then keep it. Programs that stay take those that their configuration names, [`named`].

pub mod batch;
pub mod bpffs;
mod error;
mod links;
pub mod lock;
pub mod messages;
pub mod named;
mod object;
mod pins;
mod registration;
pub mod run;
pub mod tc;
mod trace;

pub use error::{Error, ErrorKind};
pub use object::try_load;
pub use pins::{is_pinned, pin, unpin};
pub use registration::{Registration, register, registered};
pub use trace::{Event, EventKind, Level, Model, Phase, Trace};
