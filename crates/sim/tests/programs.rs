//! What only programs do is refused.

use ekiden_scenario::Scenario;

#[test]
fn other_programs_and_what_is_fetched_are_refused_in_a_line() {
    let text = |program: &str, fetch: &str| {
        format!(
            "name = \"x\"\n[node.a]\n[node.p]\nkind = \"proxy\"\n{program}[node.b]\n[link.ap]\nends = [\"a\", \"p\"]\nrate = \"1Gbit/s\"\n\
             [link.pb]\nends = [\"p\", \"b\"]\nrate = \"1Gbit/s\"\n[flow.f]\nfrom = \"a\"\nto = \"b\"\nvia = [\"p\"]\nbytes = \"1MB\"\n{fetch}"
        )
    };
    let refused = |program: &str, fetch: &str| {
        let scenario = Scenario::parse(&text(program, fetch), "x").unwrap();
        ekiden_sim::check_supported(&scenario).map_err(|error| error.to_string())
    };
    assert_eq!(refused("", ""), Ok(()));
    let instead = "only `ekiden lab` can do this; for the simulator, leave it out";
    assert_eq!(refused("", "fetch = \"http\"\n"), Err(format!("flow.f.fetch: {instead}")));
    let squid = refused("program = \"squid\"\n", "fetch = \"http\"\n");
    assert_eq!(squid, Err(format!("node.p.program: {instead}")));
}
