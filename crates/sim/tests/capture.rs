//! Packets written down as they pass.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use ekiden_record::Kept;
use ekiden_scenario::Scenario;
use ekiden_sim::{Capture, Options, simulate, simulate_captured};

const SCENARIO: &str = "name = \"capture\"\n[node.a]\n[node.b]\n[link.line]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\ndelay = \"5ms\"\n\
                        loss = \"1%\"\n[flow.f]\nfrom = \"a\"\nto = \"b\"\nbytes = \"200KB\"\n";

/// A disk that is full after so many bytes, and counts the writes that it refused.
#[derive(Clone)]
struct Disk {
    room: usize,
    written: Arc<Mutex<Vec<u8>>>,
    refused: Arc<Mutex<u32>>,
}

impl Disk {
    fn new(room: usize) -> Self {
        Self { room, written: Arc::default(), refused: Arc::default() }
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.written.lock().unwrap();
        if written.len() + bytes.len() > self.room {
            *self.refused.lock().unwrap() += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn capture(scenario: &Scenario, disk: &Disk) -> Capture {
    Capture::new(scenario, |node, _| Ok((node == "a").then(|| Box::new(disk.clone()) as Box<dyn Write + Send>)))
        .unwrap()
}

#[test]
fn a_full_disk_is_told_at_the_end_and_changes_no_record() {
    let scenario = Scenario::parse(SCENARIO, "capture.toml").unwrap();
    let options = Options::default();
    let without = simulate(&scenario, &options, &mut Kept::default(), &mut |_| {}).unwrap();
    for room in [24, 1_000, 10_000] {
        let disk = Disk::new(room);
        let mut capture = capture(&scenario, &disk);
        assert_eq!(
            simulate_captured(&scenario, &options, &mut Kept::default(), &mut capture, &mut |_| {}).unwrap(),
            without
        );
        assert_eq!(capture.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(*disk.refused.lock().unwrap(), 1, "nothing is written after what failed");
    }
    let disk = Disk::new(usize::MAX);
    let mut capture = capture(&scenario, &disk);
    assert_eq!(
        simulate_captured(&scenario, &options, &mut Kept::default(), &mut capture, &mut |_| {}).unwrap(),
        without
    );
    capture.finish().unwrap();
    assert!(disk.written.lock().unwrap().len() > 10_000);
}

#[test]
fn a_file_that_cannot_be_opened_is_told_at_once() {
    let scenario = Scenario::parse(SCENARIO, "capture.toml").unwrap();
    let error = Capture::new(&scenario, |node, link| Err(io::Error::other(format!("{node}.{link}")))).err().unwrap();
    assert_eq!(error.to_string(), "a.line");
    let full =
        Capture::new(&scenario, |_, _| Ok(Some(Box::new(Disk::new(10)) as Box<dyn Write + Send>))).err().unwrap();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
}
