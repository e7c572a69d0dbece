//! A path from wherever it is described.

use std::path::Path as File;

use ekiden_files::FileKind;
use ekiden_record::PathRecord;

use crate::error::COMMAND_LINE;
use crate::given::Values;
use crate::{Error, Flags, Path, measured, raw};

/// Reads a path from a description (TOML) or a path record (JSON), if there is a file, with what the flags say instead. What neither says,
/// the description `sites` may: where proxies could be, for a path that was measured.
///
/// # Errors
/// If the file cannot be read, or says what cannot be, or too little: with key and place.
pub fn read(file: Option<&File>, sites: Option<&File>, flags: &Flags) -> Result<Path, Error> {
    let given = flags.values()?;
    let sites = sites.map(|sites| sites_of(sites, flags)).transpose()?.unwrap_or_default();
    let Some(file) = file else {
        return given.or(sites).resolve(COMMAND_LINE);
    };
    let name = file.display().to_string();
    let text = ekiden_files::read(file, FileKind::Path);
    let text = text.map_err(|source| Error::Unreadable { file: name.clone(), source })?;
    let is_record = text.trim_start().starts_with('{');
    let said: Values = match is_record {
        true => measured::values(&PathRecord::load(file)?, &name, flags.direction)?,
        false => raw::values(&text, &name, flags.direction)?,
    };
    // What a record could not see is missing with a reason.
    let reasons = said.notes.join(" ");
    let stem = file
        .file_stem()
        .map(|stem| stem.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_', "-"));
    let path = Values {
        name: said.name.clone().or(stem.map(|stem| stem.chars().take(32).collect())),
        ..given.or(said).or(sites)
    };
    path.resolve(&name).map_err(|error| match error {
        Error::Wrong { place, reason } if is_record && reason.contains("is missing") => {
            Error::wrong(place, format!("{reason}. {reasons}").trim_end_matches([' ', '.']).to_owned())
        }
        other => other,
    })
}

/// A description that has sites.
fn sites_of(file: &File, flags: &Flags) -> Result<Values, Error> {
    let name = file.display().to_string();
    let text = ekiden_files::read(file, FileKind::Record);
    let text = text.map_err(|source| Error::Unreadable { file: name.clone(), source })?;
    let values = raw::values(&text, &name, flags.direction)?;
    match values.sites.is_empty() {
        true => Err(Error::wrong(name, "it has no [site.NAME], a place where a proxy could be")),
        false => Ok(values),
    }
}
