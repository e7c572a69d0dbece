//! A SOCKS client that says anything, in pieces of any length.
#![no_main]

use ekiden_relay_proto::socks4;
use ekiden_relay_proto::socks5::{MAX_MESSAGE, Server, Step};
use libfuzzer_sys::fuzz_target;

mod cuts;

fuzz_target!(|data: &[u8]| {
    let Some((bytes, cuts)) = cuts::split(data) else { return };
    let decided = cuts.iter().map(|cut| socks4::step(&bytes[..*cut])).find(|step| *step != Step::More);
    assert!(decided.is_some() || bytes.len() < socks4::MAX_REQUEST);
    assert_eq!(decided.unwrap_or(Step::More), socks4::step(bytes));
    for needs_password in [false, true] {
        let split = talk(&mut Server::new(needs_password), bytes, &cuts);
        assert_eq!(split, talk(&mut Server::new(needs_password), bytes, &[bytes.len()]));
    }
});

/// The steps, and how many bytes were used.
fn talk(server: &mut Server, bytes: &[u8], cuts: &[usize]) -> (Vec<Step>, usize) {
    let (mut steps, mut used) = (Vec::new(), 0);
    for cut in cuts {
        loop {
            let step = server.step(&bytes[used..*cut]);
            match &step {
                Step::More => {
                    assert!(cut - used < MAX_MESSAGE, "it waits for more than a message");
                    break;
                }
                Step::Reply { consumed, .. } => used += consumed,
                Step::Login { consumed, password, .. } => {
                    used += consumed;
                    server.password(password == b"right");
                }
                Step::Connect { consumed, target } => {
                    assert_ne!(target.port, 0);
                    used += consumed;
                    steps.push(step);
                    return (steps, used);
                }
                Step::Refuse { .. } => {
                    steps.push(step);
                    return (steps, used);
                }
            }
            assert!(used <= *cut);
            steps.push(step);
        }
    }
    (steps, used)
}
