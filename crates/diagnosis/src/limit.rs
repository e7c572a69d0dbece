//! What limited a sender, as a record has it.

pub use ekiden_record::Shares;
use ekiden_tcp_info::TcpInfo;

/// Adds up what limited a sender, sample by sample: [`ekiden_tcp_info::Limits`].
#[derive(Debug, Clone, Default)]
pub struct Limits(ekiden_tcp_info::Limits);

impl Limits {
    /// Takes the state at a time, in microseconds of any clock.
    pub fn add(&mut self, at_us: u64, info: &TcpInfo) {
        self.0.add(at_us, info);
    }

    /// The shares; `None` without two samples at different times.
    pub fn shares(&self) -> Option<Shares> {
        let ekiden_tcp_info::Shares { application, receive_window, send_buffer, path } = self.0.shares()?;
        Some(Shares { application, receive_window, send_buffer, path })
    }
}
