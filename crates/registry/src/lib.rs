//! Who belongs to an overlay, kept in etcd.
//!
//! The operator writes who may belong to it, and what others believe of it ([`Operator`]). Each node writes its own record, where it is,
//! under a lease and watches the others ([`Registry`]). A node is a member if both are there and name the same key. docs/design/registry.md says which keys of etcd hold
//! what, and what etcd is trusted with.
//!
//! etcd is spoken to through its JSON gateway (`/v3/…` over HTTP), by threads that block. When etcd is away, the last known
//! members stay; with [`Settings::members_cache`] also those from before a start.
//!
//! All decisions rest on this machine's monotonic clock and on the time that etcd counts for leases. The wall clock matters for one
//! thing alone: whether the certificate of etcd is valid today.

mod admission;
mod authorities;
mod backoff;
mod cache;
mod client;
mod error;
mod gateway;
mod inbox;
mod inspect;
mod keeper;
mod keys;
mod noisy;
mod operator;
mod record;
mod registration;
mod registry;
mod requests;
mod settings;
mod status;
mod view;
mod watch;

pub use admission::{Admission, Terms};
pub use error::RegistryError;
pub use inspect::{Health, Inspection, inspect};
pub use operator::{Admitted, IfOtherKey, Operator};
pub use record::{Load, TEXT_MOST, is_text};
pub use registry::{Observer, Registry};
pub use settings::{Access, OverlayId, Settings};
pub use status::MembershipStatus;
pub use view::{Listed, Members, Roster};
