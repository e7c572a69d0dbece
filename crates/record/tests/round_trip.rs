//! A record read back is the record written, and what is no record is refused with a clear line.

use ekiden_record::{
    Chosen, Congestion, CongestionEvent, CongestionEventKind, Disturbance, Error, Event, FORMAT, Flow, Lateness,
    LinkDirection, Manifest, Outcome, PathChange, PathDelay, Ping, Record, SeriesFile, SeriesFiles, StreamsOnPath,
    TunnelDirection,
};

fn record() -> Record {
    Record {
        format: FORMAT,
        manifest: Manifest {
            producer: "lab".into(),
            version: "0.1.0".into(),
            command: vec!["ekiden".into(), "lab".into(), "run".into(), "a file.toml".into()],
            kernel: Some("6.18.0".into()),
            seed: u64::MAX,
            scenario_name: "far".into(),
            scenario: "name = \"far\"\n".into(),
            started_unix_ms: 1_763_711_111_000,
            resolution_us: Some(100_000),
        },
        flows: vec![flow(Outcome::Complete), flow(Outcome::Differs { connection: 3, at_bytes: 17 })],
        paths: vec![PathDelay {
            from: "client".into(),
            to: "server".into(),
            nominal_us: 50_000.288,
            probes: 3,
            lost: 0,
            p50_us: Some(50_030.1),
            p99_us: Some(50_100.0),
            max_us: None,
        }],
        pings: vec![Ping::new("terminal", vec![3_000.0, 1_000.0, 2_000.0], 1)],
        links: vec![LinkDirection {
            link: "sea".into(),
            from: "client".into(),
            to: "server".into(),
            packets: 1,
            bytes: 1500,
            policer_drops: 0,
            queue_drops: 2,
            queue_marks: 1,
            random_losses: 3,
            outage_losses: 0,
            overruns: 0,
            largest_packet_bytes: 1500,
            queue_max_bytes: 3000,
            queue_max_packets: 2,
            queue_wait_mean_us: Some(1.5),
            lateness: Some(Lateness { p50_us: -5.0, p99_us: 80.0, max_us: 310.0, queue_drain_us: Some(12_000.0) }),
        }],
        tunnels: vec![TunnelDirection {
            tunnel: "deep".into(),
            connection: 1,
            from: "city".into(),
            to: "island".into(),
            packets: 1,
            bytes: 1500,
            queue_drops: 2,
            queue_marks: 1,
            broken_losses: 3,
            queue_max_bytes: 4,
            queue_max_packets: 5,
            retransmits: 6,
            timeouts: 7,
            rtt_min_us: Some(8),
            rtt_max_us: None,
        }],
        stolen_percent: Some(0.5),
        waited_percent: Some(0.25),
        series: Some(SeriesFiles {
            one_of: 4,
            samples: Some(SeriesFile { rows: 1, bytes: 2, sha256: "ab".into() }),
            queues: None,
        }),
        events: vec![Event {
            at_us: 1,
            flow: Some("bulk".into()),
            connection: Some(0),
            kind: "connected".into(),
            detail: String::new(),
        }],
        overlay: vec![Chosen {
            node: "city".into(),
            exit: "island".into(),
            streams: vec![StreamsOnPath { path: vec!["city".into(), "island".into()], streams: 3 }],
            changes: vec![PathChange { at_us: 2, path: vec!["city".into(), "island".into()], because: "why".into() }],
        }],
        congestion: Some(Congestion {
            parameters: [("ekiden_ghstcp".to_owned(), [("ghstcp.span".to_owned(), 2.0)].into())].into(),
            not_traced: None,
            lost_events: 3,
            events: vec![CongestionEvent {
                at_us: 5,
                connection: 1,
                from: "a".into(),
                to: "b".into(),
                algorithm: "ekiden_ghstcp".into(),
                kind: CongestionEventKind::Mode,
                cwnd_segments: 10,
                ssthresh_segments: None,
                rtt_us: 43_000,
                reno_mode: true,
            }],
        }),
    }
}

fn flow(outcome: Outcome) -> Flow {
    Flow {
        name: "bulk".into(),
        from: "client".into(),
        to: "server".into(),
        via: vec!["p1".into()],
        outcome,
        received_bytes: 1_000_000,
        duration_us: 1_000_000,
        goodput_bit_s: 8_000_000,
        retransmits: 1,
        rtt_min_us: Some(50_000),
        rtt_max_us: None,
        connection_mean_us: Some(9),
    }
}

#[test]
fn reads_back_what_was_written() {
    let path = std::env::temp_dir().join(format!("ekiden-record-test-{}/deep/record.json", std::process::id()));
    record().write(&path).unwrap();
    assert_eq!(Record::read(&path).unwrap(), record());
    std::fs::remove_dir_all(path.parent().unwrap().parent().unwrap()).unwrap();
}

#[test]
fn refuses_a_newer_format_before_anything_else() {
    let error = Record::parse("{\"format\": 999, \"all\": \"different\"}", "x.json").unwrap_err();
    assert!(matches!(error, Error::TooNew { found: 999, .. }));
    assert_eq!(error.to_string(), "x.json: record format 999, but this ekiden reads up to 2; use a newer one");
}

#[test]
fn says_where_a_file_is_no_record() {
    for (text, part) in
        [("", "line 1"), ("{\"format\": 1}", "manifest"), ("{\"format\": -1}", "line 1"), ("[]", "line 1")]
    {
        let message = Record::parse(text, "x.json").unwrap_err().to_string();
        assert!(message.starts_with("x.json: not a record: ") && message.contains(part), "{message}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = Record::read(std::path::Path::new("/nonexistent/record.json")).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/record.json: cannot be read"));
}

#[test]
fn the_json_says_whether_the_machine_disturbed_the_run() {
    let run = |overruns: [u64; 2], p99_us: [Option<f64>; 2]| {
        let mut record = record();
        record.links.push(record.links[0].clone());
        for ((link, overruns), p99_us) in record.links.iter_mut().zip(overruns).zip(p99_us) {
            link.overruns = overruns;
            link.lateness = p99_us.map(|p99_us| Lateness { p50_us: 0.0, p99_us, max_us: 9000.0, queue_drain_us: None });
        }
        record
    };
    let disturbed = |overruns, lateness_p99_us| {
        Some(Disturbance { overruns, lateness_p99_us, lateness_max_us: None, waited_percent: None })
    };
    for (record, expected, told) in [
        (run([0, 0], [Some(1000.0), Some(80.0)]), None, ""),
        (run([0, 0], [None, None]), None, ""),
        (run([0, 2], [Some(999.0), None]), disturbed(2, None), "2 overruns"),
        (run([0, 0], [Some(1005.0), Some(2345.0)]), disturbed(0, Some(2345.0)), "2.3 ms late"),
        (run([1, 2], [Some(10.0), Some(1200.0)]), disturbed(3, Some(1200.0)), "3 overruns, 1.2 ms late"),
    ] {
        assert_eq!(record.disturbance(), expected);
        assert_eq!(record.disturbance().map(|disturbance| disturbance.to_string()).unwrap_or_default(), told);
        let json = record.to_json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["disturbed"], serde_json::to_value(expected).unwrap());
        assert_eq!(value["manifest"]["seed"], u64::MAX);
        // What a file says about it is not believed: it is found out again.
        let liar = json.replace("\"disturbed\": null", "\"disturbed\": {\"overruns\": 7}");
        assert_eq!(Record::parse(&liar, "x.json").unwrap().to_json(), json);
    }
}

#[test]
fn one_stall_longer_than_the_shortest_queue_drains_disturbs_a_run() {
    // Lateness at most, and how long the full queue takes to drain, of both directions; in milliseconds.
    let run = |directions: [(f64, Option<f64>); 2]| {
        let mut record = record();
        record.links.push(record.links[0].clone());
        for (link, (max_ms, drain_ms)) in record.links.iter_mut().zip(directions) {
            let queue_drain_us = drain_ms.map(|ms| ms * 1e3);
            link.lateness = Some(Lateness { p50_us: 0.0, p99_us: 200.0, max_us: max_ms * 1e3, queue_drain_us });
        }
        record
    };
    let none = Disturbance { overruns: 0, lateness_p99_us: None, lateness_max_us: None, waited_percent: None };
    let late = |ms: f64| Some(Disturbance { lateness_max_us: Some(ms * 1e3), ..none });
    for (directions, expected, told) in [
        // The stall that lost 286 packets: a queue of 100 KB at 70 Mbit/s, and late in the other direction only.
        ([(45.0, Some(112.0)), (3.0, Some(11.4))], late(45.0), "once 45.0 ms late"),
        ([(3.0, Some(112.0)), (11.5, Some(11.4))], late(11.5), "once 11.5 ms late"),
        ([(3.0, Some(112.0)), (11.4, Some(11.4))], None, ""),
        // A record from before queues were noted.
        ([(45.0, None), (45.0, None)], None, ""),
        ([(45.0, None), (1.0, Some(11.4))], late(45.0), "once 45.0 ms late"),
    ] {
        let disturbance = run(directions).disturbance();
        assert_eq!(disturbance, expected);
        assert_eq!(disturbance.map(|disturbance| disturbance.to_string()).unwrap_or_default(), told);
    }
    let both = Disturbance { overruns: 1, lateness_p99_us: Some(1200.0), ..none };
    assert_eq!(late(45.0).unwrap().and(both).to_string(), "1 overruns, 1.2 ms late, once 45.0 ms late");
}

#[test]
fn programs_without_a_processor_disturb_a_run_that_was_emulated_on_time() {
    for (waited_percent, told) in [(None, ""), (Some(15.0), ""), (Some(31.6), "32 % without a processor")] {
        let disturbance = Record { waited_percent, ..record() }.disturbance();
        assert_eq!(disturbance.map(|disturbance| disturbance.to_string()).unwrap_or_default(), told);
    }
}
