//! Series beside a record: what is read back is what was written, within the budget, and what is damaged is refused.

use std::fs;
use std::path::Path;

use ekiden_record::{
    Error, PathRecord, QueueSample, Record, Sample, Series, SeriesFiles, SeriesWriter, series_of, write_csv,
};
use sha2::{Digest, Sha256};

fn sample(at_us: u64, connection: u32) -> Sample {
    Sample {
        at_us,
        flow: "bulk".into(),
        connection,
        received_bytes: at_us * 7 + u64::from(connection),
        acked_bytes: at_us * 6,
        cwnd_segments: 10 + connection,
        ssthresh_segments: connection.is_multiple_of(3).then_some(77),
        unacked_segments: 9,
        window_bytes: 65_536,
        rtt_us: 50_000 + at_us % 977,
        rtt_min_us: 50_000,
        retransmits: at_us / 3_000_000,
        delivery_bit_s: 1 << 40,
    }
}

fn queue(at_us: u64, packets: u64, drops: u64) -> QueueSample {
    let link = Some("sea".into());
    QueueSample { at_us, link, tunnel: None, connection: None, from: "a".into(), packets, bytes: packets * 1500, drops }
}

fn of_tunnel(at_us: u64, packets: u64) -> QueueSample {
    let (tunnel, connection) = (Some("deep".into()), Some(3));
    QueueSample { link: None, tunnel, connection, ..queue(at_us, packets, 0) }
}

/// A record with nothing but its series.
fn record(series: Option<SeriesFiles>) -> Record {
    let mut record = Record::parse(
        r#"{"format":2,"manifest":{"producer":"simulate","version":"","command":[],"kernel":null,"seed":0,"scenario_name":"s",
        "scenario":"","started_unix_ms":0,"resolution_us":null},"flows":[],"paths":[],"links":[],"events":[]}"#,
        "text",
    )
    .unwrap();
    record.series = series;
    record
}

/// Looks every 100 ms at so many connections and writes what is wanted.
fn write(path: &Path, most: u64, looks: u64, connections: u32) -> Record {
    let mut series = SeriesWriter::new(path, most);
    for at_us in (1..=looks).map(|look| look * 100_000) {
        if series.look(at_us) {
            (0..connections).for_each(|connection| series.sample(sample(at_us, connection)));
        }
    }
    let record = record(Some(series.finish().unwrap()));
    record.write(path).unwrap();
    Record::read(path).unwrap()
}

fn samples(record: &Record, path: &Path) -> Vec<Sample> {
    record.samples(path).unwrap().collect::<Result<_, _>>().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn samples_are_read_back_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/r.json");
    // More than a group of rows.
    let (looks, connections) = (70, 1000);
    let record = write(&path, u64::MAX, looks, connections);
    let files = record.series.as_ref().unwrap();
    assert_eq!((files.one_of, files.samples.as_ref().unwrap().rows, &files.queues), (1, 70_000, &None));
    let mut read = record.samples(&path).unwrap();
    for at_us in (1..=looks).map(|look| look * 100_000) {
        for connection in 0..connections {
            assert_eq!(read.next().unwrap().unwrap(), sample(at_us, connection));
        }
    }
    assert!(read.next().is_none());
    assert_eq!(record.queues(&path).unwrap().count(), 0);
    assert_eq!(names(path.parent().unwrap()), ["r.json", "r.samples.parquet"]);
}

#[test]
fn names_and_numbers_that_are_absent_stay_absent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let mut series = SeriesWriter::new(&path, 100);
    let written = [queue(5, 2, 0), of_tunnel(5, 1), queue(10, 0, 1), of_tunnel(12, 0)];
    series.look(5);
    written.iter().for_each(|row| series.queue(row.clone()));
    let record = record(Some(series.finish().unwrap()));
    let read: Vec<QueueSample> = record.queues(&path).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(read, written);

    let mut text = Vec::new();
    write_csv(record.queues(&path).unwrap(), &mut text).unwrap();
    let expected = "at_us,link,tunnel,connection,from,packets,bytes,drops\n5,sea,,,a,2,3000,0\n5,,deep,3,a,1,1500,0\n\
                    10,sea,,,a,0,0,1\n12,,deep,3,a,0,0,0\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

/// A file of others may have any name.
#[test]
fn no_name_moves_a_terminals_cursor_or_makes_a_further_column() {
    let rows =
        ["\u{1b}[2J", "a,b", "a\n1", "\u{202e}a"].map(|name| Ok(QueueSample { from: name.into(), ..queue(5, 2, 0) }));
    let mut text = Vec::new();
    write_csv::<_, std::io::Error>(rows.into_iter(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let names: Vec<_> = text.lines().skip(1).map(|line| line.strip_prefix("5,sea,,,").unwrap()).collect();
    assert_eq!(names, ["\\u{1b}[2J,2,3000,0", "\"a,b\",2,3000,0", "a\\n1,2,3000,0", "\\u{202e}a,2,3000,0"]);
}

#[test]
fn within_the_budget_the_looks_that_are_kept_are_even_and_those_of_a_coarser_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    for (most, looks, one_of) in [(1000, 102, 1), (1000, 103, 2), (1000, 1001, 16), (10, 1001, 512), (1, 9, 8)] {
        let record = write(&path, most, looks, 10);
        let files = record.series.as_ref().unwrap();
        let all = samples(&record, &path);
        assert_eq!((files.one_of, files.samples.as_ref().unwrap().rows), (one_of, all.len() as u64), "{most} {looks}");
        // Two looks may always be there.
        assert!(all.len() as u64 <= most.max(10) + 20, "{most} {looks}: {}", all.len());
        let expected = (1..=looks).filter(|look| look.is_multiple_of(one_of));
        let expected: Vec<_> =
            expected.flat_map(|look| (0..10).map(move |connection| sample(look * 100_000, connection))).collect();
        assert_eq!(all, expected, "{most} {looks}");
    }
    assert_eq!(names(folder.path()), ["r.json", "r.samples.parquet"]);
}

#[test]
fn a_sample_takes_little_on_disk_and_a_run_no_more_than_its_budget() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let record = write(&path, 50_000, 400, 1000);
    let files = record.series.unwrap();
    let samples = files.samples.unwrap();
    assert!(samples.rows > 20_000 && samples.rows <= 52_000, "{}", samples.rows);
    assert_eq!(fs::metadata(series_of::<Sample>(&path)).unwrap().len(), samples.bytes);
    assert!(samples.bytes < 50 * samples.rows, "{} bytes for {} samples", samples.bytes, samples.rows);
}

#[test]
fn a_queue_that_changed_at_a_look_that_is_given_up_is_as_it_was_then_at_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let mut series = SeriesWriter::new(&path, 7);
    // By look: the link's queue, if it has changed.
    let seen = [Some(1), None, Some(4), Some(3), Some(2), Some(3), Some(9), None];
    for (look, packets) in (1..).zip(seen) {
        assert!(series.look(look));
        packets.iter().for_each(|packets| series.queue(queue(look, *packets, 0)));
    }
    assert!(!series.look(9), "eight looks are more than seven samples would be");
    assert!(series.look(10));
    series.queue(queue(11, 0, 0));
    let record = record(Some(series.finish().unwrap()));
    let read: Vec<QueueSample> = record.queues(&path).unwrap().collect::<Result<_, _>>().unwrap();
    // At the fourth and the sixth look it was 3: no change.
    assert_eq!(read, [queue(2, 1, 0), queue(4, 3, 0), queue(8, 9, 0), queue(11, 0, 0)]);
}

#[test]
fn a_file_that_is_missing_cut_off_or_another_runs_is_told_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let file = folder.path().join("r.samples.parquet");
    let record = write(&path, 1000, 20, 3);
    let whole = fs::read(&file).unwrap();
    let refused = |why: &str| {
        let said = record.samples(&path).err().unwrap().to_string();
        let start = format!("{}: not the samples that {} goes with: ", file.display(), path.display());
        assert!(said.starts_with(&start) && said.ends_with(why) && !said.contains('\n'), "{said}");
    };
    fs::write(&file, &whole[..100]).unwrap();
    refused(&format!("it has 100 bytes of {}", whole.len()));
    let mut other = whole.clone();
    other[40] ^= 1;
    fs::write(&file, &other).unwrap();
    refused("its content is another");
    fs::remove_file(&file).unwrap();
    refused("it is missing; it belongs beside the record");
    fs::create_dir(&file).unwrap();
    assert!(record.samples(&path).err().unwrap().to_string().contains("it is a directory"));
    fs::remove_dir(&file).unwrap();
    // Both under another name are as good.
    fs::write(folder.path().join("other.samples.parquet"), &whole).unwrap();
    assert_eq!(samples(&record, &folder.path().join("other.json")).len(), 60);
}

#[test]
fn a_record_without_series_says_so() {
    let error = record(None).samples(Path::new("r.json")).err().unwrap();
    assert!(
        matches!(error, Error::NoSeries { .. }) && error.to_string() == "r.json: it has no series of its run's samples"
    );
}

#[test]
fn a_disk_that_refuses_is_told_at_the_end_and_nothing_is_left() {
    let mut series = SeriesWriter::new(Path::new("/proc/none/r.json"), 1000);
    assert!(series.look(1));
    series.sample(sample(1, 0));
    assert!(!series.look(2), "nothing more is wanted");
    let said = series.finish().unwrap_err().to_string();
    assert!(said.starts_with("/proc/none/r.samples.parquet: cannot be written: "), "{said}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let mut series = SeriesWriter::new(&path, 1000);
    series.look(1);
    series.sample(sample(1, 0));
    assert_eq!(names(folder.path()), [""; 0], "nor if it is killed");
    drop(series);
    assert_eq!(names(folder.path()), [""; 0], "a run that ended before its time");
    // A series that has no samples takes the place of one that had.
    write(&path, 1000, 1, 1);
    SeriesWriter::new(&path, 1000).finish().unwrap();
    assert_eq!(names(folder.path()), ["r.json"]);
}

#[test]
fn a_record_and_its_series_stay_together_where_one_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let before = write(&path, 1000, 1, 1);
    let sampled = |path: &Path| {
        let mut series = SeriesWriter::new(path, 1000);
        series.look(1);
        series.sample(sample(1, 0));
        series
    };
    // The record cannot be written: the series of the one that is there stays, too.
    let refused = |_| Err::<(), _>(Error::Output(std::io::ErrorKind::StorageFull.into()));
    assert!(sampled(&path).finish_with(refused).is_err());
    assert!(before.samples(&path).unwrap().all(|sample| sample.is_ok()));
    assert_eq!(names(folder.path()), ["r.json", "r.samples.parquet"]);
    // A series cannot, for its folder is there only later, and a file until then: the record is there, and no series that is not its own.
    let late = folder.path().join("late");
    fs::write(&late, "").unwrap();
    let path = late.join("r.json");
    let written = sampled(&path).finish_with(|files| {
        fs::remove_file(&late).unwrap();
        fs::create_dir(&late).unwrap();
        fs::write(&path, "{}").unwrap();
        fs::write(path.with_extension("samples.parquet"), "of another").unwrap();
        Ok::<_, Error>(files.is_err())
    });
    assert!(written.unwrap());
    assert_eq!(names(&late), ["r.json"]);
    // Or for its name would be too long.
    let long = late.join("r".repeat(245)).with_extension("json");
    assert!(sampled(&long).finish_with(|files| Ok::<_, Error>(files.is_err())).unwrap());
}

/// A record and its series by somebody else, who has made both fit. The lowest bit of a number in a footer is its sign.
#[test]
fn no_byte_of_a_footer_makes_a_series_reader_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let mut series = SeriesWriter::new(&path, 100);
    series.look(5);
    series.queue(queue(5, 2, 0));
    let mut record = record(Some(series.finish().unwrap()));
    let file = series_of::<QueueSample>(&path);
    let sound = fs::read(&file).unwrap();
    // "PAR1" at both ends, and before the last the length of the footer.
    let end = sound.len() - 8;
    let footer = end - u32::from_le_bytes(sound[end..end + 4].try_into().unwrap()) as usize..end;
    let mut outside = 0;
    for at in footer {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&file, &bytes).unwrap();
        let digits = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        record.series.as_mut().unwrap().queues.as_mut().unwrap().sha256 = digits;
        let read = record.queues(&path).and_then(|rows| rows.collect::<Result<Vec<_>, _>>());
        outside += usize::from(read.is_err_and(|error| error.to_string().contains("a column has a place outside")));
    }
    assert!(outside >= 8, "the length of each of eight columns can be negative: {outside}");
}

#[test]
fn what_is_no_record_is_refused_before_it_fills_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    fs::File::create(&path).unwrap().set_len(3 << 30).unwrap();
    assert!(matches!(Record::read(&path), Err(Error::NotARecord { .. })));
    assert!(matches!(PathRecord::load(&path), Err(Error::Unreadable { .. })));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kb < 1 << 20, "{peak_kb} kB");
    // A long record is read all the same.
    let record = record(None);
    fs::write(&path, record.to_json() + &" ".repeat(17 << 20)).unwrap();
    assert_eq!(Record::read(&path).unwrap(), record);
}

#[test]
fn nothing_is_beside_a_record_that_goes_into_a_stream() {
    let path = Path::new("/dev/null");
    let mut series = SeriesWriter::new(path, 1000);
    assert!(!series.look(5));
    series.sample(sample(5, 1));
    series.queue(queue(5, 2, 0));
    let files = series.finish().unwrap();
    assert_eq!((&files.samples, &files.queues), (&None, &None));
    record(Some(files)).write(path).unwrap();
    assert!(ekiden_files::is_stream(path));
    assert!(!series_of::<Sample>(path).exists());
}
