//! The tests of the crate from outside, in one program: it is linked once.

mod bic;
mod cubic;
mod far;
mod linux;
mod names;
mod rfc3649;
mod slow_start;
mod trend;
mod undo;
