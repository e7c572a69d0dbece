//! The least that a tunnel between two TUN devices costs: what one of two devices gives is written to the other, super-packets
//! whole, with nothing in between. `passthrough DEVICE DEVICE` prints `ready` when both are there.

use std::io;
use std::thread;

use tun_rs::{DeviceBuilder, SyncDevice};

fn main() -> io::Result<()> {
    let mut names = std::env::args().skip(1);
    let mut open = || {
        let name = names.next().ok_or_else(|| io::Error::other("two names of devices are wanted"))?;
        DeviceBuilder::new().name(name).offload(true).build_sync()
    };
    let (left, right) = (open()?, open()?);
    println!("ready");
    thread::scope(|scope| {
        let back = scope.spawn(|| pass(&right, &left));
        pass(&left, &right).and(back.join().unwrap_or_else(|_| Err(io::Error::other("the way back has ended"))))
    })
}

fn pass(from: &SyncDevice, to: &SyncDevice) -> io::Result<()> {
    let mut buffer = vec![0; (1 << 16) + 64];
    loop {
        match from.recv(&mut buffer) {
            // A device that is not up yet takes nothing.
            Ok(bytes) => drop(to.send(&buffer[..bytes])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            // A device that is being moved to another namespace is down.
            Err(error) if error.raw_os_error() == Some(5) => thread::sleep(std::time::Duration::from_millis(10)),
            Err(error) => return Err(error),
        }
    }
}
