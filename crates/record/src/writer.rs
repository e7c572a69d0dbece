//! Series on disk: written while a run goes on, within a budget.
//!
//! This module decides how many samples a run keeps, and which are dropped when there are more.

use std::fs;
use std::io::{self, ErrorKind, Seek};
use std::path::{Path, PathBuf};

use ekiden_files::Pending;

use crate::file::{Error, series_of};
use crate::sample::{QueueSample, Row, Sample};
use crate::series::{Series, SeriesFile, SeriesFiles};
use crate::table::{TableReader, TableWriter};

/// The default budget of samples of a run: 1,000 connections for 100 s, ten times a second.
pub const SAMPLES_MOST: u64 = 1_000_000;

/// Writes the series of a run beside its record.
///
/// When there are more samples than the budget, every second look is dropped, in the files too, and from then on only every
/// second look is wanted. This repeats. So the kept looks are evenly spaced over the whole run, and equal those of a run
/// with that longer interval between looks. Only the looks and samples decide what is dropped.
///
/// Without [`SeriesWriter::finish`] nothing is left. Nothing is kept of a run whose record goes into a stream, such as
/// `/dev/null`.
pub struct SeriesWriter {
    /// Whether there is a place beside the record: not if the record goes into a stream.
    has_place: bool,
    most: u64,
    /// One look in this many is wanted.
    one_of: u64,
    /// How many looks there were.
    looks: u64,
    /// The times of the kept looks.
    kept: Vec<u64>,
    samples: Table<Sample>,
    queues: Table<QueueSample>,
    failure: Option<Error>,
}

impl SeriesWriter {
    /// Will write beside the record `record`. The budget `most` counts samples of both series together; a few more are kept if
    /// two looks have more.
    pub fn new(record: &Path, most: u64) -> Self {
        Self {
            has_place: !ekiden_files::is_stream(record),
            most: most.max(1),
            one_of: 1,
            looks: 0,
            kept: Vec::new(),
            samples: Table::new(record),
            queues: Table::new(record),
            failure: None,
        }
    }

    /// Writes the record that `write` writes, and the series: both, or neither if `write` fails. If the series could not be
    /// written, `write` is told so, and may write a record without one: then there is no series.
    ///
    /// # Errors
    /// Those of `write`; then the earlier files stay. Otherwise if a file cannot be renamed or removed.
    pub fn finish_with<T, E: From<Error>>(
        self,
        write: impl FnOnce(Result<SeriesFiles, Error>) -> Result<T, E>,
    ) -> Result<T, E> {
        let places = [&self.samples.place, &self.queues.place].map(Clone::clone);
        match self.prepare() {
            Ok((files, series)) => {
                let written = write(Ok(files))?;
                series.publish()?;
                Ok(written)
            }
            Err(error) => {
                let written = write(Err(error))?;
                places.iter().try_for_each(|place| remove(place))?;
                Ok(written)
            }
        }
    }

    /// Gives the files their names, in place of the earlier files.
    ///
    /// # Errors
    /// If a file could not be written, now or earlier. Then the earlier files stay.
    pub fn finish(self) -> Result<SeriesFiles, Error> {
        let (files, series) = self.prepare()?;
        series.publish()?;
        Ok(files)
    }

    /// Writes the files beside their places.
    fn prepare(mut self) -> Result<(SeriesFiles, Prepared), Error> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (samples, queues) = (self.samples.finish()?, self.queues.finish()?);
        let [of_samples, of_queues] = [&samples, &queues].map(|table| table.as_ref().map(|(file, _)| file.clone()));
        let files = SeriesFiles { one_of: self.one_of, samples: of_samples, queues: of_queues };
        let [samples, queues] = [samples, queues].map(|table| table.map(|(_, pending)| pending));
        let tables = [(self.samples.place, samples), (self.queues.place, queues)];
        Ok((files, Prepared { tables }))
    }

    fn is_full(&self) -> bool {
        self.samples.rows() + self.queues.rows() > self.most || self.kept.len() as u64 > self.most
    }

    /// Drops every second look.
    fn thin(&mut self) -> Result<(), Error> {
        self.one_of *= 2;
        self.kept = self.kept.iter().skip(1).step_by(2).copied().collect();
        let kept = &self.kept;
        self.samples.rewrite(|from, to| {
            while let Some(sample) = from.next()? {
                if kept.binary_search(&sample.at_us).is_ok() {
                    to.push(&sample)?;
                }
            }
            Ok(())
        })?;
        self.queues.rewrite(|from, to| thin_queues(kept, from, to))
    }

    fn note(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }
}

impl Series for SeriesWriter {
    fn look(&mut self, at_us: u64) -> bool {
        // An even number of looks, the last of which stays: so no kept sample belongs to a look that is still to come.
        while self.failure.is_none() && self.is_full() && self.kept.len() >= 2 && self.kept.len().is_multiple_of(2) {
            let thinned = self.thin();
            self.note(thinned);
        }
        self.looks += 1;
        let is_wanted = self.has_place && self.failure.is_none() && self.looks.is_multiple_of(self.one_of);
        if is_wanted {
            self.kept.push(at_us);
        }
        is_wanted
    }

    fn sample(&mut self, sample: Sample) {
        if self.has_place && self.failure.is_none() {
            let pushed = self.samples.push(&sample);
            self.note(pushed);
        }
    }

    fn queue(&mut self, queue: QueueSample) {
        if self.has_place && self.failure.is_none() {
            let pushed = self.queues.push(&queue);
            self.note(pushed);
        }
    }
}

/// The files of series beside their places, which have no file if a series has no rows.
struct Prepared {
    tables: [(PathBuf, Option<Pending>); 2],
}

impl Prepared {
    fn publish(self) -> Result<(), Error> {
        for (place, table) in self.tables {
            match table {
                Some(file) => file.publish().map_err(|source| unwritable(&place, source))?,
                None => remove(&place)?,
            }
        }
        Ok(())
    }
}

/// Removes an earlier series.
fn remove(place: &Path) -> Result<(), Error> {
    match fs::remove_file(place) {
        Ok(()) => Ok(()),
        // A file with too long a name does not exist.
        Err(source) => match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => Ok(()),
            _ => Err(unwritable(place, source)),
        },
    }
}

/// Each queue as it is at the looks in `kept`, if it has changed since the one before.
fn thin_queues(kept: &[u64], from: &mut TableReader<QueueSample>, to: &mut TableWriter<QueueSample>) -> io::Result<()> {
    // The last state of each queue in the file, and its state at the latest look that was read.
    let mut written: Vec<QueueSample> = Vec::new();
    let mut changed: Vec<QueueSample> = Vec::new();
    let mut write = |changed: &mut Vec<QueueSample>| -> io::Result<()> {
        for queue in changed.drain(..) {
            match written.iter_mut().find(|other| other.is_of(&queue)) {
                Some(other) if other.state() == queue.state() => continue,
                Some(other) => other.clone_from(&queue),
                None if queue.state() == [0; 3] => continue,
                None => written.push(queue.clone()),
            }
            to.push(&queue)?;
        }
        Ok(())
    };
    while let Some(mut queue) = from.next()? {
        let next = kept.partition_point(|at_us| *at_us < queue.at_us);
        queue.at_us = kept.get(next).copied().unwrap_or(queue.at_us);
        if changed.first().is_some_and(|first| first.at_us != queue.at_us) {
            write(&mut changed)?;
        }
        match changed.iter_mut().find(|other| other.is_of(&queue)) {
            Some(other) => *other = queue,
            None => changed.push(queue),
        }
    }
    write(&mut changed)
}

/// A series whose file is made with its first sample. Until it is finished it has no name, so that nothing is left if the process
/// is killed.
struct Table<R> {
    place: PathBuf,
    writer: Option<TableWriter<R>>,
}

impl<R: Row> Table<R> {
    fn new(record: &Path) -> Self {
        Self { place: series_of::<R>(record), writer: None }
    }

    fn rows(&self) -> u64 {
        self.writer.as_ref().map_or(0, TableWriter::rows)
    }

    fn push(&mut self, row: &R) -> Result<(), Error> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let created = create(&self.place).map_err(|source| unwritable(&self.place, source))?;
                self.writer.insert(created)
            }
        };
        writer.push(row).map_err(|source| unwritable(&self.place, source))
    }

    /// Writes the file anew from itself.
    fn rewrite(
        &mut self,
        thin: impl FnOnce(&mut TableReader<R>, &mut TableWriter<R>) -> io::Result<()>,
    ) -> Result<(), Error> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let thinned = || -> io::Result<TableWriter<R>> {
            let (_, file) = writer.finish()?;
            let mut to = create(&self.place)?;
            thin(&mut TableReader::open(file)?, &mut to)?;
            Ok(to)
        };
        self.writer = Some(thinned().map_err(|source| unwritable(&self.place, source))?);
        Ok(())
    }

    /// Writes the file beside its place, whole or not at all; `None` if there are no rows.
    fn finish(&mut self) -> Result<Option<(SeriesFile, Pending)>, Error> {
        let Some(writer) = self.writer.take() else { return Ok(None) };
        let finished = || -> io::Result<_> {
            let (finished, mut file) = writer.finish()?;
            file.rewind()?;
            Ok((finished, Pending::write_with(&self.place, |mut out| io::copy(&mut file, &mut out).map(drop))?))
        };
        finished().map(Some).map_err(|source| unwritable(&self.place, source))
    }
}

fn create<R: Row>(place: &Path) -> io::Result<TableWriter<R>> {
    let directory = place.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    TableWriter::new(tempfile::tempfile_in(directory)?)
}

fn unwritable(file: &Path, source: io::Error) -> Error {
    Error::Unwritable { file: file.display().to_string(), source }
}
