use std::path::Path;
use std::sync::Mutex;

use ekiden_units::Bytes;

use super::*;
use crate::config::{Direction, Offset, Server};

fn target(name: &str, via: Option<&str>) -> Target {
    Target {
        name: name.into(),
        server: Server::Iperf3("192.0.2.1".into()),
        via: via.map(str::to_owned),
        direction: Direction::Receive,
        bytes: Bytes(1000),
        duration: Time::secs(1),
        streams: 1,
    }
}

fn config(folder: &Path) -> Config {
    Config {
        interval: Time::secs(3600),
        offset: Offset::Fixed(Time::ms(0)),
        history: folder.join("h.sqlite"),
        keep: Some(Time::secs(86_400)),
        prometheus: Some(folder.join("m.prom")),
        key_file: None,
        targets: vec![target("direct", None), target("overlay", Some("127.0.0.1:1080"))],
    }
}

fn service(folder: &Path, measure: impl Fn(&Target) -> Result<Measured, Failure> + Send + Sync + 'static) -> Service {
    let config = config(folder);
    let history = History::open(&config.history).unwrap();
    Service::new(config, history, Arc::new(measure))
}

fn good() -> Result<Measured, Failure> {
    Ok(Measured { received_bit_s: 8_000_000, ..Measured::default() })
}

fn rows(folder: &Path) -> Vec<Measurement> {
    History::read(&folder.join("h.sqlite")).unwrap().measurements(0).unwrap()
}

#[test]
fn a_failed_measurement_is_a_row_and_the_round_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = service(folder.path(), |target| match target.via {
        Some(_) => Err(Failure("the node is not there".into())),
        None => good(),
    });
    service.run(true).unwrap();
    let rows = rows(folder.path());
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].round_unix_ms, rows[1].round_unix_ms);
    assert_eq!((&rows[0].result, rows[0].via.as_deref()), (&good(), None));
    assert_eq!(rows[1].result, Err(Failure("the node is not there".into())));
    let text = std::fs::read_to_string(folder.path().join("m.prom")).unwrap();
    assert!(text.contains("ekiden_monitor_success{target=\"overlay\"") && text.contains(" 1000000\n"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn who_asks_is_told_the_last_results_of_targets_that_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = service(folder.path(), |target| match target.via {
        Some(_) => Err(Failure("the node is not there".into())),
        None => good(),
    });
    let seen = service.seen();
    assert!(seen.status().targets.iter().all(|target| target.started_unix_ms.is_none()));
    service.run(true).unwrap();
    let told = seen.status();
    assert_eq!(told.waiting, 0);
    let results = told.targets.iter().map(|target| (target.received_bit_s, target.failure.as_deref()));
    assert_eq!(results.collect::<Vec<_>>(), [(Some(8_000_000), None), (None, Some("the node is not there"))]);
    // One that is another one by now has no result yet, whatever its name.
    let mut config = config(folder.path());
    config.targets[1].via = None;
    seen.takes(&service.config.targets, &config);
    assert_eq!(
        seen.status().targets.iter().map(|target| target.started_unix_ms.is_some()).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn one_round_without_any_result_is_an_error_and_yet_in_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = service(folder.path(), |_| panic!("in the measurement"));
    let error = service.run(true).unwrap_err().to_string();
    assert_eq!(error, "no target could be measured; overlay: this program failed; its log says how");
    assert_eq!(rows(folder.path()).len(), 2);
}

#[test]
fn a_measurement_without_end_is_a_failure_also_of_the_only_round() {
    let folder = tempfile::tempdir().unwrap();
    let (held, hold) = channel::<()>();
    let hold = Mutex::new(hold);
    let mut service = service(folder.path(), move |target| match target.via {
        Some(_) => good(),
        None => {
            let _ = hold.lock().unwrap().recv();
            good()
        }
    });
    for target in &mut service.config.targets {
        target.duration = Time::ms(100);
    }
    service.extra = Duration::from_millis(400);
    service.run(true).unwrap();
    let results: Vec<_> = rows(folder.path()).into_iter().map(|row| row.result).collect();
    assert_eq!(results, [Err(Failure("no end after 500ms".into())), good()]);
    drop(held);
}

#[test]
fn targets_take_turns_in_beginning_a_round() {
    let folder = tempfile::tempdir().unwrap();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let names = seen.clone();
    let mut service = service(folder.path(), move |target| {
        names.lock().unwrap().push(target.name.clone());
        good()
    });
    service.round().unwrap();
    service.round().unwrap();
    assert_eq!(*seen.lock().unwrap(), ["direct", "overlay", "overlay", "direct"]);
}

#[test]
fn a_full_disk_keeps_measurements_in_memory_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = service(folder.path(), |_| Err(Failure("x".repeat(20_000))));
    service.history.limit_pages(1);
    service.round().unwrap();
    service.round().unwrap();
    assert_eq!((service.waiting.len(), rows(folder.path()).len()), (4, 0));
    let error = service.finish().unwrap_err().to_string();
    assert!(
        error.ends_with("the disk is full; measurements that are not written: 4") && !error.contains('\n'),
        "{error}"
    );
    service.history.limit_pages(1_000_000);
    service.round().unwrap();
    assert_eq!((service.waiting.len(), rows(folder.path()).len()), (0, 6));
}

#[test]
fn a_history_that_was_removed_ends_the_monitor() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = service(folder.path(), |_| good());
    std::fs::remove_file(folder.path().join("h.sqlite")).unwrap();
    let error = service.run(false).unwrap_err().to_string();
    assert!(
        error.contains("removed or replaced") && error.ends_with("measurements that are not written: 1"),
        "{error}"
    );
}

#[test]
fn it_ends_when_it_is_told_to_also_within_a_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, wait) = channel();
    let (held, hold) = channel::<()>();
    let (begun, hold) = (Mutex::new(begun), Mutex::new(hold));
    let mut service = service(folder.path(), move |_| {
        let _ = begun.lock().unwrap().send(());
        let _ = hold.lock().unwrap().recv();
        good()
    });
    let stop = service.events();
    let run = thread::spawn(move || service.run(false));
    wait.recv().unwrap();
    stop.send(Event::Stop).unwrap();
    run.join().unwrap().unwrap();
    assert_eq!(rows(folder.path()), []);
    drop(held);
}

#[test]
fn nothing_is_deleted_by_a_clock_that_is_not_known_to_run_evenly() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = service(folder.path(), |_| good());
    let old = |started_unix_ms| Measurement {
        round_unix_ms: started_unix_ms,
        started_unix_ms,
        target: "direct".into(),
        server: "s".into(),
        via: None,
        direction: "receive".into(),
        result: good(),
    };
    service.history.add(&[old(5)]).unwrap();
    service.round().unwrap();
    assert_eq!(rows(folder.path()).len(), 3);
    service.clock.pretend_even(EVEN);
    service.forget().unwrap();
    assert_eq!(rows(folder.path()).len(), 2);
}
