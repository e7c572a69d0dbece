//! The gateway in the running kernel: groups of parallel TCP streams kept in balance by rewriting the receive windows of passing
//! ACKs. What it decides is `ekiden-window-balance`'s.
//!
//! ```no_run
//! # use ekiden_gateway::kernel::{Gateway, Idle, Settings};
//! # use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut gateway = Gateway::load(&Settings::default())?;
//! gateway.attach(3)?; // the device of the wide area network
//! let mut events = gateway.events()?;
//! loop {
//!     gateway.renew()?; // at least every two seconds
//!     for event in events.poll(Duration::from_millis(500))? {
//!         println!("{event:?}");
//!     }
//!     gateway.sweep(Idle::default()).sum::<Result<u64, _>>()?; // from time to time
//! }
//! # }
//! ```

mod error;
mod events;
mod filters;
mod group;
mod hook;
mod layout;
mod object;
mod order;
mod pins;
mod settings;
mod streams;
mod sweep;
mod word;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ekiden_bpf::run::{Run, test_run};
use ekiden_window_balance::{Direction, GroupState};
use libbpf_rs::{MapCore, MapFlags};

pub use error::GatewayError;
pub use events::{Event, EventKind, Events};
pub use group::Group;
pub use hook::HookKind;
pub use layout::Counters;
pub use settings::{GROUPS_MOST, Settings};
pub use streams::{Idle, Stream};
pub use sweep::{Found, Sweep};
pub use word::Word;

use error::{failed, libbpf};
use hook::Hook;
use layout::Keeper;
use object::{Clock, Maps, Programs};

/// How long the keeper's word counts. Afterwards packets pass untouched until it is renewed.
pub const KEPT: Duration = Duration::from_secs(2);

/// Programs in the kernel, and the devices that they are on. Dropping it takes them away, in the network namespace where they were
/// attached; so does the end of the process, however it ends, unless [`Gateway::pin`] was called.
#[derive(Debug)]
pub struct Gateway {
    programs: Programs,
    maps: Maps,
    hooks: Vec<Hook>,
}

impl Gateway {
    /// Loads the programs. They are on no device yet. The keeper's word is given for [`KEPT`].
    ///
    /// # Errors
    /// If the settings are wrong, the kernel refuses the programs, has no memory for the tables, or this process may not.
    pub fn load(settings: &Settings) -> Result<Self, GatewayError> {
        Self::load_with(settings, Clock::Kernels)
    }

    /// The same for tests: the time is what [`Gateway::set_clock_us`] says.
    ///
    /// # Errors
    /// As [`Gateway::load`].
    pub fn load_with_own_clock(settings: &Settings) -> Result<Self, GatewayError> {
        Self::load_with(settings, Clock::Own)
    }

    fn load_with(settings: &Settings, clock: Clock) -> Result<Self, GatewayError> {
        let assumes = settings.groups.iter().any(|group| group.assumed_scale.is_some());
        let keeper = Keeper { until_ns: word::until_ns(KEPT), clock_us: 0, mark: object::mark(settings), assumes };
        let (programs, maps) = object::load(settings, keeper, clock)?;
        let gateway = Self { programs, maps, hooks: Vec::new() };
        // Loading may take longer than the word counts.
        gateway.renew()?;
        Ok(gateway)
    }

    /// Puts the programs on a device of this thread's network namespace, by tcx if the kernel has it, else by clsact. Its egress must
    /// be the direction of data, its ingress that of ACKs. They stand before all other programs there, which they leave as they are.
    ///
    /// # Errors
    /// If there is no such device, it carries no Ethernet frames, or the kernel refuses.
    pub fn attach(&mut self, ifindex: i32) -> Result<HookKind, GatewayError> {
        self.attach_by(ifindex, None)
    }

    /// The same, by the one or the other; `None` as [`Gateway::attach`].
    ///
    /// # Errors
    /// As [`Gateway::attach`].
    pub fn attach_by(&mut self, ifindex: i32, kind: Option<HookKind>) -> Result<HookKind, GatewayError> {
        let hook = Hook::attach(&self.programs, ifindex, kind)?;
        let kind = hook.kind();
        self.hooks.push(hook);
        Ok(kind)
    }

    /// Keeps programs, tables and devices beyond the end of all processes, under a name of letters, digits, '-' and '_', until
    /// [`Gateway::unpin`] or a reboot. They need a keeper as before, or [`Gateway::keep_always`]. Mounts bpffs if it is not mounted.
    ///
    /// # Errors
    /// If the name is taken, the programs are attached by clsact, or this process may not.
    pub fn pin(&self, name: &str) -> Result<(), GatewayError> {
        pins::pin(name, &self.programs, &self.maps, &self.hooks)
    }

    /// What is pinned under a name. Dropping it leaves it as it is, until it was unpinned.
    ///
    /// # Errors
    /// If nothing is, another version of ekiden has pinned it, or this process may not.
    pub fn open_pinned(name: &str) -> Result<Self, GatewayError> {
        let (programs, maps, hooks) = pins::open(name)?;
        Ok(Self { programs, maps, hooks })
    }

    /// Whether something is pinned under a name, as far as this process may see.
    ///
    /// # Errors
    /// If it cannot be a name.
    pub fn is_pinned(name: &str) -> Result<bool, GatewayError> {
        pins::exists(name)
    }

    /// Removes the pins of that name; returns whether there were any. The programs go when no process has them either.
    ///
    /// # Errors
    /// If this process may not.
    pub fn unpin(name: &str) -> Result<bool, GatewayError> {
        pins::unpin(name)
    }

    /// Removes the pins of gateways whose devices are gone, as far as this process may.
    pub fn unpin_stale() {
        pins::remove_stale();
    }

    /// Takes the programs from all devices. Streams and counters stay.
    pub fn detach(&mut self) {
        self.hooks.clear();
    }

    /// Gives the keeper's word for [`KEPT`] from now on. To be called about every second.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn renew(&self) -> Result<(), GatewayError> {
        self.renew_for(KEPT)
    }

    /// The same, for the time `kept`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn renew_for(&self, kept: Duration) -> Result<(), GatewayError> {
        word::change(&self.maps.keeper, |keeper| keeper.until_ns = word::until_ns(kept))
    }

    /// Gives the keeper's word from a thread of its own.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn word(&self) -> Result<Word, GatewayError> {
        Word::new(&self.maps.keeper)
    }

    /// Whether these programs are this build's, loaded with these settings.
    ///
    /// # Errors
    /// If reading fails.
    pub fn is_of(&self, settings: &Settings) -> Result<bool, GatewayError> {
        Ok(word::read(&self.maps.keeper)?.mark == object::mark(settings))
    }

    /// Whether the programs are on this device.
    pub fn is_on(&self, ifindex: u32) -> bool {
        self.hooks.iter().any(|hook| hook.is_on(ifindex))
    }

    /// How many programs of others are on a device that these are on, in both directions. They come behind these.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn others(ifindex: i32) -> Result<usize, GatewayError> {
        Hook::others(ifindex).map_err(failed("list the programs of the device"))
    }

    /// Gives it for ever: the programs need no keeper.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn keep_always(&self) -> Result<(), GatewayError> {
        word::change(&self.maps.keeper, |keeper| keeper.until_ns = 0)
    }

    /// Takes it back: packets pass untouched at once.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn rest(&self) -> Result<(), GatewayError> {
        word::change(&self.maps.keeper, |keeper| keeper.until_ns = 1)
    }

    /// Sets the clock of [`Gateway::load_with_own_clock`].
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_clock_us(&self, time_us: u64) -> Result<(), GatewayError> {
        word::change(&self.maps.keeper, |keeper| keeper.clock_us = time_us)
    }

    /// What was counted since the programs were loaded.
    ///
    /// # Errors
    /// If reading fails.
    pub fn counters(&self) -> Result<Counters, GatewayError> {
        let read = self.maps.passing.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let mut counters = Counters::default();
        for one in read.map_err(libbpf("read the counters"))?.unwrap_or_default() {
            counters.add(&one);
        }
        Ok(counters)
    }

    /// The streams that have a place, in no order.
    ///
    /// # Errors
    /// If reading fails.
    pub fn streams(&self) -> Result<Vec<Stream>, GatewayError> {
        let mut streams = Vec::new();
        self.for_each_stream(|stream| streams.push(stream))?;
        Ok(streams)
    }

    /// Calls `each` with every stream that has a place, in no order. There may be millions.
    ///
    /// # Errors
    /// If reading fails.
    pub fn for_each_stream(&self, each: impl FnMut(Stream)) -> Result<(), GatewayError> {
        streams::for_each(&self.maps, each)
    }

    /// The groups' numbers in the settings, and their states, in no order.
    ///
    /// # Errors
    /// If reading fails.
    pub fn groups(&self) -> Result<Vec<(usize, GroupState)>, GatewayError> {
        streams::groups(&self.maps)
    }

    /// Takes the places from streams that have had no packet for the times in `idle`. It does so in slices, between which
    /// other work can be done; each slice returns the number of streams. To be done at least every few minutes: when a table
    /// is full, new streams are left alone.
    pub fn sweep(&self, idle: Idle) -> Sweep<'_> {
        Sweep::new(&self.programs, &self.maps, idle)
    }

    /// A reader of the gateway's events.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn events(&self) -> Result<Events, GatewayError> {
        Events::new(&self.maps.events)
    }

    /// The memory that the tables of streams take in the kernel, in bytes: of IPv4, and of IPv6. 0 if the kernel does not say.
    ///
    /// # Errors
    /// If reading fails.
    pub fn memory(&self) -> Result<(u64, u64), GatewayError> {
        let bytes = |map: &libbpf_rs::MapHandle| {
            let info = libbpf_rs::MapFdInfo::from_fd(map.as_fd()).map_err(libbpf("read the tables' sizes"))?;
            Ok(info.memlock.unwrap_or_default())
        };
        Ok((bytes(&self.maps.streams4)?, bytes(&self.maps.streams6)?))
    }

    /// How many streams the table counts that packets are first compared with: as many as there are, when no packet passes.
    ///
    /// # Errors
    /// If reading fails.
    pub fn counted_streams(&self) -> Result<u64, GatewayError> {
        let read = self.maps.slots.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let slots = read.map_err(libbpf("read the table of slots"))?.unwrap_or_default();
        let (words, _) = slots.as_chunks::<4>();
        Ok(words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum())
    }

    /// The program of a direction, for test runs.
    pub fn program(&self, direction: Direction) -> BorrowedFd<'_> {
        match direction {
            Direction::Data => self.programs.egress.as_fd(),
            Direction::Acks => self.programs.ingress.as_fd(),
        }
    }

    /// Runs the program of a direction on a frame, as [`test_run`].
    ///
    /// # Errors
    /// If the kernel does not take the frame.
    pub fn run(&self, direction: Direction, frame: &[u8], segment: u32, repeat: u32) -> Result<Run, GatewayError> {
        test_run(self.program(direction), frame, segment, repeat).map_err(failed("run the program"))
    }
}
