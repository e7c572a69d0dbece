//! Files that people write for the programs: one definition of each key, from which its default, its range, its help and its schema come, and
//! the errors that name file and line.

mod keys;
mod ports;
mod schema;
mod shape;
mod source;

pub use ekiden_files::ConfigError;
pub use keys::{Count, Key, Quantity, Section, Values, one_of, range};
pub use ports::Ports;
pub use schema::schema;
pub use shape::Shape;
pub use source::{Source, key, list, load, path, text};
