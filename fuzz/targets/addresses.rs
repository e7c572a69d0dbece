//! What somebody has written for an address.
#![no_main]

use ekiden_units::{HostPort, HostText};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let needed = text.parse::<HostPort>();
    let optional = HostPort::with_default(text, 7);
    for read in [&needed, &optional].into_iter().flatten() {
        // What is printed is read as the same.
        assert_ne!(read.port, 0);
        assert_eq!(read.to_string().parse::<HostPort>().as_ref(), Ok(read));
        assert_eq!(HostText::parse(&read.host.bare()).as_ref(), Ok(&read.host));
    }
    if let Ok(needed) = &needed {
        assert_eq!(optional.as_ref(), Ok(needed));
    }
    for error in [needed.err(), optional.err()].into_iter().flatten() {
        assert!(!error.to_string().contains(char::is_control));
    }
    let _ = HostPort::listening(text);
});
