//! What carries runs out, and how much of them.

use std::fmt::{self, Display};

use serde::Serialize;

/// What carries runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// `ekiden simulate`: virtual time.
    Simulator,
    /// `ekiden lab run`: the kernel's TCP.
    Kernel,
}

/// How many runs, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// As many and as long as the description says.
    Full,
    /// Fewer and shorter, to see that everything works.
    Quick,
}

impl Engine {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Simulator, Self::Kernel];

    /// What records call it.
    pub fn producer(self) -> &'static str {
        match self {
            Self::Simulator => "simulate",
            Self::Kernel => "lab",
        }
    }

    /// The folder of its records.
    pub fn folder(self, effort: Effort) -> &'static str {
        match (self, effort) {
            (Self::Simulator, Effort::Full) => "simulator",
            (Self::Simulator, Effort::Quick) => "simulator-quick",
            (Self::Kernel, Effort::Full) => "kernel",
            (Self::Kernel, Effort::Quick) => "kernel-quick",
        }
    }
}

/// `simulator` or `kernel`.
impl Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.folder(Effort::Full))
    }
}
