//! Where descriptions come from: the program itself, or a folder.

use std::path::{Component, Path, PathBuf};

use ekiden_files::{ConfigError, read_config};

/// What every description is called.
const NAME: &str = "experiment.toml";
/// The folder of the project's own descriptions.
const OWN: &str = "reproduce";
/// Paths from the project's folder, and texts.
static EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Descriptions and scenarios.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// Those of the project, in the program.
    Own,
    /// Those below a folder.
    Below(PathBuf),
}

impl Files {
    /// The descriptions' files, ordered by name.
    ///
    /// # Errors
    /// If the folder or one below it cannot be read, or has no description.
    pub fn descriptions(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let mut found = Vec::new();
        match self {
            Self::Own => {
                let all = EMBEDDED.iter().map(|(name, _)| PathBuf::from(name));
                found.extend(all.filter(|path| path.starts_with(OWN) && path.ends_with(NAME)));
            }
            Self::Below(folder) => {
                collect(folder, &mut found).map_err(|(at, error)| ConfigError::whole(&at, error))?;
                if found.is_empty() {
                    return Err(ConfigError::whole(folder, format!("there is no {NAME} in it or below it")));
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The text of a description or scenario.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn text(&self, path: &Path) -> Result<String, ConfigError> {
        match self {
            Self::Own => {
                let path = plain(path);
                let known = EMBEDDED.iter().find(|(name, _)| Path::new(name) == path);
                known
                    .map(|(_, text)| (*text).to_owned())
                    .ok_or_else(|| ConfigError::whole(&path, "no such file in the project"))
            }
            Self::Below(_) => read_config(path),
        }
    }
}

/// The path without `.` and `..`.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), (PathBuf, std::io::Error)> {
    let failed = |error| (folder.to_owned(), error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        // Links are not followed: one may lead back.
        if entry.file_type().map_err(failed)?.is_dir() {
            collect(&path, found)?;
        } else if path.ends_with(NAME) {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Files, Path, plain};

    #[test]
    fn a_path_goes_up_from_where_it_is() {
        assert_eq!(plain(Path::new("reproduce/s0/fig11/../../../scenarios/./x.toml")), Path::new("scenarios/x.toml"));
        assert_eq!(plain(Path::new("../x")), Path::new("../x"));
    }

    #[test]
    fn what_is_not_in_the_program_is_named() {
        let error = Files::Own.text(Path::new("scenarios/none.toml")).unwrap_err().to_string();
        assert_eq!(error, "scenarios/none.toml: no such file in the project");
    }
}
