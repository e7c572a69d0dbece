//! What other programs call by other names, or have in other places.

/// How refusals begin behind the name of their table, the guess that does not fit them, and what is said in its place.
const HINTS: [(&str, &str, &str); 9] = [
    (".kind: unknown variant `socks4", "did you mean `socks5`?", "`mixed` takes SOCKS4 and 4a"),
    (
        ".kind: unknown variant `https`",
        "did you mean `http`?",
        "an HTTPS proxy is an `http` listener with a table `tls`",
    ),
    (
        ".tls: invalid type: ",
        "",
        "such as { certificate_file = \"FILE\", key_file = \"FILE\" }, or {} for a certificate of the node's own",
    ),
    ("unknown field `deny` in exit,", "", "what is refused is a [[route]] with action = \"refuse\""),
    (".action: unknown variant `allow`", "", "did you mean `direct`?"),
    (".action: unknown variant `block`", "", "did you mean `refuse`?"),
    (".action: unknown variant `deny`", "", "did you mean `refuse`?"),
    (".action: unknown variant `drop`", "", "did you mean `refuse`?"),
    (".action: unknown variant `reject`", "", "did you mean `refuse`?"),
];

/// What a node in etcd does not say of itself, and the operator's flag for it.
const OPERATORS: [(&str, &str); 5] =
    [("near", "--near"), ("region", "--region"), ("at", "--at"), ("price", "--price"), ("relays", "--no-relay")];

/// What was `said` of an error in a node's file, with a hint where there is one.
pub(super) fn hinted(_: &toml::de::Error, said: String) -> String {
    // Behind the name of its table, which someone has chosen.
    let begins = |start: &str| match start.strip_prefix('.') {
        Some(key) => said.split_once(key).is_some_and(|(table, _)| table.ends_with('.') && !table.contains(": ")),
        None => said.starts_with(start),
    };
    if let Some((_, guess, hint)) = HINTS.iter().find(|(start, ..)| begins(start)) {
        let said = said.strip_suffix(guess).and_then(|said| said.strip_suffix("; ")).unwrap_or(&said);
        return format!("{said}; {hint}");
    }
    let of_operators = |(key, _): &&(&str, &str)| said.starts_with(&format!("unknown field `{key}` in overlay.etcd,"));
    match OPERATORS.iter().find(of_operators) {
        Some((_, flag)) => format!("{said}; the operator says that of a node: `ekiden overlay admit {flag}`"),
        None => said,
    }
}
