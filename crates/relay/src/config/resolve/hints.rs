//! What other programs call by other names, or have in other places.

/// How refusals begin, where `*` is the name of a table, the guess that does not fit them, and what is said in its place.
const HINTS: [(&str, &str, &str); 9] = [
    ("listen.*.kind: unknown variant `socks4", "did you mean `socks5`?", "`mixed` takes SOCKS4 and 4a"),
    (
        "listen.*.kind: unknown variant `https`",
        "did you mean `http`?",
        "an HTTPS proxy is an `http` listener with a table `tls`",
    ),
    (
        "listen.*.tls: invalid type: ",
        "",
        "such as { certificate_file = \"FILE\", key_file = \"FILE\" }, or {} for a certificate of the node's own",
    ),
    ("unknown field `deny` in exit,", "", "what is refused is a [[route]] with action = \"refuse\""),
    ("route.action: unknown variant `allow`", "", "did you mean `direct`?"),
    ("route.action: unknown variant `block`", "", "did you mean `refuse`?"),
    ("route.action: unknown variant `deny`", "", "did you mean `refuse`?"),
    ("route.action: unknown variant `drop`", "", "did you mean `refuse`?"),
    ("route.action: unknown variant `reject`", "", "did you mean `refuse`?"),
];

/// What a node in etcd does not say of itself, and the operator's flag for it.
const OPERATORS: [(&str, &str); 5] =
    [("near", "--near"), ("region", "--region"), ("at", "--at"), ("price", "--price"), ("relays", "--no-relay")];

/// What was `said` of an error in a node's file, with a hint where there is one.
pub(super) fn hinted(said: String) -> String {
    let begins = |start: &str| match start.split_once('*') {
        // Someone has chosen the name, which may have dots.
        Some((table, key)) => {
            said.strip_prefix(table).and_then(|named| named.split_once(key)).is_some_and(|(name, _)| !name.is_empty())
        }
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
