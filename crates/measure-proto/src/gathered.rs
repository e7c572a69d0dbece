//! Collects, within bounds, what a server reports of its end of a load. No I/O.

use std::collections::BTreeMap;

use ekiden_record::Way;

use crate::message::{LOOKS_MOST, ROWS_MOST, Reply, StreamEnd, TENTHS_MOST};
use crate::row::Row;
use crate::seen::LoadSeen;
use crate::settings::{Asked, DURATION_MOST_US};

/// Limit on the time of a sample, in microseconds since its load began: no load lasts longer, whatever keeps it from ending.
const AT_MOST_US: u64 = 2 * DURATION_MOST_US;

/// What the server has reported so far.
#[derive(Debug)]
pub struct Gathered {
    ways: Vec<Way>,
    streams: u32,
    rows: BTreeMap<(Way, u32), Vec<Row>>,
    ends: BTreeMap<(Way, u32), StreamEnd>,
    count: usize,
    started: bool,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A further message.
    More,
    /// Nothing: the report is complete.
    Done,
}

impl Gathered {
    /// Nothing yet, of a load that was asked for.
    pub fn new(asked: &Asked) -> Self {
        let settings = asked.get();
        Self {
            ways: settings.ways.clone(),
            streams: settings.streams,
            rows: BTreeMap::new(),
            ends: BTreeMap::new(),
            count: 0,
            started: false,
        }
    }

    /// Takes a message, by [`Reply::shown`].
    ///
    /// # Errors
    /// One line, if the server says that the load failed, or what cannot be.
    pub fn add(&mut self, reply: Reply) -> Result<Next, String> {
        match reply {
            Reply::Started if self.started => Err("it says twice that it has started".into()),
            Reply::Started => {
                self.started = true;
                Ok(Next::More)
            }
            Reply::Rows { rows, .. } if rows.is_empty() => Err("it sends a message without samples".into()),
            Reply::Rows { way, stream, rows } => {
                self.check(way, stream)?;
                self.count = self.count.saturating_add(rows.len());
                // A server looks once more when it ends.
                if self.count > ROWS_MOST + 2 * self.streams as usize {
                    return Err("it sends more samples than it may".into());
                }
                let known = self.rows.entry((way, stream)).or_default();
                let mut last_us = known.last().map_or(0, |row| row.at_us);
                for row in &rows {
                    if row.at_us < last_us || row.at_us > AT_MOST_US {
                        return Err("its samples are not in the order of time".into());
                    }
                    last_us = row.at_us;
                }
                known.extend(rows);
                Ok(Next::More)
            }
            Reply::Stream { way, stream, end } => {
                self.check(way, stream)?;
                if end.tenths_bytes.len() > TENTHS_MOST || end.late_us.len() > LOOKS_MOST {
                    return Err("it says more of a stream than there is".into());
                }
                self.ends.insert((way, stream), end);
                Ok(Next::More)
            }
            Reply::Done if self.ends.len() == self.ways.len() * self.streams as usize => Ok(Next::Done),
            Reply::Done => Err("it does not tell of each stream".into()),
            Reply::Failed { why } => Err(why),
            Reply::Refused { .. } | Reply::Ready { .. } => Err("a message that does not belong here".into()),
        }
    }

    /// Whether a stream is one of those asked for, and not told of yet.
    fn check(&self, way: Way, stream: u32) -> Result<(), String> {
        let is_asked = self.ways.contains(&way) && stream < self.streams;
        match is_asked && !self.ends.contains_key(&(way, stream)) {
            true => Ok(()),
            false => Err("it tells of a stream that there is not".into()),
        }
    }

    /// Each stream that was told of.
    pub fn seen(self) -> Vec<LoadSeen> {
        let mut rows = self.rows;
        let of = |((way, stream), end)| {
            let rows = rows.remove(&(way, stream)).unwrap_or_default();
            LoadSeen { way, stream, end, rows }
        };
        self.ends.into_iter().map(of).collect()
    }
}
