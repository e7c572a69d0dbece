use ekiden_diagnosis::limit::Shares;

use super::*;
use crate::measurement::{Failure, Measured};

fn measurement(started_unix_ms: u64, target: &str, result: Result<Measured, Failure>) -> Measurement {
    Measurement {
        round_unix_ms: 1,
        started_unix_ms,
        target: target.into(),
        server: "192.0.2.1:7100".into(),
        via: (target == "overlay").then(|| "127.0.0.1:1080".into()),
        direction: "receive".into(),
        result,
    }
}

fn good(rate: u64) -> Result<Measured, Failure> {
    let shares = Shares { application: 0.25, receive_window: 0.25, send_buffer: 0.0, path: 0.5 };
    Ok(Measured { received_bit_s: rate, rtt_base_us: Some(20_000), shares: Some(shares), ..Measured::default() })
}

fn bad() -> Result<Measured, Failure> {
    Err(Failure("no connection".into()))
}

#[test]
fn what_is_added_is_read_again_also_by_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.sqlite");
    let rows =
        [measurement(5, "direct", good(7)), measurement(6, "overlay", bad()), measurement(7, "direct", good(u64::MAX))];
    let mut history = History::open(&file).unwrap();
    history.add(&rows).unwrap();
    let reader = History::read(&file).unwrap();
    assert_eq!(reader.measurements(0).unwrap()[..2], rows[..2]);
    assert_eq!(reader.measurements(6).unwrap().len(), 2);
    assert_eq!(reader.measurements(0).unwrap()[2].result.as_ref().unwrap().received_bit_s, i64::MAX as u64);
    let latest: Vec<u64> = reader.latest().unwrap().iter().map(|row| row.started_unix_ms).collect();
    assert_eq!(latest, [6, 7]);

    assert_eq!(history.forget(7).unwrap(), 2);
    assert_eq!(reader.measurements(0).unwrap().len(), 1);
    let tally = |target: &str, succeeded, failed| Tally { target: target.into(), succeeded, failed };
    assert_eq!(reader.tallies().unwrap(), [tally("direct", 2, 0), tally("overlay", 0, 1)]);
    drop((history, reader));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    assert_eq!(History::open(&file).unwrap().measurements(0).unwrap().len(), 1);
}

#[test]
fn a_history_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.sqlite");
    let mut history = History::open(&file).unwrap();
    let error = History::open(&file).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("{}: another monitor writes this history; end it first, or name another file", file.display())
    );
    // The attempt takes nothing from the one that has it.
    history.add(&[measurement(1, "a", bad())]).unwrap();
    assert!(History::open(&file).is_err());
    drop(history);
    History::open(&file).unwrap();
}

#[test]
fn what_is_no_history_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place("text"), "interval = 5, and more").unwrap();
    std::fs::write(place("short"), "x").unwrap();
    std::fs::write(place("broken"), [&MAGIC[..], &[7; 200]].concat()).unwrap();
    let other = Connection::open(place("other")).unwrap();
    other.execute_batch("CREATE TABLE t (a); PRAGMA user_version = 1;").unwrap();
    drop(other);
    let newer = History::open(&place("newer")).unwrap();
    newer.connection.pragma_update(None, "user_version", 9).unwrap();
    drop(newer);
    std::fs::create_dir(place("folder")).unwrap();
    for (name, said) in [
        ("text", "it is not a SQLite file"),
        ("short", "it is not a SQLite file"),
        ("broken", "it is not a SQLite file"),
        ("other", "another program's SQLite file"),
        ("newer", "is a history of version 9, and this program knows version 1"),
        ("folder", "cannot be opened"),
        ("no/folder", "cannot be opened: No such file"),
    ] {
        let before = std::fs::read(place(name)).ok();
        for error in [History::open(&place(name)).unwrap_err(), History::read(&place(name)).unwrap_err()] {
            let text = error.to_string();
            assert!(
                text.contains(said) && !text.contains('\n') && text.starts_with(folder.path().to_str().unwrap()),
                "{text}"
            );
        }
        assert_eq!(std::fs::read(place(name)).ok(), before, "{name}");
    }
    assert!(History::read(&place("none")).unwrap_err().to_string().contains("cannot be opened: No such file"));
    std::fs::write(place("empty"), "").unwrap();
    assert!(History::read(&place("empty")).unwrap_err().to_string().ends_with("no monitor has written it yet"));
    History::open(&place("empty")).unwrap();
    History::read(&place("empty")).unwrap();
}

#[test]
fn a_row_that_cannot_be_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.sqlite");
    let mut history = History::open(&file).unwrap();
    history.add(&[measurement(1, "a", good(1))]).unwrap();
    history.connection.execute_batch("UPDATE measurement SET received_bit_s = -5").unwrap();
    let error = history.measurements(0).unwrap_err().to_string();
    assert!(error.contains("a row of it is unusable"), "{error}");
}

#[test]
fn a_full_disk_takes_all_or_nothing_and_may_pass() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.sqlite");
    let mut history = History::open(&file).unwrap();
    history.limit_pages(1);
    let rows: Vec<Measurement> = (0..2000).map(|at| measurement(at, "a", bad())).collect();
    let error = history.add(&rows).unwrap_err();
    assert!(error.to_string().ends_with("the disk is full") && error.may_pass(), "{error}");
    assert_eq!(history.measurements(0).unwrap(), []);
    history.limit_pages(1_000_000);
    history.add(&rows).unwrap();
    assert_eq!(history.measurements(0).unwrap().len(), 2000);
}

#[test]
fn a_file_that_was_taken_away_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.sqlite");
    let mut history = History::open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let error = history.add(&[]).unwrap_err();
    assert!(error.to_string().ends_with("removed or replaced while the monitor ran") && !error.may_pass(), "{error}");
    std::fs::write(&file, "").unwrap();
    assert!(!history.forget(5).unwrap_err().may_pass());
}

#[test]
fn what_a_killed_monitor_leaves_is_told_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let [file, copy] = ["h.sqlite", "copy.sqlite"].map(|name| folder.path().join(name));
    let mut history = History::open(&file).unwrap();
    let rows: Vec<Measurement> = (0..2000).map(|at| measurement(at, "a", bad())).collect();
    history.add(&rows).unwrap();
    // With so little room in memory, what is not finished is written before the end.
    history
        .connection
        .execute_batch("PRAGMA cache_size = 1; BEGIN; UPDATE measurement SET target = 'changed'")
        .unwrap();
    for end in ["", "-journal"] {
        let place = |file: &Path| format!("{}{end}", file.display());
        std::fs::copy(place(&file), place(&copy)).unwrap();
    }
    let error = History::read(&copy).unwrap_err().to_string();
    assert!(error.ends_with("the next monitor that runs with this history repairs it"), "{error}");
    assert_eq!(History::open(&copy).unwrap().measurements(0).unwrap(), rows);
    assert_eq!(History::read(&copy).unwrap().measurements(0).unwrap(), rows);
}
