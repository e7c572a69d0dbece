//! The connections of a flow: those under way, and what is left of those that have sent their files.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ekiden_net::tcp_info::tcp_info;
use ekiden_tcp_info::TcpInfo;

/// All connections of a flow.
pub(crate) struct Connections {
    /// By their numbers, which count them as they open.
    pub open: BTreeMap<u32, Arc<Connection>>,
    finished: Finished,
}

/// State that the threads of one connection share.
#[derive(Default)]
pub(crate) struct Connection {
    pub received_bytes: AtomicU64,
    sender: Mutex<Sender>,
}

#[derive(Default)]
pub(crate) struct Sender {
    pub socket: Option<TcpStream>,
    pub connected_ns: Option<u64>,
    pub finished_ns: Option<u64>,
    pub sent_bytes: u64,
    pub last: TcpInfo,
    pub failure: Option<String>,
}

/// What counts of connections that have sent their files.
#[derive(Default)]
pub(crate) struct Finished {
    connections: u32,
    retransmits: u64,
    rtt_min_us: Option<u64>,
}

impl Connections {
    /// As many connections as the flow has at once.
    pub fn new(parallel: u32) -> Self {
        Self { open: (0..parallel).map(|number| (number, Arc::default())).collect(), finished: Finished::default() }
    }

    /// The connection with this number, which is under way.
    pub fn get(&self, number: u32) -> Arc<Connection> {
        Arc::clone(&self.open[&number])
    }

    /// The file of a connection has been sent. Returns the number of the connection for the next.
    pub fn follow(&mut self, number: u32) -> u32 {
        if let Some(sent) = self.open.remove(&number) {
            self.finished.add(&sent);
        }
        let next = self.finished.connections + self.open.len() as u32;
        self.open.insert(next, Arc::default());
        next
    }

    /// Whether the senders of any were connected.
    pub fn was_any_connected(&self) -> bool {
        let is_connected = |connection: &Arc<Connection>| connection.sender().connected_ns.is_some();
        self.finished.connections > 0 || self.open.values().any(is_connected)
    }

    pub fn retransmits(&self) -> u64 {
        let of_open = self.open.values().map(|connection| u64::from(connection.sender().last.retransmits));
        self.finished.retransmits + of_open.sum::<u64>()
    }

    pub fn rtt_min_us(&self) -> Option<u64> {
        let of_open = self.open.values().filter_map(|connection| rtt_min_us(&connection.sender().last));
        of_open.chain(self.finished.rtt_min_us).min()
    }
}

impl Connection {
    pub fn sender(&self) -> MutexGuard<'_, Sender> {
        lock(&self.sender)
    }

    /// Bytes that have arrived and were right.
    pub fn received(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }
}

impl Sender {
    /// The connection is over at `at_ns`, by the monotonic clock: takes its last state, and closes it.
    pub fn finish(&mut self, at_ns: u64, failure: Option<String>) {
        if let Some(info) = self.socket.take().and_then(|socket| tcp_info(&socket).ok()) {
            self.last = info;
        }
        self.finished_ns = Some(at_ns);
        self.failure = failure;
    }
}

impl Finished {
    fn add(&mut self, connection: &Connection) {
        let last = connection.sender().last;
        self.connections += 1;
        self.retransmits += u64::from(last.retransmits);
        self.rtt_min_us = [self.rtt_min_us, rtt_min_us(&last)].into_iter().flatten().min();
    }
}

/// Zero and all ones are the kernel's ways to say that it has none.
fn rtt_min_us(info: &TcpInfo) -> Option<u64> {
    Some(u64::from(info.rtt_min_us)).filter(|us| (1..u64::from(u32::MAX)).contains(us))
}

/// What is locked is plain data: valid even if a thread panicked while it held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Connections;

    #[test]
    fn files_that_have_been_sent_count_and_the_next_has_the_next_number() {
        let mut connections = Connections::new(2);
        for (number, next) in [(1, 2), (0, 3), (3, 4)] {
            let connection = connections.get(number);
            let mut sender = connection.sender();
            (sender.last.retransmits, sender.last.rtt_min_us) = (1, 5 + number);
            drop(sender);
            assert_eq!(connections.follow(number), next);
        }
        assert_eq!(connections.open.keys().copied().collect::<Vec<_>>(), [2, 4]);
        assert_eq!((connections.retransmits(), connections.rtt_min_us()), (3, Some(5)));
        assert!(connections.was_any_connected());
        assert!(!Connections::new(1).was_any_connected());
    }
}
