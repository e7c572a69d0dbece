//! Where a run puts its samples, and what a record says about them.

use serde::{Deserialize, Serialize};

use crate::sample::{QueueSample, Sample};

/// Takes the samples of a run while it goes on.
///
/// A run looks at its senders and queues again and again. It announces each look by [`Series::look`], and gives its samples
/// only if they are wanted.
pub trait Series {
    /// A look begins, later than the one before. Returns whether its samples are wanted.
    fn look(&mut self, at_us: u64) -> bool;

    /// A sender, as it is at this look.
    fn sample(&mut self, sample: Sample);

    /// A queue that has changed since it was last given. At the end of the run it is also given without a look.
    fn queue(&mut self, queue: QueueSample);
}

/// Everything, in memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// Samples of the senders, ordered by time.
    pub samples: Vec<Sample>,
    /// Samples of the queues of links and tunnels, ordered by time.
    pub queues: Vec<QueueSample>,
}

impl Series for Kept {
    fn look(&mut self, _: u64) -> bool {
        true
    }

    fn sample(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    fn queue(&mut self, queue: QueueSample) {
        self.queues.push(queue);
    }
}

/// The files beside a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesFiles {
    /// The files have one look in this many: 1 means all, and a greater power of two means that the run had more samples
    /// than the budget.
    pub one_of: u64,
    /// The senders; absent without a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<SeriesFile>,
    /// The queues; absent without a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<SeriesFile>,
}

/// A file of a series, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesFile {
    /// How many samples it has.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// The SHA-256 of its content in hexadecimal digits.
    pub sha256: String,
}
