//! Who may use this node, and how much of it.

pub mod fair_queue;
pub mod handshake_turns;
pub mod logins;
pub mod quota;
pub mod users;
