//! The tests of the crate from outside, in one program: it is linked once.

mod clocks;
mod common;
mod ecn;
mod goldens;
mod hostile;
mod linux_sender;
mod ns2;
mod rfc_sender;
mod rfc_states;
mod rfc_timeouts;
mod transfers;
