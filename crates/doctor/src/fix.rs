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

/// What [`fix`] did.
#[derive(Debug, Default)]
pub struct Fixed<'a> {
    /// The settings that have their better values now, each with the value that it had.
    pub changed: Vec<(&'a Finding, String)>,
    /// Those that could not be changed.
    pub failed: Vec<FixError>,
}

/// Gives the settings below `root` that cost throughput their better values, until the next boot. Each stands for itself:
/// one that cannot be changed keeps none of the others from being changed.
pub fn fix<'a>(root: &Path, findings: &'a [Finding]) -> Fixed<'a> {
    let mut fixed = Fixed::default();
    for finding in findings {
        let Some(value) = finding.fixed_value() else { continue };
        match exchange(&file(root, &finding.subject), value) {
            Ok(before) => fixed.changed.push((finding, before)),
            Err(source) => {
                fixed.failed.push(FixError { key: finding.subject.clone(), value: value.into(), source });
            }
        }
    }
    fixed
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
    fn what_cannot_be_changed_keeps_nothing_else_from_it() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "1\t2\n").unwrap();
        let good = Finding::new("b", "1", Verdict::Good);
        let findings = [finding("missing", "4"), good, finding("a", "3")];
        let fixed = fix(root.path(), &findings);
        assert_eq!(fixed.changed, [(&findings[2], "1 2".to_owned())]);
        assert_eq!(fs::read_to_string(root.path().join("a")).unwrap(), "3");
        let [error] = &fixed.failed[..] else { panic!("{:?}", fixed.failed) };
        assert!(error.to_string().starts_with("missing cannot be set to '4': "), "{error}");
    }
}
