//! Parameters as configuration files have them: a table for each group, such as `[congestion.hstcp]`.

use crate::{CongestionParameters, PARAMETERS, ParameterError, Tunables};

/// What is wrong in such tables, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct TableError<'a> {
    /// The wrong group; `None` if the parameters do not fit each other.
    pub group: Option<&'a str>,
    /// The wrong parameter in the group; `None` if the group is wrong itself.
    pub parameter: Option<&'a str>,
    /// The names that there are at this place, if there is no such one; else none.
    pub known: Vec<&'static str>,
    /// What is wrong, without the place.
    pub reason: String,
}

impl Tunables {
    /// The tunables with the parameters of these tables, a group each; the others have their defaults.
    ///
    /// # Errors
    /// The first group or parameter that is wrong; then parameters that do not fit each other.
    pub fn from_tables<'a, P>(tables: impl IntoIterator<Item = (&'a str, P)>) -> Result<Self, TableError<'a>>
    where
        P: IntoIterator<Item = (&'a str, f64)>,
    {
        let mut parameters = CongestionParameters::default();
        for (group, values) in tables {
            let names = || known().filter(|(other, _)| *other == group).map(|(_, name)| name);
            if names().next().is_none() {
                let mut known: Vec<&str> = known().map(|(group, _)| group).collect();
                known.dedup();
                let reason = format!("there is no [congestion.{group}] (there are {})", known.join(", "));
                return Err(TableError { group: Some(group), parameter: None, known, reason });
            }
            for (name, value) in values {
                parameters.set_number(&format!("{group}.{name}"), value).map_err(|error| TableError {
                    group: Some(group),
                    parameter: Some(name),
                    known: if matches!(error, ParameterError::Name { .. }) { names().collect() } else { Vec::new() },
                    reason: error.to_string(),
                })?;
            }
        }
        let unfit = |error: ParameterError| error.to_string();
        Self::new(&parameters).map_err(unfit).map_err(|reason| TableError {
            group: None,
            parameter: None,
            known: Vec::new(),
            reason,
        })
    }
}

/// Every parameter, with its group before it.
fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    PARAMETERS.iter().filter_map(|parameter| parameter.name.split_once('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(group: &'a str, name: &'a str, value: f64) -> Result<Tunables, TableError<'a>> {
        Tunables::from_tables([(group, [(name, value)])])
    }

    #[test]
    fn tables_change_what_they_name() {
        let tunables = read("ghstcp", "span", 3.0).unwrap();
        let changed = |(parameter, value): &(&crate::Parameter, f64)| parameter.default != *value;
        let parameters = tunables.parameters();
        let changed: Vec<_> = parameters.iter().filter(changed).map(|(of, value)| (of.name, value)).collect();
        assert_eq!(changed, [("ghstcp.span", 3.0)]);
    }

    #[test]
    fn an_error_says_where_and_what_there_is() {
        let wrong = read("vegas", "alpha", 1.0).unwrap_err();
        assert_eq!((wrong.group, wrong.parameter), (Some("vegas"), None));
        assert_eq!(wrong.known, ["hstcp", "ghstcp", "bic", "slow_start"]);
        let wrong = read("bic", "s_mix", 1.0).unwrap_err();
        assert_eq!((wrong.group, wrong.parameter), (Some("bic"), Some("s_mix")));
        assert!(wrong.known.contains(&"s_min") && !wrong.known.contains(&"span"), "{wrong:?}");
        let wrong = read("bic", "s_min", -1.0).unwrap_err();
        assert_eq!((wrong.parameter, wrong.known.len()), (Some("s_min"), 0));
        let wrong = read("ghstcp", "low", 0.9).unwrap_err();
        assert_eq!((wrong.group, wrong.reason.as_str()), (None, "ghstcp.low must not exceed ghstcp.high"));
    }
}
