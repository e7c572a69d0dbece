//! Who may use this node, and how much of it.

pub mod bandwidth;
pub mod logins;
pub mod quota;
pub mod users;
