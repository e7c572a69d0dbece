//! Why a scenario cannot be simulated.

/// Why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such congestion control here.
    #[error("{whose}.tcp.congestion: the simulator has no '{name}'; it has {}", ekiden_congestion::names().join(", "))]
    Congestion {
        /// A node or a tunnel, such as `node.island`.
        whose: String,
        /// What it asks for.
        name: String,
    },
    /// Only programs do this, and the simulator has none.
    #[error("{key}: only `ekiden lab` can do this; for the simulator, leave it out")]
    OnlyLab {
        /// What asks for it.
        key: String,
    },
}
