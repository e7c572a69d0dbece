//! Taking their places from streams without packets, in slices: no packet waits for more than the look at [`KEYS`] streams.

use std::os::fd::AsFd;
use std::time::Duration;

use ekiden_bpf::batch::Batches;
use ekiden_bpf::run;
use libbpf_rs::{MapCore, MapFlags};

use super::error::{GatewayError, failed, libbpf};
use super::layout::{self, StreamValue, SweepValue};
use super::object::{Maps, Programs};
use super::streams::{Idle, TICK, age, now};

/// As many as a `struct gateway_sweep` has.
const KEYS: usize = layout::SWEPT_MOST;

/// A pass through all streams, a slice of some thousand with each step. An item is how many lost their places in a slice.
#[derive(Debug)]
pub struct Sweep<'a> {
    programs: &'a Programs,
    maps: &'a Maps,
    open: u32,
    opening: u32,
    closing: u32,
    /// What is being read, and what is to come.
    table: Batches<'a>,
    next: Option<Batches<'a>>,
    found: Found,
}

/// How many streams a pass has found so far, those included that it has swept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// In the table of IPv4.
    pub ipv4: u64,
    /// In that of IPv6.
    pub ipv6: u64,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(programs: &'a Programs, maps: &'a Maps, most: Idle) -> Self {
        let ticks = |most: Duration| u32::try_from(most.as_nanos() / TICK.as_nanos()).unwrap_or(u32::MAX);
        let (table, next) = (Batches::new(&maps.streams4), Some(Batches::new(&maps.streams6)));
        let (open, opening, closing) = (ticks(most.open), ticks(most.opening), ticks(most.closing));
        let found = Found::default();
        Self { programs, maps, open, opening, closing, table, next, found }
    }

    /// How many streams it has found so far.
    pub fn found(&self) -> Found {
        self.found
    }

    fn step(&mut self) -> Result<Option<u64>, GatewayError> {
        // Which of the times counts for a stream, the program alone knows.
        let (now, least) = (now(), self.open.min(self.opening).min(self.closing));
        let mut old: Vec<u8> = Vec::new();
        let mut key_size = 0;
        loop {
            let counted = if self.next.is_some() { &mut self.found.ipv4 } else { &mut self.found.ipv6 };
            let read = self.table.next(|key, value| {
                key_size = key.len();
                *counted += 1;
                if StreamValue::last(value).is_some_and(|last| u32::from(age(now, last)) > least) {
                    old.extend(key);
                }
            });
            match (read.map_err(failed("read the streams"))?, self.next.take()) {
                (true, next) => {
                    self.next = next;
                    break;
                }
                (false, Some(next)) => self.table = next,
                (false, None) => return Ok(None),
            }
        }
        let mut swept = 0;
        for keys in old.chunks(KEYS * key_size.max(1)) {
            swept += self.hand(keys, key_size)?;
        }
        Ok(Some(swept))
    }

    /// The program looks each of them up again, and decides.
    fn hand(&self, keys: &[u8], key_size: usize) -> Result<u64, GatewayError> {
        let value =
            SweepValue { open: self.open, opening: self.opening, closing: self.closing, keys, key_size }.bytes();
        let update = self.maps.sweeping.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY);
        update.map_err(libbpf("sweep the streams"))?;
        // It does not look at the packet.
        let run = run::test_run(self.programs.sweep.as_fd(), &[0; 64], 0, 1).map_err(failed("run the program"))?;
        Ok(run.returned.max(0) as u64)
    }
}

impl Iterator for Sweep<'_> {
    type Item = Result<u64, GatewayError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
