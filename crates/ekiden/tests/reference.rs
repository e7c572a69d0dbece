//! The tables of keys in the documentation.

use std::path::Path;

/// Between marks, the tables of keys are what the programs say. `EKIDEN_GOLDENS=write` writes them.
#[test]
fn the_documentation_has_every_key_as_the_programs_read_it() {
    let pages = [
        ("docs/guide/reference.md", ekiden_relay::sections()),
        ("docs/guide/overlay.md", ekiden_relay::member_sections()),
        ("docs/guide/tunnel.md", ekiden_tunnel::sections()),
        ("docs/guide/gateway.md", ekiden_gateway::sections()),
        ("docs/guide/monitor.md", ekiden_monitor::sections()),
    ];
    for (page, sections) in pages {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let before = std::fs::read_to_string(&file).unwrap();
        let mut text = before.clone();
        // The parameters of congestion controls are the same for all programs: the reference has them.
        let is_told = |name: &str| page.ends_with("reference.md") || !name.starts_with("[congestion.");
        for section in sections.iter().filter(|section| is_told(&section.name)) {
            let (start, end) = (format!("<!-- keys: {} -->\n", section.name), "<!-- end of keys -->");
            let (head, rest) = text.split_once(&start).unwrap_or_else(|| panic!("{page} has no {start}"));
            let (_, tail) = rest.split_once(end).unwrap();
            let mut table = String::from("| key | values | default | meaning |\n|---|---|---|---|\n");
            for key in &section.keys {
                let default = match key.default.as_str() {
                    "" if key.is_required => "required",
                    "" => "–",
                    default => default,
                };
                table += &format!("| `{}` | {} | {default} | {} |\n", key.name, key.values, key.meaning);
            }
            text = format!("{head}{start}{table}{end}{tail}");
        }
        if std::env::var("EKIDEN_GOLDENS").is_ok_and(|value| value == "write") {
            std::fs::write(&file, &text).unwrap();
        } else {
            assert!(text == before, "{page} is not what the program's --keys say: EKIDEN_GOLDENS=write");
        }
    }
}
