use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use proptest::prelude::*;

use super::*;

fn list(lines: &str) -> List {
    List::parse(lines, Path::new("list.txt")).unwrap()
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

#[test]
fn a_list_has_comments_empty_lines_and_line_ends_of_any_system() {
    let list =
        list("# all of them\r\n\r\n 10.0.0.0/8 # private\r\n.example.jp\n\texample.org:443\t#\n2001:db8::/32\n*:25");
    for has in ["10.1.2.3:80", "a.example.jp:1", "example.jp:1", "example.org:443", "[2001:db8::1]:80", "else.org:25"] {
        assert!(list.matches(&target(has)), "{has}");
    }
    for lacks in ["11.0.0.1:80", "aexample.jp:1", "a.example.org:443", "example.org:80", "[2001:db9::1]:80"] {
        assert!(!list.matches(&target(lacks)), "{lacks}");
    }
    assert!(!self::list("").matches(&target("example.org:80")));
}

#[test]
fn a_wrong_line_is_named() {
    for (text, line) in
        [("a.example\n\n10.0.0.1/8\n", 3), ("a b\n", 1), ("#\r\n@other.txt\r\n", 2), ("a.example#b\n", 1)]
    {
        let error = List::parse(text, Path::new("list.txt")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("list.txt:{line}: ")), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn networks_that_overlap_or_touch_are_one_set() {
    let list = list("10.0.0.0/9\n10.64.0.0/16\n10.0.0.0/16\n192.0.2.0\n192.0.2.1\n0.0.0.0/32\n255.255.255.255\n");
    for (host, is_in) in [
        ("10.127.255.255", true),
        ("10.128.0.0", false),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        ("0.0.0.0", true),
        ("0.0.0.1", false),
        ("255.255.255.255", true),
    ] {
        assert_eq!(list.matches(&target(&format!("{host}:1"))), is_in, "{host}");
    }
    let covers = |pattern: &str| list.covers(&Pattern::parse(pattern).unwrap());
    assert!(covers("10.3.0.0/16:80") && covers("10.64.0.0/10") && !covers("10.0.0.0/8"));
}

/// Patterns of few hosts, so that many match.
fn pattern() -> impl Strategy<Value = String> {
    let v4 = (0u32..8, 24u8..=32).prop_map(|(low, length)| {
        let net = ipnet::Ipv4Net::new(Ipv4Addr::from(0x0a00_0000 + low * 37), length).unwrap().trunc();
        net.to_string()
    });
    let v6 = (0u128..8, 90u8..=128).prop_map(|(low, length)| {
        let net = ipnet::Ipv6Net::new(Ipv6Addr::from((0x2001_0db8 << 96) + low * 999_983), length).unwrap().trunc();
        format!("[{net}]")
    });
    let mapped = (0u32..8).prop_map(|low| format!("[::ffff:{}]", Ipv4Addr::from(0x0a00_0000 + low * 37)));
    let name = "[ab](\\.[ab]){0,2}";
    let hosts = prop_oneof![v4, v6, mapped, name, name.prop_map(|name| format!(".{name}")), Just("*".to_owned())];
    (hosts, prop_oneof![Just(""), Just(":80"), Just(":443")]).prop_map(|(hosts, port)| {
        // Brackets are for a port.
        let bare = hosts.trim_matches(['[', ']']);
        if port.is_empty() { bare.to_owned() } else { format!("{hosts}{port}") }
    })
}

fn destination() -> impl Strategy<Value = Target> {
    let v4 = (0u32..300).prop_map(|low| Host::Ip(Ipv4Addr::from(0x0a00_0000 + low).into()));
    let v6 = (0u128..8, 0u128..3)
        .prop_map(|(low, off)| Host::Ip(Ipv6Addr::from((0x2001_0db8 << 96) + low * 999_983 + off).into()));
    let other_form = (0u32..300, prop_oneof![Just("::ffff:"), Just("64:ff9b::")])
        .prop_map(|(low, form)| Host::Ip(format!("{form}{}", Ipv4Addr::from(0x0a00_0000 + low)).parse().unwrap()));
    let name = "[ab](\\.[ab]){0,3}\\.?".prop_map(|name| Host::parse(&name).unwrap());
    (prop_oneof![v4, v6, other_form, name], prop_oneof![Just(80), Just(443), Just(1)])
        .prop_map(|(host, port)| Target { host, port })
}

proptest! {
    #[test]
    fn a_list_is_all_of_its_patterns(
        lines in proptest::collection::vec(pattern(), 0..12),
        targets in proptest::collection::vec(destination(), 1..20),
        other in pattern(),
    ) {
        let list = list(&lines.join("\n"));
        let patterns: Vec<Pattern> = lines.iter().map(|line| Pattern::parse(line).unwrap()).collect();
        for target in &targets {
            prop_assert_eq!(list.matches(target), patterns.iter().any(|one| one.matches(target)), "{} {:?}", target, lines);
            prop_assert_eq!(list.reaches(target), patterns.iter().any(|one| one.reaches(target)), "{} {:?}", target, lines);
        }
        // A list may cover by several patterns what none covers alone.
        let other = Pattern::parse(&other).unwrap();
        prop_assert!(list.covers(&other) || !patterns.iter().any(|one| one.covers(&other)), "{} {:?}", other, lines);
    }

    #[test]
    fn any_text_is_a_list_or_has_a_wrong_line(text in "(.{0,20}[\r\n#:@/.]{0,3}){0,6}") {
        if let Err(error) = List::parse(&text, Path::new("list.txt")) {
            prop_assert!((1..=text.lines().count()).contains(&error.line.unwrap()));
        }
    }
}

#[test]
#[ignore = "prints how long a long list takes"]
fn a_long_list_is_read_and_asked() {
    let line = |i: u32| match i % 4 {
        0 => format!("host{i}.example.com\n"),
        1 => format!(".domain{i}.example\n"),
        2 => format!("{}\n", Ipv4Addr::from(0x0b00_0000 + i * 7919)),
        _ => format!("2001:db8:{:x}:{:x}::/64\n", i >> 16, i & 0xffff),
    };
    for length in [100, 100_000] {
        let text: String = (0..length).map(line).collect();
        let begun = Instant::now();
        let list = list(&text);
        let read = begun.elapsed();
        println!("{length} lines: read in {read:?}");
        for host in ["www.host.sub.example.net", "host0.example.com", "11.0.61.222", "198.51.100.7", "[2001:db8:1::1]"]
        {
            let target = target(&format!("{host}:443"));
            let begun = Instant::now();
            let found =
                (0..1_000_000).filter(|_| std::hint::black_box(&list).reaches(std::hint::black_box(&target))).count();
            println!("{length} lines: {host}: {} ns, found {}", begun.elapsed().as_nanos() / 1_000_000, found > 0);
        }
    }
}
