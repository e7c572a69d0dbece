//! What an open connection costs in memory.

use super::*;
use crate::stream::Pump;

#[test]
fn an_open_connection_is_small() {
    fn size<A, B, F: Future>(_: impl Fn(A, B, StdStream, SocketAddr) -> F) -> usize {
        size_of::<F>()
    }
    fn size_before<A, B, C, D, F: Future>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }
    let (pump, stream, whole) = (size_of::<Pump>(), size_of::<Stream>(), size(connection));
    let before = size_before(prepare);
    eprintln!("pump {pump}, stream {stream}, connection {whole}, before its stream {before} bytes");
    assert!(pump <= 112, "{pump}");
    assert!(whole <= 1088, "{whole}");
    // Written and freed once for each connection.
    assert!(before <= 3072, "{before}");
}
