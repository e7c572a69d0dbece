//! Requests to the kernel's routing, in the namespace of the calling thread.

use std::future::Future;
use std::io;

use rtnetlink::Handle;

/// Runs `work` with a connection to the kernel. Not to be called within an event loop.
///
/// # Errors
/// If there is no such connection, and those of `work`.
pub fn on_netlink<F: Future<Output = io::Result<()>>>(work: impl FnOnce(Handle) -> F) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let result = work(handle).await;
        connection.abort();
        result
    })
}

/// The kernel's error number, where there is one.
pub fn io_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}
