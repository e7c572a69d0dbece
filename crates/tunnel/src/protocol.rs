//! What a packet carries, as far as a tunnel tells it apart.

use ekiden_config::words;

words! {
    /// What is in a packet.
    Protocol {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
        /// Neither, or the later parts of a packet.
        Other = "other",
    }
}
