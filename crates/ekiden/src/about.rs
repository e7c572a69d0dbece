//! What a program tells of the files that it reads.

use ekiden_config::{Section, schema};

use crate::out;

/// Instead of running.
#[derive(clap::Args)]
pub struct About {
    /// Print every key that the file may have, with its values, default and meaning, and exit.
    #[arg(long, exclusive = true)]
    keys: bool,
    /// Print a JSON Schema of the file, by which editors know its keys, and exit.
    #[arg(long, exclusive = true)]
    schema: bool,
}

impl About {
    /// Prints what was asked for of a file with these tables. Whether something was.
    pub fn told(&self, title: &str, sections: &[Section]) -> anyhow::Result<bool> {
        if self.keys {
            let all: Vec<String> = sections.iter().map(ToString::to_string).collect();
            out::line(out::wrapped(&all.join("\n")))?;
        }
        if self.schema {
            out::line(serde_json::to_string_pretty(&schema(title, sections))?)?;
        }
        Ok(self.keys || self.schema)
    }
}
