use std::io::{self, Write};

/// Writes lines to standard output that say what a program has, the last of them `ready`. Their reader may have gone, or not
/// read: the program does not wait for it.
pub fn announce(lines: String) {
    let say = move || {
        let mut out = io::stdout().lock();
        out.write_all(lines.as_bytes()).and_then(|()| out.flush()).unwrap_or_else(|error| untold(&error));
    };
    if let Err(error) = std::thread::Builder::new().name("announce".into()).spawn(say) {
        untold(&error);
    }
}

fn untold(error: &io::Error) {
    tracing::warn!("nobody could be told on standard output that this program is ready: {error}");
}
