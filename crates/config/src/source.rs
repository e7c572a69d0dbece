use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf, absolute};

use ekiden_files::{ConfigError, explain, in_range, read_config};
use serde::de::DeserializeOwned;
use serde_spanned::Spanned;
use toml_edit::Key;

/// A file's text, in which errors find their line, and where it is.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What stands in it.
    pub text: &'a str,
    /// What errors call it, and what its paths are relative to.
    pub file: &'a Path,
}

impl Source<'_> {
    /// The file as it is written.
    ///
    /// # Errors
    /// If it is no TOML, or a key is unknown, missing or of another kind: with the line.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        self.read_explained(|said| said)
    }

    /// The same, where a refusal can be `explained` further than by the keys that there are: from what is said of it.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn read_explained<T: DeserializeOwned>(
        &self,
        explained: impl FnOnce(String) -> String,
    ) -> Result<T, ConfigError> {
        toml::from_str(self.text)
            .map_err(|error| self.error(error.span(), explained(placed::<T>(explain(self.text, &error)))))
    }

    /// What is wrong with what stands at `span`; with the whole file for `None`.
    pub fn error(&self, span: Option<Range<usize>>, reason: String) -> ConfigError {
        ConfigError::at(self.file, self.text, span, reason)
    }

    /// A path of the file, which is relative to its folder.
    pub fn beside(&self, path: &Spanned<String>) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path.get_ref())
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If it is not in its range.
    pub fn in_range<T: Copy + PartialOrd + Display>(
        &self,
        key: &str,
        value: &Spanned<T>,
        range: &RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        in_range(key, value.get_ref(), range, ToString::to_string)
            .map_err(|reason| self.error(Some(value.span()), reason))
    }

    /// The value of a key that may be left out.
    ///
    /// # Errors
    /// If it is not in its range.
    pub fn in_range_if_set<T: Copy + PartialOrd + Display>(
        &self,
        key: &str,
        value: Option<&Spanned<T>>,
        range: &RangeInclusive<T>,
    ) -> Result<Option<T>, ConfigError> {
        value.map(|value| self.in_range(key, value, range)).transpose()
    }
}

/// Adds where a key belongs to what is `said` of one that its table does not have, if the file has it at its top: what stands below a table's
/// head is that table's.
fn placed<T: DeserializeOwned>(said: String) -> String {
    let key = said.strip_prefix("unknown field `").and_then(|rest| rest.split_once("` in ")).map(|(key, _)| key);
    // Refused with all keys that there are.
    let at_top = toml::from_str::<T>("\"\" = 0").err().map(|error| error.message().to_owned()).unwrap_or_default();
    match key {
        Some(key) if at_top.split('`').skip(3).step_by(2).any(|known| known == key) => {
            format!("{said}; `{key}` stands above the first table of the file")
        }
        _ => said,
    }
}

/// Reads a configuration of any kind.
///
/// # Errors
/// If it cannot be read, or `parse` refuses it.
pub fn load<T>(file: &Path, parse: impl FnOnce(Source<'_>) -> Result<T, ConfigError>) -> Result<T, ConfigError> {
    let text = read_config(file)?;
    parse(Source { text: &text, file })
}

/// A text as TOML writes it.
pub fn text(text: impl Display) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// Texts as TOML writes them.
pub fn list<T: Display>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = texts.into_iter().map(text).collect();
    format!("[{}]", texts.join(", "))
}

/// A path as TOML writes it, which is right in a copy of the file too, wherever that is.
pub fn path(file: &Path) -> String {
    text(absolute(file).unwrap_or_else(|_| file.into()).display())
}

/// The name of a key or table as TOML writes it.
pub fn key(name: &str) -> String {
    Key::new(name).display_repr().into_owned()
}
