//! What a run samples, within a budget.

use ekiden_record::{Kept, QueueSample, Record, Sample, Series, SeriesWriter};
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};
use ekiden_units::Time;

/// Many connections over a line that is shared by all.
fn scenario(connections: u32, seconds: u32) -> Scenario {
    let text = format!(
        "name = 't'\n[node.a]\n[node.r]\nkind = 'router'\n[node.b]\n[link.near]\nends = ['a', 'r']\nrate = '100Mbit/s'\n\
         [link.far]\nends = ['r', 'b']\nrate = '10Mbit/s'\ndelay = '5ms'\nqueue = '50KB'\nloss = '0.1%'\n\
         [flow.f]\nfrom = 'a'\nto = 'b'\nduration = '{seconds}s'\nparallel = {connections}\n"
    );
    Scenario::parse(&text, "t.toml").unwrap()
}

fn run(scenario: &Scenario, resolution: Time, series: &mut dyn Series) -> Record {
    let options = Options { resolution, ..Options::default() };
    simulate(scenario, &options, series, &mut |_| {}).unwrap()
}

#[test]
fn a_run_that_is_thinned_has_the_same_result_and_the_samples_of_one_that_looks_less_often() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let scenario = scenario(4, 6);
    let mut all = Kept::default();
    let whole = run(&scenario, Time::ms(10), &mut all);
    let mut series = SeriesWriter::new(&path, 1000);
    let mut thinned = run(&scenario, Time::ms(10), &mut series);
    assert_eq!(thinned, whole, "all but the series");

    let files = series.finish().unwrap();
    assert_eq!(files.one_of, 4);
    let mut coarse = Kept::default();
    run(&scenario, Time::ms(40), &mut coarse);
    thinned.series = Some(files);
    let samples: Vec<Sample> = thinned.samples(&path).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(samples, coarse.samples);
    let by_queue = |mut queues: Vec<QueueSample>| {
        queues.sort_by_key(|queue| (queue.at_us, queue.link.clone(), queue.from.clone()));
        queues
    };
    let queues: Vec<QueueSample> = thinned.queues(&path).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(by_queue(queues), by_queue(coarse.queues));
    assert!(all.samples.len() > 2 * samples.len());
}

#[test]
fn a_thousand_connections_stay_within_the_budget_in_rows_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let scenario = scenario(1000, 4);
    let mut series = SeriesWriter::new(&path, 10_000);
    let mut record = run(&scenario, Time::ms(100), &mut series);
    record.series = Some(series.finish().unwrap());
    record.write(&path).unwrap();
    let files = record.series.unwrap();
    let samples = files.samples.unwrap();
    assert!(files.one_of > 1 && (5_000..=12_000).contains(&samples.rows), "{} rows", samples.rows);
    assert!(samples.bytes < 60 * samples.rows, "{} bytes for {} rows", samples.bytes, samples.rows);
    assert!(std::fs::metadata(&path).unwrap().len() < 10_000, "the record itself holds no samples");
}
