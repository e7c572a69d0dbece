//! Setting what is safe to set.

use std::fs;
use std::io;
use std::path::Path;

use crate::Finding;
use crate::sysctl::{file, normal};

/// Why a setting could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("{key} cannot be set to '{value}': {source}{}", hint(source))]
pub struct FixError {
    /// The setting.
    pub key: String,
    /// The value it should have had.
    pub value: String,
    /// What the kernel said.
    pub source: io::Error,
}

/// Gives the settings below `root` that cost throughput their better values, until the next boot. Returns them with the
/// values that they had. What was changed before an error is put back.
///
/// # Errors
/// If one cannot be changed.
pub fn fix<'a>(root: &Path, findings: &'a [Finding]) -> Result<Vec<(&'a Finding, String)>, FixError> {
    let mut changed: Vec<(&Finding, String)> = Vec::new();
    for finding in findings {
        let Some(value) = finding.fixed_value() else { continue };
        match exchange(&file(root, &finding.subject), value) {
            Ok(before) => changed.push((finding, before)),
            Err(source) => {
                for (finding, before) in changed {
                    // What could be set can be set back; if not, the error says enough.
                    let _ = exchange(&file(root, &finding.subject), &before);
                }
                return Err(FixError { key: finding.subject.clone(), value: value.into(), source });
            }
        }
    }
    Ok(changed)
}

/// Writes a value and returns the one before.
fn exchange(file: &Path, value: &str) -> io::Result<String> {
    let before = normal(&fs::read_to_string(file)?);
    // Opened for writing without creating: a setting that is not there is an error.
    let mut options = fs::OpenOptions::new();
    let mut setting = options.write(true).truncate(true).open(file)?;
    io::Write::write_all(&mut setting, value.as_bytes())?;
    Ok(before)
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run it as root",
        io::ErrorKind::ReadOnlyFilesystem => "; in a container the host has to",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Remedy, Verdict};

    fn finding(key: &str, value: &str) -> Finding {
        Finding::new(key, "", Verdict::Costs { what: String::new(), remedy: Remedy::Set(value.into()) })
    }

    #[test]
    fn all_are_changed_or_none() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "1\t2\n").unwrap();
        let read = || fs::read_to_string(root.path().join("a")).unwrap();

        let findings = [finding("a", "3"), finding("missing", "4")];
        let error = fix(root.path(), &findings).unwrap_err();
        assert!(error.to_string().starts_with("missing cannot be set to '4': "), "{error}");
        assert_eq!(read(), "1 2");

        let good = Finding::new("b", "1", Verdict::Good);
        let findings = [good, finding("a", "3")];
        let changed = fix(root.path(), &findings).unwrap();
        assert_eq!(changed, [(&findings[1], "1 2".to_owned())]);
        assert_eq!(read(), "3");
    }
}
