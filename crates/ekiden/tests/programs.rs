//! What is the same of every program that stays: its configuration is checked and shown, a reload with a wrong file changes nothing, its
//! status is asked, and SIGTERM ends it.

use libtest_mimic::Trial;

const SCRIPT: &str = include_str!("programs/programs.sh");

/// Each program: its command, its configuration, and what `ekiden status --json` lists it among.
const PROGRAMS: &[(&str, &[(&str, &str)])] = &[
    (
        "proxy",
        &[
            ("COMMAND", "proxy"),
            ("FILE", "[listen.socks]\nkind = \"socks5\"\naddress = \"127.0.0.1:1080\"\n"),
            ("CHANGE", "[limits]\nidle = \"1h\"\n"),
            ("AMONG", "nodes"),
        ],
    ),
    (
        "tunnel",
        &[
            ("COMMAND", "tunnel"),
            (
                "FILE",
                "key_file = \"node.key\"\n[device]\nname = \"tun7\"\naddresses = [\"10.77.0.1/24\"]\n[listen]\naddress = \"127.0.0.1:7100\"\n[peer.island]\nfingerprint = \"$PRINT\"\nallowed = [\"10.77.0.2/32\"]\n",
            ),
            ("CHANGE", "connections = 2\n"),
            ("AMONG", "tunnels"),
        ],
    ),
    (
        "gateway",
        &[
            ("COMMAND", "gateway"),
            ("FILE", "device = \"wan0\"\n[group.all]\nsources = [\"10.1.0.0/16\"]\n"),
            ("CHANGE", "hold = \"2s\"\n"),
            ("AMONG", "gateways"),
        ],
    ),
    (
        "monitor",
        &[
            ("COMMAND", "measure monitor run"),
            (
                "FILE",
                "interval = \"1h\"\noffset = \"30min\"\nhistory = \"h.sqlite\"\n[target.one]\niperf3 = \"127.0.0.1:5201\"\n",
            ),
            ("CHANGE", "streams = 2\n"),
            ("AMONG", "monitors"),
        ],
    ),
    (
        "measuring server",
        &[
            ("COMMAND", "measure server"),
            (
                "FILE",
                "key_file = \"node.key\"\n[listen.leg]\nkind = \"leg\"\naddress = \"127.0.0.1:7000\"\nnodes = { island = \"$PRINT\" }\n",
            ),
            ("CHANGE", "[limits]\nidle = \"1h\"\n"),
            ("AMONG", "measuring_servers"),
        ],
    ),
];

pub fn trials() -> Vec<Trial> {
    let root = crate::is_root();
    let trial = |&(name, variables): &(&str, &'static [(&'static str, &'static str)])| {
        let run = move || crate::script::run(SCRIPT, variables.iter().copied());
        Trial::test(format!("a {name} reloads, is asked and ends as the others"), run).with_ignored_flag(!root)
    };
    PROGRAMS.iter().map(trial).collect()
}
