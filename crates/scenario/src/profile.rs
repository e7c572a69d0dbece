//! Profiles of TCP implementations.

use serde::{Deserialize, Serialize};

/// Whose TCP the simulator imitates: details that standards leave open or that an implementation does its own way. The
/// lab's TCP is the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The Linux kernel.
    Linux,
    /// The RFCs to the letter.
    Rfc,
    /// The network simulator ns-2, which S2 used: its agent Sack1.
    Ns2,
    /// The same with the patch of BIC's authors.
    #[serde(rename = "ns2_bitcp")]
    Ns2Bitcp,
    /// Its agent Linux, TCP-Linux, which brought BIC to ns-2.
    #[serde(rename = "ns2_linux")]
    Ns2Linux,
    /// OPNET Modeler, which S1 used.
    Opnet,
}
