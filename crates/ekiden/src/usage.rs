//! Command lines that are wrong in a way that their definition cannot tell, and values that several commands read.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};

/// Ends the program for wrong usage that the command line's definition cannot tell.
pub fn misused(reason: &str) -> ! {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{reason}\n")).exit()
}

/// What the values of options that take a number or a quantity are called.
const QUANTITIES: [&str; 10] =
    ["TIME", "BYTES", "N", "RATE", "NUMBER", "PART", "J", "SEED", "PID", "LATITUDE,LONGITUDE"];

/// The command line where such options of all commands take negative values too: then whoever gives one is told the range, and
/// not that there is no option `-1`.
pub fn with_negative_quantities(command: Command) -> Command {
    let is_quantity = |option: &Arg| {
        let names = option.get_value_names().unwrap_or_default();
        !option.is_positional() && names.iter().any(|name| QUANTITIES.contains(&name.as_str()))
    };
    let command = command.mut_args(|option| {
        let takes = option.is_allow_hyphen_values_set() || is_quantity(&option);
        option.allow_hyphen_values(takes)
    });
    command.mut_subcommands(with_negative_quantities)
}

/// The command line, program first, as records keep it: what is not UTF-8 in it is replaced.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
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

    use super::*;

    #[test]
    fn a_negative_number_is_a_value_out_of_range_and_no_option() {
        for line in [
            "overlay join FILE -c n.toml --address h:1 --price -1",
            "measure watch --samples -1",
            "congestion trace --duration -1s",
            "measure monitor show h.db --since -1h",
            "doctor --rtt -1ms",
            "simulate s.toml --jobs -1",
            "plan --duration -1s",
        ] {
            let command = with_negative_quantities(crate::Cli::command());
            let said = command.try_get_matches_from(["ekiden"].into_iter().chain(line.split(' '))).unwrap_err();
            assert_eq!(said.kind(), ErrorKind::ValueValidation, "{line}: {said}");
            assert!(!said.to_string().contains("digit"), "{line}: {said}");
        }
    }
}
