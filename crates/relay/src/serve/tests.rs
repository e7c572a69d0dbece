//! What an open connection costs in memory.

use super::*;
use crate::stream::pump::Pump;

#[test]
fn an_open_connection_is_small() {
    fn size<A, B, F: Future>(_: impl Fn(A, B, StdStream, SocketAddr) -> F) -> usize {
        size_of::<F>()
    }
    let (pump, stream, whole) = (size_of::<Pump>(), size_of::<Stream>(), size(connection));
    eprintln!("pump {pump}, stream {stream}, connection {whole} bytes");
    assert!(pump <= 96, "{pump}");
    assert!(whole <= 1024, "{whole}");
}
