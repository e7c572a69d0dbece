//! Command lines that are wrong in a way that their definition cannot tell, and values that several commands read.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// Ends the program for wrong usage that the command line's definition cannot tell.
pub fn misused(reason: &str) -> ! {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{reason}\n")).exit()
}

/// What the values of options that take a number or a quantity are called.
const QUANTITIES: [&str; 10] =
    ["TIME", "BYTES", "N", "RATE", "NUMBER", "PART", "J", "SEED", "PID", "LATITUDE,LONGITUDE"];

fn is_quantity(option: &Arg) -> bool {
    let names = option.get_value_names().unwrap_or_default();
    !option.is_positional() && names.iter().any(|name| QUANTITIES.contains(&name.as_str()))
}

/// The command line where such options of all commands take negative values too: then the error for a negative value names
/// the range, and does not say that there is no option `-1`.
pub fn with_negative_quantities(command: Command) -> Command {
    let command = command.mut_args(|option| {
        let takes = option.is_allow_hyphen_values_set() || is_quantity(&option);
        option.allow_hyphen_values(takes)
    });
    command.mut_subcommands(with_negative_quantities)
}

/// The first words that people try, and what does it.
const MEANT: [(&str, &str); 6] = [
    (
        "reload",
        "a program reads its file again at SIGHUP: `kill -HUP PID` or `systemctl reload`; `ekiden status` shows PID",
    ),
    (
        "restart",
        "docs/guide/operations.md#upgrade replaces a node without losing a stream; `systemctl restart` any other program",
    ),
    ("stop", "a program ends at SIGTERM: `kill PID` or `systemctl stop`; `ekiden status` shows PID"),
    ("start", "`ekiden proxy -c FILE` runs a node"),
    ("upgrade", "docs/guide/operations.md#upgrade replaces a node without losing a stream"),
    ("check", "`ekiden proxy --check -c FILE` checks a node's file, `ekiden doctor` the host"),
];

/// The error with what was meant, where that is known better than from how the word is written. `program` has all commands.
pub fn hinted(mut error: clap::Error, program: &Command) -> clap::Error {
    let mut used = program;
    for word in std::env::args_os().skip(1) {
        let Some(command) = used.find_subcommand(&word) else { break };
        used = command;
    }
    let takes_config = used.get_arguments().any(|option| option.get_short() == Some('c'));
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    };
    let command = word(ContextKind::InvalidSubcommand).filter(|_| std::ptr::eq(used, program));
    let meant = MEANT.iter().find(|(tried, _)| command.as_deref() == Some(tried)).map(|(_, meant)| (*meant).to_owned());
    let is_file = |word: &String| takes_config && word.ends_with(".toml") && !word.starts_with('-');
    let file = word(ContextKind::InvalidArg).filter(is_file);
    if let Some(hint) = meant.or_else(|| file.map(|file| format!("a file is given as `-c {file}`"))) {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

/// The command line, program first, as records keep it: what is not UTF-8 in it is replaced.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// When it began, as records keep it: now, in milliseconds since 1970.
pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Reads a whole number from `least` to `most`. Whatever else is written is told the range. It is unsigned: clap looks for the type of the
/// option's field at run time, and two bare numbers would be an `i32`.
pub fn whole_number<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy + Into<u64>,
{
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("{text} is not a whole number from {least} to {most}"))
    }
}

/// Reads where a picture goes: any name of a file, UTF-8 or not.
pub fn svg() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|name| {
        let file = PathBuf::from(name);
        match file.extension() {
            Some(extension) if !extension.eq_ignore_ascii_case("svg") => {
                Err("pictures are SVG only: name a file that ends in .svg")
            }
            _ => Ok(file),
        }
    })
}

/// Ends the program if two of these files are one: the second would replace the first.
pub fn distinct(files: &[(&str, Option<&Path>)]) {
    // What goes into a stream replaces nothing.
    let place = |file: &Path| (!ekiden_files::is_stream(file)).then(|| whole(file));
    let there: Vec<_> = files.iter().filter_map(|(what, file)| Some((what, place((*file)?)?))).collect();
    for (number, (what, file)) in there.iter().enumerate() {
        if let Some((other, _)) = there[..number].iter().find(|(_, before)| before == file) {
            misused(&format!("{other} and {what} are the same file, {}", file.display()));
        }
    }
}

/// Where a file is, also one that is not there yet.
fn whole(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(file), fs::canonicalize(parent), file.file_name()) {
        (Ok(whole), ..) => whole,
        (_, Ok(parent), Some(name)) => parent.join(name),
        _ => file.into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::builder::ValueParser;

    use super::*;

    /// Those of [`QUANTITIES`] that are whole numbers.
    const WHOLE: [&str; 4] = ["N", "J", "SEED", "PID"];

    /// The options of all commands that take a number or a quantity, each with the words that lead to it. What clap takes as text, as
    /// `ekiden plan` does beside its file, is read later.
    fn quantities(command: &Command, words: &[String]) -> Vec<(Vec<String>, String)> {
        let text = ValueParser::string().type_id();
        let read = command.get_arguments().filter(|option| option.get_value_parser().type_id() != text);
        let own = read.filter(|option| is_quantity(option)).filter_map(|option| {
            let name = format!("--{}", option.get_long()?);
            Some(([words, &[name]].concat(), option.get_value_names()?.first()?.to_string()))
        });
        let below = command.get_subcommands().flat_map(|command| {
            let words = [words, &[command.get_name().to_owned()]].concat();
            quantities(command, &words)
        });
        own.chain(below).collect()
    }

    fn said(words: &[String], value: &str) -> clap::Error {
        let line = words.iter().map(String::as_str).chain([value]);
        with_negative_quantities(crate::Cli::command()).try_get_matches_from(line).unwrap_err()
    }

    #[test]
    fn a_negative_number_is_a_value_out_of_range_and_no_option() {
        let all = quantities(&crate::Cli::command(), &["ekiden".into()]);
        assert!(all.len() > 40, "{all:?}");
        for (words, _) in all {
            let error = said(&words, "-1");
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{words:?}: {error}");
            assert!(!error.to_string().contains("digit"), "{words:?}: {error}");
        }
    }

    #[test]
    fn whole_numbers_are_told_their_range() {
        for (words, kind) in quantities(&crate::Cli::command(), &["ekiden".into()]) {
            if !WHOLE.contains(&kind.as_str()) {
                continue;
            }
            for value in ["-1", "1.5", "many", "99999999999999999999"] {
                let said = said(&words, value).to_string();
                assert!(said.contains(&format!("{value} is not a whole number from ")), "{words:?}: {said}");
            }
        }
    }

    #[test]
    fn the_ends_of_a_range_are_in_it() {
        let read = whole_number(1_u32, 128);
        assert_eq!([read("1"), read("128")], [Ok(1), Ok(128)]);
        assert!(read("0").is_err() && read("129").is_err());
    }
}
