//! The tests of the crate from outside, in one program: it is linked once.

mod background;
mod capture;
mod controls;
mod cut;
mod disciplines;
mod far;
mod files;
mod flows;
mod gateway;
mod known_paths;
mod links;
mod order;
mod overlay;
mod phases;
mod profiles;
mod queues;
mod series;
mod tunnel;
