//! A series as a Parquet file: columns of whole numbers and names, in groups of rows.

use std::fs::File;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, Type};
use sha2::{Digest, Sha256};

use crate::sample::{self, Cell, Row};
use crate::series::SeriesFile;

/// Rows that are in memory at a time.
const GROUP: usize = 1 << 16;

/// Writes a table, row after row.
pub(crate) struct TableWriter<R> {
    file: SerializedFileWriter<Hashed>,
    columns: Vec<Column>,
    pending: usize,
    rows: u64,
    of: PhantomData<R>,
}

impl<R: Row> TableWriter<R> {
    /// Will write to `file`, which is empty.
    pub fn new(file: File) -> io::Result<Self> {
        let out = Hashed { file, bytes: 0, hash: Sha256::new() };
        let file = SerializedFileWriter::new(out, schema::<R>()?, Arc::new(properties::<R>())).map_err(failed)?;
        let columns = R::COLUMNS.iter().map(Column::new).collect();
        Ok(Self { file, columns, pending: 0, rows: 0, of: PhantomData })
    }

    /// How many rows it has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn push(&mut self, row: &R) -> io::Result<()> {
        let mut columns = self.columns.iter_mut();
        row.cells(|cell| {
            if let Some(column) = columns.next() {
                column.push(cell);
            }
        });
        self.rows += 1;
        self.pending += 1;
        if self.pending == GROUP { self.flush() } else { Ok(()) }
    }

    /// Writes the rows that are in memory as a group.
    fn flush(&mut self) -> io::Result<()> {
        if self.pending == 0 {
            return Ok(());
        }
        self.pending = 0;
        let mut group = self.file.next_row_group().map_err(failed)?;
        for column in &mut self.columns {
            let Some(mut writer) = group.next_column().map_err(failed)? else { break };
            let levels = column.levels.as_deref();
            let written = match &column.values {
                Values::Numbers(numbers) => writer.typed::<Int64Type>().write_batch(numbers, levels, None),
                Values::Names(names) => writer.typed::<ByteArrayType>().write_batch(names, levels, None),
            };
            written.and_then(|_| writer.close()).map_err(failed)?;
            column.clear();
        }
        group.close().map(drop).map_err(failed)
    }

    /// Writes the rest. Returns the file and what it is.
    pub fn finish(mut self) -> io::Result<(SeriesFile, File)> {
        self.flush()?;
        let out = self.file.into_inner().map_err(failed)?;
        let sha256 = out.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((SeriesFile { rows: self.rows, bytes: out.bytes, sha256 }, out.file))
    }
}

/// A file whose content is hashed while it is written.
struct Hashed {
    file: File,
    bytes: u64,
    hash: Sha256,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The values of a column in a group of rows.
struct Column {
    values: Values,
    /// If values can be absent: of each row 1 if it has one, else 0.
    levels: Option<Vec<i16>>,
    /// The latest name, in both forms: most rows have the same as the one before.
    latest: Option<(Arc<str>, ByteArray)>,
    /// When reading: the next row, and the next of the values, which are those that are there.
    next: (usize, usize),
}

enum Values {
    Numbers(Vec<i64>),
    Names(Vec<ByteArray>),
}

impl Column {
    fn new((_, is_name, is_optional): &(&str, bool, bool)) -> Self {
        let values = if *is_name { Values::Names(Vec::new()) } else { Values::Numbers(Vec::new()) };
        Self { values, levels: is_optional.then(Vec::new), latest: None, next: (0, 0) }
    }

    fn clear(&mut self) {
        match &mut self.values {
            Values::Numbers(numbers) => numbers.clear(),
            Values::Names(names) => names.clear(),
        }
        self.levels.iter_mut().for_each(Vec::clear);
        self.next = (0, 0);
    }

    fn push(&mut self, cell: Cell<'_>) {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(cell != Cell::Absent));
        }
        match (&mut self.values, cell) {
            (Values::Numbers(numbers), Cell::Number(number)) => {
                numbers.push(i64::try_from(number).unwrap_or(i64::MAX));
            }
            (Values::Names(names), Cell::Name(name)) => {
                let is_same = self.latest.as_ref().is_some_and(|(latest, _)| Arc::ptr_eq(latest, name));
                if !is_same {
                    self.latest = Some((Arc::clone(name), ByteArray::from(name.as_bytes().to_vec())));
                }
                names.extend(self.latest.as_ref().map(|(_, bytes)| bytes.clone()));
            }
            _ => {}
        }
    }

    /// The place of the next row's value; `None` if it is absent.
    fn advance(&mut self) -> Option<usize> {
        let (row, value) = self.next;
        self.next.0 += 1;
        let is_there = self.levels.as_ref().is_none_or(|levels| levels.get(row) == Some(&1));
        self.next.1 += usize::from(is_there);
        is_there.then_some(value)
    }

    fn number(&mut self) -> Option<u64> {
        let at = self.advance()?;
        let Values::Numbers(numbers) = &self.values else { return None };
        Some(numbers.get(at)?.cast_unsigned())
    }

    fn name(&mut self) -> Option<Arc<str>> {
        let at = self.advance()?;
        let Values::Names(names) = &self.values else { return None };
        let bytes = names.get(at)?;
        if self.latest.as_ref().is_none_or(|(_, latest)| latest != bytes) {
            self.latest = Some((bytes.as_utf8().ok()?.into(), bytes.clone()));
        }
        self.latest.as_ref().map(|(name, _)| Arc::clone(name))
    }
}

/// The next row of columns that were read.
struct NextRow<'a>(std::slice::IterMut<'a, Column>);

impl sample::Values for NextRow<'_> {
    fn number(&mut self) -> Option<u64> {
        self.0.next()?.number()
    }

    fn name(&mut self) -> Option<Arc<str>> {
        self.0.next()?.name()
    }
}

/// Reads a table, row after row.
pub(crate) struct TableReader<R> {
    file: SerializedFileReader<File>,
    group: usize,
    columns: Vec<Column>,
    /// Of those in memory.
    left: usize,
    of: PhantomData<R>,
}

impl<R: Row> TableReader<R> {
    /// # Errors
    /// If it is not a table of such rows.
    pub fn open(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let file = sound(|| SerializedFileReader::new(file).map_err(failed))?;
        if file.metadata().file_metadata().schema() != &*schema::<R>()? {
            return Err(io::Error::other("it has other columns"));
        }
        if !file.metadata().row_groups().iter().all(|group| is_within(group, length)) {
            return Err(io::Error::other("a column has a place outside of it"));
        }
        let columns = R::COLUMNS.iter().map(Column::new).collect();
        Ok(Self { file, group: 0, columns, left: 0, of: PhantomData })
    }

    /// The next row; `None` behind the last.
    pub fn next(&mut self) -> io::Result<Option<R>> {
        while self.left == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(None);
            }
            self.load()?;
            self.group += 1;
        }
        self.left -= 1;
        let row = R::of(&mut NextRow(self.columns.iter_mut()));
        row.map(Some).ok_or_else(|| io::Error::other("a value is missing"))
    }

    fn load(&mut self) -> io::Result<()> {
        sound(AssertUnwindSafe(|| self.load_group()))
    }

    fn load_group(&mut self) -> io::Result<()> {
        let group = self.file.get_row_group(self.group).map_err(failed)?;
        self.left = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
        for (number, column) in self.columns.iter_mut().enumerate() {
            column.clear();
            let reader = group.get_column_reader(number).map_err(failed)?;
            let levels = column.levels.as_mut();
            let read = match (reader, &mut column.values) {
                (ColumnReader::Int64ColumnReader(mut reader), Values::Numbers(numbers)) => {
                    reader.read_records(self.left, levels, None, numbers)
                }
                (ColumnReader::ByteArrayColumnReader(mut reader), Values::Names(names)) => {
                    reader.read_records(self.left, levels, None, names)
                }
                _ => return Err(io::Error::other("it has other columns")),
            };
            read.map_err(failed)?;
        }
        Ok(())
    }
}

/// Whether a group has no more rows than are written into one, and its columns lie within a file of this length. parquet 60.1 takes
/// both on trust, and panics on the negative numbers that a footer can hold.
fn is_within(group: &RowGroupMetaData, length: u64) -> bool {
    let of_column = |column: &ColumnChunkMetaData| {
        let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let [begin, bytes] = [begin, column.compressed_size()].map(u64::try_from);
        matches!((begin, bytes), (Ok(begin), Ok(bytes)) if begin.checked_add(bytes).is_some_and(|end| end <= length))
    };
    (0..=GROUP as i64).contains(&group.num_rows()) && group.columns().iter().all(of_column)
}

/// What `read` gives, unless it panics: parquet does so where the header of a page, which nobody but it reads, is nonsense.
fn sound<T>(read: impl FnOnce() -> io::Result<T> + UnwindSafe) -> io::Result<T> {
    catch_unwind(read).unwrap_or_else(|_| Err(io::Error::other("it is damaged")))
}

fn schema<R: Row>() -> io::Result<Arc<Type>> {
    let column = |(name, is_name, is_optional): &(&str, bool, bool)| {
        let repetition = if *is_optional { "OPTIONAL" } else { "REQUIRED" };
        match is_name {
            true => format!("{repetition} BYTE_ARRAY {name} (UTF8);"),
            false => format!("{repetition} INT64 {name};"),
        }
    };
    let columns: String = R::COLUMNS.iter().map(column).collect();
    parse_message_type(&format!("message {} {{ {columns} }}", R::SERIES)).map(Arc::new).map_err(failed)
}

/// Numbers as differences, which are small from one sample to the next; names as numbers in a dictionary.
fn properties<R: Row>() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("ekiden ", env!("CARGO_PKG_VERSION")).into())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for (name, ..) in R::COLUMNS.iter().filter(|(_, is_name, _)| !is_name) {
        let path = ColumnPath::from(*name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
