//! Many who look up the same names, and some who leave.

use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than a look-up may take while others wait.
const LONG: Duration = Duration::from_millis(1300);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// What this client finds.
fn asking(
    (names, spare): (&Resolver, &Spare),
    client: u8,
    host: &str,
) -> impl Future<Output = Result<Vec<IpAddr>, Unknown>> + use<> {
    let (names, spare, host) = (Resolver(names.0.clone()), spare.clone(), host.to_owned());
    async move {
        let asker = Asker { node: None, client: Some([192, 0, 2, client].into()) };
        let found = Mutex::new(Vec::new());
        names.find(&host, &spare.look_up(asker), |_| true, |ip| found.lock().unwrap().push(ip)).await?;
        Ok(found.into_inner().unwrap())
    }
}

/// The same, again and again until something is found.
async fn insisting(with: (Resolver, Spare), client: u8, host: String) -> Vec<IpAddr> {
    loop {
        match asking((&with.0, &with.1), client, &host).await {
            Ok(found) => return found,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

#[test]
fn all_who_ask_for_a_name_wait_for_one_look_up() {
    let gate = Arc::new(Mutex::new(()));
    let server = Server::new(&[("slow.example", Says::Held(gate.clone(), vec![V4]))]);
    let names = server.names_within(PATIENCE, &[], "");
    // One turn.
    let spare = Spare::new(2);
    let held = gate.lock().unwrap();
    thread::scope(|scope| {
        let all = [(); 8].map(|()| scope.spawn(|| find_with(&spare, &names, "slow.example")));
        thread::sleep(LONG);
        drop(held);
        for found in all {
            assert_eq!(found.join().unwrap(), Ok(vec![V4]));
        }
    });
    assert_eq!(server.asked(), both("slow.example"));
}

#[test]
fn a_look_up_goes_on_without_whoever_began_it() {
    let gate = Arc::new(Mutex::new(()));
    let server = Server::new(&[("slow.example", Says::Held(gate.clone(), vec![V4]))]);
    let names = server.names_within(PATIENCE, &[], "");
    let held = gate.lock().unwrap();
    runtime().block_on(async {
        let left = tokio::spawn(asking((&names, &Spare::new(2)), 1, "slow.example"));
        while server.asked().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        left.abort();
        assert!(left.await.unwrap_err().is_cancelled());
        drop(held);
        // It never has a turn of its own.
        let found = timeout(PATIENCE, asking((&names, &Spare::new(0)), 2, "slow.example"));
        assert_eq!(found.await.expect("the answer of the look-up that was begun"), Ok(vec![V4]));
    });
}

#[test]
fn a_name_that_another_wants_too_does_not_wait_for_the_others_turn() {
    let gate = Arc::new(Mutex::new(()));
    let of_one = ["n0", "n1", "n2", "n3", "n4", "n5", "shared"].map(|name| format!("{name}.example"));
    let says = of_one.each_ref().map(|name| (name.as_str(), Says::Held(gate.clone(), vec![V4])));
    let server = Server::new(&says);
    let names = server.names_within(PATIENCE, &[], "");
    let spare = Spare::new(2);
    let held = gate.lock().unwrap();
    runtime().block_on(async {
        let mut all: Vec<_> = of_one.iter().map(|name| tokio::spawn(asking((&names, &spare), 1, name))).collect();
        all.push(tokio::spawn(asking((&names, &spare), 2, "shared.example")));
        // All have begun to wait.
        sleep(Duration::from_millis(10)).await;
        drop(held);
        for found in all {
            assert_eq!(found.await.unwrap(), Ok(vec![V4]));
        }
    });
    let mut order: Vec<_> = server.asked.try_iter().map(|(name, _)| name).collect();
    order.dedup();
    let order: Vec<_> = order.iter().filter_map(|name| name.strip_suffix(".example.")).collect();
    assert_eq!(order, ["n0", "n1", "n2", "shared", "n3", "n4", "n5"]);
}

#[test]
fn whoever_has_most_does_not_make_the_look_ups_of_others_fail() {
    let gate = Arc::new(Mutex::new(()));
    let of_one = ["n0", "n1", "n2", "n3"].map(|name| format!("{name}.example"));
    let mut says: Vec<_> = of_one.iter().map(|name| (name.as_str(), Says::Nothing)).collect();
    says.push(("shared.example", Says::Held(gate.clone(), vec![V4])));
    let server = Server::new(&says);
    let names = server.names_within(10 * PATIENCE, &[], "");
    // Four turns, of which two are exempt: one of each client.
    let spare = Spare::new(8);
    let held = gate.lock().unwrap();
    runtime().block_on(async {
        let ask = |client, name: &str| tokio::spawn(asking((&names, &spare), client, name));
        let is_asked = async |host: &str| {
            while server.asked.try_iter().all(|(name, _)| name.trim_end_matches('.') != host) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        ask(1, &of_one[0]);
        is_asked(&of_one[0]).await;
        let of_most = ask(1, "shared.example");
        is_asked("shared.example").await;
        let of_other = ask(2, "shared.example");
        of_one[1..].iter().for_each(|name| drop(ask(1, name)));
        let of_most = timeout(PATIENCE, of_most).await.expect("it is given up");
        assert_eq!(of_most.unwrap(), Err(Unknown::Crowded));
        drop(held);
        let of_other = timeout(PATIENCE, of_other).await.expect("it is begun anew");
        assert_eq!(of_other.unwrap(), Ok(vec![V4]));
    });
}

#[test]
fn a_look_up_that_nobody_waits_for_gives_way() {
    let found = Says::Addresses(600, vec![V4]);
    let server = Server::new(&[("a.example", Says::Nothing), ("b.example", Says::Nothing), ("known.example", found)]);
    let names = server.names_within(10 * PATIENCE, &[], "");
    // Two turns, of which one is exempt.
    let spare = Spare::new(4);
    let _others = [spare.one().unwrap(), spare.one().unwrap()];
    let leaves = async |host: &str| {
        let left = tokio::spawn(asking((&names, &spare), 1, host));
        while server.asked.try_iter().all(|(name, _)| name.trim_end_matches('.') != host) {
            sleep(Duration::from_millis(10)).await;
        }
        left.abort();
        assert!(left.await.unwrap_err().is_cancelled());
    };
    runtime().block_on(async {
        leaves("a.example").await;
        let one = async {
            while spare.one().is_none() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, one).await.expect("a descriptor for a connection");
        leaves("b.example").await;
        let found = timeout(PATIENCE, asking((&names, &spare), 2, "known.example"));
        assert_eq!(found.await.expect("descriptors for a look-up"), Ok(vec![V4]));
    });
}

/// Asks for so many names from as many clients, until each is found.
fn insist(names: &Resolver, spare: &Spare, hosts: &[String]) {
    runtime().block_on(async {
        let all: Vec<_> = (0u8..)
            .zip(hosts)
            .map(|(client, host)| {
                let with = (Resolver(names.0.clone()), spare.clone());
                tokio::spawn(insisting(with, client, host.clone()))
            })
            .collect();
        for (host, found) in hosts.iter().zip(all) {
            let found = timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{host} is never found"));
            assert_eq!(found.unwrap(), [V4], "{host}");
        }
    });
}

#[test]
fn names_that_take_long_are_found_although_more_are_wanted_than_there_are_turns() {
    let hosts = [0, 1, 2, 3].map(|i| format!("n{i}.example"));
    let says = hosts.each_ref().map(|name| (name.as_str(), Says::Late(LONG, vec![V4])));
    let server = Server::new(&says);
    let names = server.names_within(PATIENCE, &[], "");
    insist(&names, &Spare::new(4), &hosts);
}

#[test]
fn a_dead_server_is_noticed_although_more_names_are_wanted_than_there_are_turns() {
    let hosts = [0, 1, 2, 3, 4, 5].map(|i| format!("n{i}.example"));
    let dead = Server::new(&hosts.each_ref().map(|name| (name.as_str(), Says::Nothing)));
    let alive = Server::new(&hosts.each_ref().map(|name| (name.as_str(), Says::Addresses(600, vec![V4]))));
    let names = Server::names_of_all(&[&dead, &alive], LONG, "search .", "");
    insist(&names, &Spare::new(8), &hosts);
}

/// Its first server answers late, the second one at once and otherwise.
fn late_and_other(names: &[(&str, Says)]) -> (Server, Server) {
    let mut said = names.to_vec();
    said.push(("inside.example", Says::Late(LONG, vec![V4])));
    (Server::new(&said), Server::new(&[("inside.example", Says::Addresses(600, vec![OTHER]))]))
}

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8));

#[test]
fn whoever_leaves_does_not_decide_which_server_counts() {
    let (first, second) = late_and_other(&[("silent.example", Says::Nothing)]);
    let names = Server::names_of_all(&[&first, &second], PATIENCE, "options no-aaaa attempts:1\nsearch .", "");
    let spare = Spare::new(4);
    runtime().block_on(async {
        let left = timeout(LONG / 2, asking((&names, &spare), 1, "silent.example"));
        assert!(left.await.is_err());
        assert_eq!(asking((&names, &spare), 2, "inside.example").await, Ok(vec![V4]));
    });
}

#[test]
fn a_name_that_nobody_answers_for_does_not_make_a_server_silent_that_answers_meanwhile() {
    let (first, second) =
        late_and_other(&[("silent.example", Says::Nothing), ("known.example", Says::Addresses(600, vec![V4]))]);
    let limit = Duration::from_secs(4);
    let names = Server::names_of_all(&[&first, &second], limit, "options no-aaaa attempts:1\nsearch .", "");
    let spare = Spare::new(4);
    runtime().block_on(async {
        let silent = tokio::spawn(asking((&names, &spare), 1, "silent.example"));
        while first.asked().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(asking((&names, &spare), 2, "known.example").await, Ok(vec![V4]));
        // By the second server, after the whole time of the first.
        assert_eq!(silent.await.unwrap(), Err(Unknown::NoSuchName));
        assert_eq!(asking((&names, &spare), 2, "inside.example").await, Ok(vec![V4]));
    });
}
