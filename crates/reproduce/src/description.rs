//! A description, read and checked: what was done, the runs that repeat it, the claims and the pictures.

mod claims;
mod plots;
mod raw;
mod runs;
mod selector;

use std::path::{Path, PathBuf};

use ekiden_config::{ConfigError, Source};
use serde_spanned::Spanned;

use crate::files::Files;
use raw::RawExperiment;

pub use claims::{Because, Claim, Comparison, Term};
pub use plots::{Plot, PlotKind};
pub use runs::{Amount, RunSet};
pub use selector::PointId;

/// A description whose claims and pictures are not read yet: they may name runs of others.
pub(crate) struct Description {
    pub file: PathBuf,
    text: String,
    raw: RawExperiment,
    /// The name of its folder.
    pub folder: String,
    pub runs: Vec<RunSet>,
}

/// What a claim or a picture may name: the runs of an experiment, and their numbers among all.
pub(crate) type Seen<'a> = Vec<(usize, &'a RunSet)>;

impl Description {
    /// Reads a description and the scenarios that it names.
    ///
    /// # Errors
    /// If one of them is wrong: with file, line and key.
    pub fn read(files: &Files, file: &Path) -> Result<Self, ConfigError> {
        let text = files.text(file)?;
        let source = Source { text: &text, file };
        let raw: RawExperiment = source.read()?;
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        let folder = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        if !is_name(&folder) {
            return Err(ConfigError::whole(
                file,
                "the name of its folder, which is the experiment's, may have letters, digits, '-' and '_'",
            ));
        }
        if !is_name(raw.paper.get_ref()) {
            let reason = format!("paper = \"{}\" may have letters, digits, '-' and '_'", raw.paper.get_ref());
            return Err(source.error(Some(raw.paper.span()), reason));
        }
        let id = format!("{}-{folder}", raw.paper.get_ref());
        let runs = runs::read(&raw, source, files, &id)?;
        Ok(Self { file: file.into(), text, raw, folder, runs })
    }

    /// `S0-fig11`.
    pub fn id(&self) -> String {
        format!("{}-{}", self.paper(), self.folder)
    }

    /// The paper's short name.
    pub fn paper(&self) -> &str {
        self.raw.paper.get_ref()
    }

    /// What is said of it: title, section, figure, what the paper did and what differs in ours.
    pub fn said(&self) -> [&str; 5] {
        let raw = &self.raw;
        [&raw.title, &raw.section, &raw.figure, &raw.did, &raw.ours].map(|text| text.trim())
    }

    /// The runs of other experiments of the paper that it uses: experiment and name, with the place for errors.
    pub fn uses(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.raw.uses.iter()
    }

    /// An error about a part of the file.
    pub fn error(&self, at: &Spanned<String>, reason: String) -> ConfigError {
        self.source().error(Some(at.span()), reason)
    }

    /// Its claims, by the runs that it sees.
    ///
    /// # Errors
    /// If one is wrong: with file, line and key.
    pub fn claims(&self, seen: &Seen<'_>) -> Result<Vec<Claim>, ConfigError> {
        self.raw.claims.iter().map(|raw| claims::read(raw, self.source(), seen)).collect()
    }

    /// Its pictures, by the runs that it sees.
    ///
    /// # Errors
    /// If one is wrong: with file, line and key.
    pub fn plots(&self, seen: &Seen<'_>) -> Result<Vec<Plot>, ConfigError> {
        self.raw.plots.iter().map(|raw| plots::read(raw, self.source(), seen)).collect()
    }

    /// A word for a value, such as `HSTCP` for `control=ekiden_hstcp`.
    pub fn names(&self) -> Vec<(String, String)> {
        self.raw.names.iter().map(|(value, name)| (value.clone(), name.clone())).collect()
    }

    fn source(&self) -> Source<'_> {
        Source { text: &self.text, file: &self.file }
    }
}
