//! A proxy that chooses its congestion control.

use ekiden_record::Record;
use ekiden_scenario::Scenario;
use ekiden_sim::{Options, simulate};

/// Two transfers, one after the other, over 20 Mbit/s and 100 ms.
fn run(congestion: &str, loss: &str) -> Record {
    let text = format!(
        "name = \"choice\"\n[tcp]\nsend_buffer = \"512KiB\"\n[node.a]\n[node.near]\nkind = \"proxy\"\n\
         tcp = {{ congestion = \"{congestion}\" }}\n[node.far]\nkind = \"proxy\"\n[node.b]\n\
         [link.near]\nends = [\"a\", \"near\"]\nrate = \"1Gbit/s\"\n\
         [link.path]\nends = [\"near\", \"far\"]\nrate = \"20Mbit/s\"\ndelay = \"50ms\"\nqueue = \"60KB\"\nloss = \"{loss}\"\n\
         [link.far]\nends = [\"far\", \"b\"]\nrate = \"1Gbit/s\"\n\
         [flow.first]\nfrom = \"a\"\nto = \"b\"\nvia = [\"near\", \"far\"]\nduration = \"60s\"\n\
         [flow.second]\nfrom = \"a\"\nto = \"b\"\nvia = [\"near\", \"far\"]\nstart = \"70s\"\nduration = \"30s\"\n"
    );
    let scenario = Scenario::parse(&text, "choice.toml".as_ref()).unwrap();
    simulate(&scenario, &Options::default(), &mut |_| ()).unwrap()
}

fn told(record: &Record) -> Vec<&str> {
    let choices = record.events.iter().filter(|event| event.kind == "congestion");
    choices.map(|event| event.detail.as_str()).collect()
}

#[test]
fn random_losses_get_bic_and_the_path_remembers() {
    let (chosen, reno) = (run("auto", "0.2%"), run("reno", "0.2%"));
    let told = told(&chosen);
    assert!(told.last().is_some_and(|told| told.starts_with("near to far: ekiden_bic, ")), "{told:?}");
    let gain = chosen.flows[1].goodput_bit_s as f64 / reno.flows[1].goodput_bit_s as f64;
    assert!(gain > 1.5, "{gain}");
}

#[test]
fn an_overflowing_queue_keeps_reno_and_changes_nothing() {
    let (chosen, reno) = (run("auto", "0"), run("reno", "0"));
    assert!(told(&chosen).iter().all(|told| told.starts_with("near to far: reno, ")), "{:?}", told(&chosen));
    assert_eq!(chosen.flows, reno.flows);
}
