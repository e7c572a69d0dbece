//! What `ekiden help` prints fits the terminal, and its examples can be copied from it.

use std::collections::BTreeSet;
use std::process::Command;

const WIDTHS: [usize; 3] = [60, 80, 100];

/// What `ekiden` prints on a terminal of this width.
fn help(arguments: &[&str], width: usize) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
    let output = command.args(arguments).env("COLUMNS", width.to_string()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Every call that prints a help text.
fn calls() -> Vec<Vec<String>> {
    let mut calls = vec![vec!["--help".to_owned()]];
    let mut found = 0;
    while let Some(call) = calls.get(found).cloned() {
        found += 1;
        let arguments: Vec<&str> = call.iter().map(String::as_str).collect();
        let text = help(&arguments, 100);
        let Some((_, commands)) = text.split_once("Commands:\n") else { continue };
        let lines = commands.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
        let names = lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        let before = &call[..call.len() - 1];
        calls.extend(names.map(|name| [before, &[name.into(), "--help".into()]].concat()));
    }
    assert!(found > 20, "found only {found}");
    calls
}

/// The lines of the examples: indented, below a line that says what they are.
fn examples(text: &str) -> Vec<&str> {
    let mut below = text.lines().skip_while(|line| !line.starts_with("Example"));
    assert!(below.next().is_none_or(|line| line.ends_with(':')), "{text}");
    below.take_while(|line| line.is_empty() || line.starts_with("    ")).collect()
}

#[test]
fn examples_keep_their_lines_on_every_terminal() {
    let mut seen = 0;
    for call in calls() {
        let arguments: Vec<&str> = call.iter().map(String::as_str).collect();
        let whole = help(&arguments, 1000);
        for width in WIDTHS {
            let text = help(&arguments, width);
            assert_eq!(examples(&text), examples(&whole), "{call:?} at {width} columns");
            let too_long = examples(&text).into_iter().find(|line| line.chars().count() > width);
            assert_eq!(too_long, None, "{call:?} at {width} columns");
        }
        seen += usize::from(!examples(&whole).is_empty());
    }
    assert_eq!(
        seen, 14,
        "gateway, keygen, measure client, path, server and watch, overlay, password, peer, plan, proxy, reproduce, status and tunnel have examples"
    );
}

#[test]
fn prose_is_wrapped_once_and_fits() {
    for call in calls() {
        let arguments: Vec<&str> = call.iter().map(String::as_str).collect();
        for width in WIDTHS {
            let text = help(&arguments, width);
            // What comes before the usage is paragraphs.
            let (prose, _) = text.split_once("\nUsage: ").unwrap();
            let lines: Vec<&str> = prose.lines().collect();
            for pair in lines.windows(2) {
                assert!(pair[0].chars().count() <= width, "{call:?} at {width} columns: {}", pair[0]);
                let Some(next) = pair[1].split_whitespace().next().filter(|_| !pair[0].is_empty()) else { continue };
                let filled = pair[0].chars().count() + 1 + next.chars().count();
                assert!(filled > width, "{call:?} at {width} columns: '{next}' has room behind: {}", pair[0]);
            }
        }
    }
}

#[test]
fn the_keys_of_a_configuration_fit_the_terminal_and_keep_their_indent() {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let whole = help(&["proxy", "--keys"], 1000);
    for width in WIDTHS {
        let text = help(&["proxy", "--keys"], width);
        let too_long = text.lines().find(|line| line.chars().count() > width);
        assert_eq!(too_long, None, "at {width} columns");
        assert_eq!(words(&text), words(&whole), "at {width} columns");
        let indents: BTreeSet<usize> = text.lines().map(|line| line.len() - line.trim_start().len()).collect();
        assert_eq!(indents, BTreeSet::from([0, 2, 6]), "at {width} columns");
        assert!(text.lines().any(|line| line == "  name = a word; default ekiden"), "{text}");
    }
}

#[test]
fn the_example_of_a_configuration_is_one() {
    let text = help(&["help", "proxy"], 60);
    let lines = examples(&text).into_iter().map(|line| line.trim_start().to_owned() + "\n");
    let fingerprint = format!("sha256:{}", "1".repeat(64));
    let example = lines.collect::<String>().replace("sha256:...", &fingerprint);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("island.toml"), example).unwrap();
    for arguments in [&["keygen", "node.key"][..], &["proxy", "--check", "-c", "island.toml"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        let output = command.current_dir(folder.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for call in [&["--help"][..], &["help", "proxy"], &["--version"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_ekiden")).args(call).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{call:?}");
        assert_eq!(said, "ekiden: standard output: No space left on device (os error 28)\n");
    }
}
