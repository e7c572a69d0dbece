//! What a node needs of the host it runs on: congestion controls, the packet filter, capabilities.

pub mod congestion;
pub mod privileges;
pub mod rules;
