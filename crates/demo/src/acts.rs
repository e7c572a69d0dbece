//! The demo's acts: the transfers of each, and how what came of them is shown.

pub mod goal;
pub mod osaka;
pub mod position;
pub mod segments;
