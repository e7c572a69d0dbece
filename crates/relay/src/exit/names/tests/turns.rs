//! Several name servers: their order, and silent ones among them.

use super::*;

#[test]
fn a_server_alone_has_its_time_also_if_it_was_silent() {
    let names = [("silent.example", Says::Nothing), ("late.example", Says::Late(Duration::from_millis(600), vec![V4]))];
    let server = Server::new(&names);
    let names = server.names_within(Duration::from_secs(2), &[], "");
    assert_eq!(find(&names, "silent.example"), Err(Unknown::Timeout));
    assert_eq!(find(&names, "late.example"), Ok(vec![V4]));
}

const LIMIT: Duration = Duration::from_secs(1);

/// As in resolv.conf(5): the servers are asked in their order, and the first answer counts, also if it is that there is no such name.
#[test]
fn the_next_server_is_asked_only_if_one_does_not_answer() {
    let found = |ip| Says::Addresses(600, vec![ip]);
    let inside = Server::new(&[
        ("inside.example", found(V4)),
        ("bare.example", Says::Addresses(600, vec![])),
        ("silent.example", Says::Nothing),
        ("fails.example", Says::Fails(ResponseCode::ServFail)),
        ("refused.example", Says::Fails(ResponseCode::Refused)),
        ("both-fail.example", Says::Fails(ResponseCode::ServFail)),
    ]);
    let names = ["outside.example", "bare.example", "silent.example", "fails.example", "refused.example"];
    let mut said: Vec<_> = names.into_iter().map(|name| (name, found(V6))).collect();
    said.push(("both-fail.example", Says::Nothing));
    let outside = Server::new(&said);
    let resolver = || Server::names_of_all(&[&inside, &outside], LIMIT, "search .", "");
    for (name, end, is_next_asked) in [
        // The second server knows nothing of it, and would say so at once.
        ("inside.example", Ok(vec![V4]), false),
        ("outside.example", Err(Unknown::NoSuchName), false),
        ("bare.example", Err(Unknown::NoAddress), false),
        ("silent.example", Ok(vec![V6]), true),
        ("fails.example", Ok(vec![V6]), true),
        ("refused.example", Ok(vec![V6]), true),
        ("both-fail.example", Err(Unknown::ServerFailed), true),
    ] {
        assert_eq!(find(&resolver(), name), end, "{name}");
        assert_eq!(inside.asked(), both(name), "{name}");
        assert_eq!(outside.asked(), if is_next_asked { both(name) } else { vec![] }, "{name}");
    }
}

#[test]
fn a_third_server_is_asked_and_a_silent_one_holds_up_one_name_alone() {
    let silent = || Server::new(&[("a.example", Says::Nothing), ("b.example", Says::Nothing)]);
    let (first, second) = (silent(), silent());
    let found = || Says::Addresses(600, vec![V4, V6]);
    let third = Server::new(&[("a.example", found()), ("b.example", found())]);
    let names = Server::names_of_all(&[&first, &second, &third], LIMIT, "options attempts:1\nsearch .", "");
    assert_eq!(find(&names, "a.example"), Ok(vec![V4, V6]));
    assert_eq!(
        [first.asked(), second.asked(), third.asked()],
        [both("a.example"), both("a.example"), both("a.example")]
    );
    // They keep their turns, and are asked beside each other.
    let begun = Instant::now();
    assert_eq!(find(&names, "b.example"), Ok(vec![V4, V6]));
    assert!(begun.elapsed() < 2 * LIMIT, "{:?}", begun.elapsed());
    assert_eq!(
        [first.asked(), second.asked(), third.asked()],
        [both("b.example"), both("b.example"), both("b.example")]
    );
    // What is known is not asked for again where it is known.
    assert_eq!(find(&names, "a.example"), Ok(vec![V4, V6]));
    assert_eq!(third.asked(), []);
}

#[test]
fn servers_take_turns_if_resolv_conf_says_so() {
    let said = [("a.example", Says::Addresses(0, vec![V4]))];
    let (first, second) = (Server::new(&said), Server::new(&said));
    let names = Server::names_of_all(&[&first, &second], LIMIT, "options rotate\nsearch .", "");
    for _ in 0..4 {
        assert_eq!(find(&names, "a.example"), Ok(vec![V4]));
    }
    assert!(!first.asked().is_empty() && !second.asked().is_empty());
}

/// As glibc, which gives each server its whole timeout for each name.
#[test]
fn what_a_later_server_does_not_know_counts_only_if_the_silent_one_before_it_has_had_its_time() {
    let limit = Duration::from_secs(2);
    let mut said: Vec<_> = ["silent.example", "nowhere.example", "found.example", "refused.example"]
        .into_iter()
        .map(|name| (name, Says::Nothing))
        .collect();
    said.push(("late.example", Says::Late(Duration::from_millis(600), vec![V4])));
    let first = Server::new(&said);
    let second = Server::new(&[
        ("found.example", Says::Addresses(600, vec![V4])),
        ("refused.example", Says::Fails(ResponseCode::Refused)),
    ]);
    let names = Server::names_of_all(&[&first, &second], limit, "options no-aaaa attempts:1\nsearch .", "");
    let refused = NetError::from(DnsError::ResponseCode(ResponseCode::Refused));
    for (name, end, is_whole) in [
        ("silent.example", Err(Unknown::NoSuchName), true),
        ("found.example", Ok(vec![V4]), false),
        ("nowhere.example", Err(Unknown::NoSuchName), true),
        ("refused.example", Err(Unknown::because(&refused)), true),
        ("late.example", Ok(vec![V4]), false),
    ] {
        let begun = Instant::now();
        assert_eq!(find(&names, name), end, "{name}");
        assert_eq!(begun.elapsed() >= limit, is_whole, "{name} {:?}", begun.elapsed());
        assert_eq!(second.asked(), [(format!("{name}."), RecordType::A)], "{name}");
    }
}

/// Each server gets the query again meanwhile.
#[test]
fn a_look_up_has_one_descriptor_for_each_family_and_server() {
    let silent = || Server::new(&[("a.example", Says::Nothing), ("b.example", Says::Nothing)]);
    let servers = [silent(), silent(), silent()];
    let ports = servers.each_ref().map(|server| server.address.port());
    let names = Server::names_of_all(&servers.each_ref(), 2 * LIMIT, "options attempts:1\nsearch .", "");
    let spare = Spare::new(6);
    // From now on they are asked beside each other.
    assert_eq!(find(&names, "a.example"), Err(Unknown::Timeout));
    await_closed(&ports);
    let most = std::thread::scope(|scope| {
        let looking = scope.spawn(|| find_with(&spare, &names, "b.example"));
        let mut most = 0;
        while !looking.is_finished() {
            most = most.max(sockets_to(&ports));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(looking.join().unwrap(), Err(Unknown::Timeout));
        most
    });
    assert_eq!(most, 6);
    await_closed(&ports);
    let again = servers.iter().flat_map(|server| server.asked.try_iter()).count();
    assert_eq!(again, 2 * 2 * 3 * 3, "every one of two names, two families and three servers is asked three times");
}
