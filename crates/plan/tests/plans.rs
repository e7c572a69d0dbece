//! What is advised on which path, from both sides of each limit.

use std::path::PathBuf;

use ekiden_plan::{Flags, Limit, Path, Plan, read};

/// A description's path.
fn path(text: &str) -> Path {
    try_path(text).unwrap()
}

fn try_path(text: &str) -> Result<Path, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("path.toml");
    std::fs::write(&file, text).unwrap();
    read(Some(&file), None, &Flags::default()).map_err(|error| {
        let folder = format!("{}/", folder.path().display());
        error.to_string().replace(&folder, "")
    })
}

fn plan(text: &str) -> Plan {
    Plan::of(&path(text), None)
}

fn mbit(plan: &Plan) -> f64 {
    plan.direct.goodput_bit_s.value / 1e6
}

const ISLAND: &str = "rtt = \"50ms\"\nrate = \"100Mbit/s\"\nbuffer = \"300KB\"\nloss = \"0\"\nwindow = \"64KiB\"\n";

#[test]
fn a_window_over_a_distance_is_split() {
    let plan = plan(ISLAND);
    // 64 KiB in 50 ms are 10.5 Mbit/s, of which two hosts use 95 %.
    assert!((9.5..10.3).contains(&mbit(&plan)), "{}", mbit(&plan));
    assert_eq!(plan.direct.limit, Limit::Window);
    let remedy = plan.chosen().unwrap();
    assert_eq!(remedy.name, "2 proxies beside the hosts");
    assert!(remedy.forecast.goodput_bit_s.value > 80e6);
    // README, try it: two legs have 20 Mbit/s.
    let middle = plan.remedies.iter().find(|remedy| remedy.nodes.len() == 1).unwrap();
    assert!((18.5e6..21e6).contains(&middle.forecast.goodput_bit_s.value), "{middle:?}");
    assert!(plan.larger_windows.is_some());
    assert!(plan.verdict.contains("the hosts' window bounds the direct connection"), "{}", plan.verdict);
}

#[test]
fn no_doubt_makes_a_window_larger_and_more_loss_makes_no_narrower_range_wider_at_once() {
    let at = |ppm: u32| plan(&ISLAND.replace("loss = \"0\"", &format!("loss = \"{ppm}ppm\""))).direct.goodput_bit_s;
    let mut before: Option<f64> = None;
    for ppm in [1, 2, 4, 7, 10, 15, 30, 100] {
        let range = at(ppm);
        // 64 KiB in 50 ms are 10.49 Mbit/s.
        assert!(range.high <= 10.49e6 * 1.051, "{ppm} ppm: {range:?}");
        assert!(before.is_none_or(|low| range.low > 0.75 * low), "{ppm} ppm: {range:?} after {before:?}");
        before = Some(range.low);
    }
}

#[test]
fn a_host_that_sends_far_ahead_wants_one_proxy_less() {
    // README, try it: the server sends 4 MiB ahead; one node at home, one in the middle carry 94 Mbit/s.
    let with = |windows: &str| plan(&ISLAND.replace("window = \"64KiB\"", windows));
    let even = with("client_window = \"64KiB\"\nserver_window = \"64KiB\"");
    let ahead = with("client_window = \"64KiB\"\nserver_window = \"4MiB\"");
    let middle = |plan: &Plan| plan.remedies[0].forecast.goodput_bit_s.value;
    assert!((0.9..1.1).contains(&(middle(&ahead) / middle(&even))), "the client's half is the limit of both");
    let at_sender = |plan: &Plan| plan.remedies[0].legs[1].alone_bit_s;
    assert!(at_sender(&ahead) > 3.0 * at_sender(&even));
}

#[test]
fn random_loss_wants_ekiden_far_and_it_is_said_that_its_place_is_not_known() {
    let plan = plan("rtt = \"100ms\"\nrate = \"50Mbit/s\"\nbuffer = \"600KB\"\nloss = \"0.1%\"\nwindow = \"8MiB\"\n");
    assert_eq!(plan.direct.limit, Limit::Loss);
    let remedy = plan.chosen().unwrap();
    assert!(remedy.nodes.len() == 2 && remedy.gain.value > 4.0, "{remedy:?}");
    let controls: Vec<&str> = remedy.legs.iter().map(|leg| leg.congestion.name()).collect();
    assert_eq!(controls, ["cubic", "ekiden_far", "cubic"]);
    // Close to the line, wherever the loss is.
    assert!(remedy.forecast.goodput_bit_s.low > 0.7 * 50e6, "{remedy:?}");
    assert!(plan.notes.iter().any(|note| note.starts_with("ekiden_far wants Linux 6.4")));
    assert!(!plan.notes.iter().any(|note| note.starts_with("bbr does not heed losses")));
    assert!(plan.notes.iter().any(|note| note.contains("On which leg packets are lost is not known")));
    assert!(!plan.verdict.is_empty());
}

#[test]
fn nothing_helps_where_nothing_can() {
    for (text, why) in [
        (
            "rtt = \"50ms\"\nrate = \"10Mbit/s\"\nbuffer = \"100KB\"\nloss = \"0\"\nwindow = \"4MiB\"\n",
            "the line is full",
        ),
        (
            "rtt = \"50ms\"\nrate = \"100Mbit/s\"\nbuffer = \"600KB\"\nloss = \"0\"\nwindow = \"4MiB\"\npolicer = { rate = \"8Mbit/s\", burst = \"256KiB\" }\n",
            "a policer of 8Mbit/s is the limit",
        ),
        (
            "rtt = \"1ms\"\nrate = \"10Gbit/s\"\nbuffer = \"1MB\"\nloss = \"0\"\nwindow = \"1500B\"\nclient_window = \"1KiB\"\n",
            "",
        ),
        (
            // A queue of 12 segments, which bursts overflow: here one proxy carried less than the direct connection.
            "rtt = \"38.3ms\"\nrate = \"32.8Mbit/s\"\nbuffer = \"18KB\"\nloss = \"0.0053%\"\nwindow = \"5327KiB\"\n",
            "",
        ),
    ] {
        let plan = plan(text);
        if text.contains("18KB") {
            assert_eq!(plan.chosen, None, "{}", plan.verdict);
            assert!(plan.verdict.starts_with("Nothing helps here: "), "{}", plan.verdict);
        }
        if !why.is_empty() {
            assert_eq!(plan.chosen, None, "{text}\n{}", plan.verdict);
            assert!(plan.verdict.starts_with("Nothing helps here: ") && plan.verdict.contains(why), "{}", plan.verdict);
        }
    }
}

#[test]
fn packets_want_a_tunnel_and_it_says_what_a_tunnel_does_not_do() {
    let tunnel = plan(&format!("{ISLAND}carries = \"packets\"\n"));
    assert!(tunnel.tunnel.advised && tunnel.remedies.is_empty());
    assert!(tunnel.verdict.starts_with("Use `ekiden tunnel`"), "{}", tunnel.verdict);
    assert!(tunnel.tunnel.reason.contains("leaves the round trip as it is"), "{}", tunnel.tunnel.reason);
    let split = plan(ISLAND);
    assert!(!split.tunnel.advised);
}

#[test]
fn a_gateway_is_for_streams_that_overshoot() {
    let with = |more: &str| {
        plan(&format!("rtt = \"100ms\"\nrate = \"100Mbit/s\"\nloss = \"0\"\nwindow = \"4MiB\"\n{more}\n")).gateway
    };
    let helps = with("streams = 4\ncongestion = \"reno\"\nbuffer = \"1250KB\"");
    assert!(helps.advised, "{}", helps.reason);
    for (more, why) in [
        ("streams = 1\ncongestion = \"reno\"\nbuffer = \"1250KB\"", "one stream"),
        ("streams = 4\ncongestion = \"cubic\"\nbuffer = \"1250KB\"", "ends slow start"),
        ("streams = 4\ncongestion = \"bbr\"\nbuffer = \"1250KB\"", "ends slow start"),
        ("streams = 4\ncongestion = \"reno\"\nbuffer = \"150KB\"", "an eighth"),
        ("streams = 4\ncongestion = \"reno\"\nbuffer = \"1250KB\"\nclient_window = \"64KiB\"", "too small"),
    ] {
        let gateway = with(more);
        assert!(!gateway.advised && gateway.reason.contains(why), "{more}: {}", gateway.reason);
    }
    assert!(with("streams = 4\ncongestion = \"reno\"\nbuffer = \"160KB\"").advised, "an eighth of 1250 KB is 156.25");
}

#[test]
fn chains_pass_sites_whose_round_trips_are_known() {
    let sites = "[site.tokyo]\nclient_rtt = \"1ms\"\nserver_rtt = \"49ms\"\n[site.osaka]\nclient_rtt = \"49ms\"\nserver_rtt = \"1ms\"\n";
    let apart = plan(&format!("{ISLAND}{sites}"));
    assert!(apart.remedies.iter().all(|remedy| remedy.nodes.len() == 1));
    assert!(apart.notes.iter().any(|note| note.contains("tokyo – osaka")), "{:?}", apart.notes);
    assert_eq!(apart.chosen, None, "either alone leaves a leg of 49 ms: {}", apart.verdict);
    let joined = plan(&format!("{ISLAND}{sites}rtts = {{ tokyo = \"48ms\" }}\n"));
    let remedy = joined.chosen().unwrap();
    assert_eq!(remedy.name, "tokyo – osaka");
    assert_eq!(remedy.legs.iter().map(|leg| (leg.rtt_s * 1e3).round()).collect::<Vec<_>>(), [1.0, 48.0, 1.0]);
    assert!(joined.verdict.starts_with("2 proxies at tokyo – osaka would give"), "{}", joined.verdict);
}

#[test]
fn a_lossy_leg_of_its_own_is_made_good_there() {
    // docs/guide/models.md: 220 ms, of which the last 20 are a radio link with 1 % of loss.
    let text = "rtt = \"220ms\"\nrate = \"20Mbit/s\"\nbuffer = \"250KB\"\nloss = \"1%\"\nwindow = \"4MiB\"\n\
                [site.mast]\nclient_rtt = \"20ms\"\nserver_rtt = \"200ms\"\nclient_loss = \"1%\"\nserver_loss = \"0\"\n";
    let plan = plan(text);
    let remedy = plan.chosen().unwrap();
    assert!(remedy.gain.value > 5.0, "{remedy:?}");
    assert!(remedy.legs[0].loss > 0.009 && remedy.legs[1].loss == 0.0);
    assert!(!plan.notes.iter().any(|note| note.contains("On which leg")));
}

#[test]
fn what_cannot_be_is_refused_with_key_and_line() {
    let base = "rtt = \"50ms\"\nrate = \"100Mbit/s\"\n";
    for (text, said) in [
        ("rtt = \"50ms\"\nrate = \"10Tbit/s\"\n", "path.toml:2: rate = 10Tbit/s is out of range: 1kbit/s to 1Tbit/s"),
        ("rtt = \"172800s\"\nrate = \"1Mbit/s\"\n", "path.toml:1: rtt = 172800s is out of range: 10us to 10s"),
        ("rtt = \"0\"\nrate = \"1Mbit/s\"\n", "path.toml:1: rtt = 0s is out of range"),
        ("rtt = \"-5ms\"\nrate = \"1Mbit/s\"\n", "path.toml:1: rtt: '-5ms' is not a number"),
        ("rate = \"1Mbit/s\"\n", "path.toml: rtt is missing: a path needs rtt = \"200ms\""),
        ("rtt = \"1ms\"\n", "path.toml: rate is missing"),
        (&format!("{base}loss = \"100%\"\n"), "path.toml:3: loss = 100% is out of range: 0 to 50%"),
        (&format!("{base}window = \"1B\"\n"), "path.toml:3: window = 1B is out of range: 1KiB to 1GiB"),
        (&format!("{base}back.window = \"1B\"\n"), "path.toml:3: client_window = 1B is out of range"),
        (&format!("{base}streams = 0\n"), "path.toml:3: streams = 0 is out of range: 1 to 1000"),
        (&format!("{base}streams = -1\n"), "path.toml:3: streams: invalid value"),
        (&format!("{base}size = \"0B\"\n"), "path.toml:3: size = 0B is out of range"),
        (&format!("{base}mtu = 100\n"), "path.toml:3: mtu = 100 is out of range: 576 to 9000"),
        (&format!("{base}rat = 1\n"), "path.toml:3: unknown field `rat`"),
        (
            &format!("{base}congestion = \"vegas\"\n"),
            "path.toml:3: congestion: unknown variant `vegas`, expected one of `reno`, `cubic`, `bbr`",
        ),
        (
            &format!("{base}[site.client]\nclient_rtt = \"1ms\"\nserver_rtt = \"1ms\"\n"),
            "path.toml:3: 'client' cannot name a site",
        ),
        (&format!("{base}[site.a]\nclient_rtt = \"1ms\"\n"), "site.a: missing field `server_rtt`"),
        (
            &format!("{base}[site.a]\nclient_rtt = \"1ms\"\nserver_rtt = \"1ms\"\nrtts = {{ b = \"1ms\" }}\n"),
            "path.toml:6: site.a.rtts: there is no other site 'b'",
        ),
        (
            &format!("{base}[site.a]\nclient_rtt = \"1ms\"\nserver_rtt = \"1ms\"\naddress = \"here\"\n"),
            "path.toml:6: site.a.address: 'here' needs a port",
        ),
        (
            &format!("{base}[site.a]\nclient_rtt = \"1ms\"\nserver_rtt = \"1ms\"\nfingerprint = \"abc\"\n"),
            "path.toml:6: site.a.fingerprint is no fingerprint",
        ),
    ] {
        let error = try_path(text).unwrap_err();
        assert!(error.contains(said) && !error.contains('\n'), "{text}\n{error}\nnot: {said}");
    }
}

#[test]
fn the_ends_of_the_ranges_can_be_planned() {
    for text in [
        "rtt = \"10us\"\nrate = \"1kbit/s\"\nwindow = \"1KiB\"\nloss = \"50%\"\nbuffer = \"576B\"\nmtu = 576\n",
        // The two together are refused: no path has that product.
        "rtt = \"10s\"\nrate = \"10Gbit/s\"\nwindow = \"1GiB\"\nloss = \"0.0001%\"\nbuffer = \"16GiB\"\nmtu = 9000\n",
        "rtt = \"10us\"\nrate = \"1Tbit/s\"\nwindow = \"1GiB\"\nstreams = 100\n",
    ] {
        let plan = plan(text);
        let goodput = plan.direct.goodput_bit_s;
        assert!(goodput.value.is_finite() && goodput.low <= goodput.value && goodput.value <= goodput.high, "{text}");
    }
}

#[test]
fn flags_go_before_the_file_and_name_themselves() {
    let flag = |rtt: &str, window: Option<&str>| Flags {
        rtt: Some(rtt.into()),
        window: window.map(str::to_owned),
        ..Flags::default()
    };
    let error = read(None, None, &flag("20ms", None)).unwrap_err().to_string();
    assert!(error.starts_with("the command line: rate is missing"), "{error}");
    let error = read(None, None, &flag("3 days", None)).unwrap_err().to_string();
    assert!(error.starts_with("--rtt: '3 days'"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("island.toml");
    std::fs::write(&file, format!("{ISLAND}client_window = \"128KiB\"\n")).unwrap();
    let path = read(Some(&file), None, &flag("20ms", Some("1MiB"))).unwrap();
    assert_eq!((path.rtt_s.value, path.window().0, path.name.as_str()), (0.02, 1 << 20, "island"));
}

#[test]
fn each_direction_has_its_own_values() {
    let text = "rtt = \"50ms\"\nrate = \"50Mbit/s\"\nforth = { rate = \"5Mbit/s\", loss = \"1%\" }\nback.policer = { rate = \"20Mbit/s\" }\n";
    let back = path(text);
    assert_eq!((back.rate_bit_s.value, back.loss.value), (50e6, 0.0));
    assert!(back.policer.is_some());
    let forth = path(&format!("direction = \"forth\"\n{text}"));
    assert_eq!((forth.rate_bit_s.value, forth.loss.value), (5e6, 0.01));
    assert!(forth.policer.is_none());
}

#[test]
fn a_path_without_sites_takes_those_of_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let path = place("path.toml", "rtt = \"200ms\"\nrate = \"100Mbit/s\"\n");
    let sites = place("sites.toml", "rtt = \"1ms\"\n[site.tokyo]\nclient_rtt = \"90ms\"\nserver_rtt = \"110ms\"\n");
    let read_both = read(Some(&path), Some(&sites), &Flags::default()).unwrap();
    assert_eq!(read_both.sites[0].name, "tokyo");
    // What the first file says goes before.
    assert_eq!(read_both.rtt_s.value, 0.2);
    let error = read(Some(&path), Some(&path), &Flags::default()).unwrap_err().to_string();
    assert!(error.contains("path.toml: it has no [site.NAME]"), "{error}");
}

#[test]
fn a_path_that_no_network_has_is_refused_before_it_is_computed() {
    let flags = Flags { rtt: Some("10s".into()), rate: Some("1Tbit/s".into()), ..Flags::default() };
    let error = read(None, None, &flags).unwrap_err().to_string();
    assert!(error.contains("rate × rtt = ") && error.contains("at most"), "{error}");
    let flags = Flags { rtt: Some("300ms".into()), rate: Some("400Gbit/s".into()), ..Flags::default() };
    assert!(read(None, None, &flags).is_ok());
}
