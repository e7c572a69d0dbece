//! What needs neither networks nor privileges. One program: it is linked once.

mod addresses;
mod alone;
mod ban;
mod bare_warnings;
mod circles;
mod docs;
mod errors;
mod help;
mod judge;
mod keys;
mod log;
mod measure_errors;
mod measuring;
mod modules;
mod monitor;
mod order;
mod pcap;
mod privileges;
mod record;
mod reference;
mod rooms;
mod shown;
mod simulate;
mod terminal;
mod units;
mod whose;
