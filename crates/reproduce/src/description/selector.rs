//! Which point of which runs is meant: `control=reno sack=true`, or `direct: buffer=64KiB` where several runs have such points.

use indexmap::IndexMap;

use super::Seen;

/// The values of a point by their short names.
pub(crate) type Point = IndexMap<String, String>;

/// A point of one of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PointId {
    /// The runs' number among those of all experiments.
    pub set: usize,
    /// The point's number in a sweep of them.
    pub point: usize,
}

/// A selector in parts.
pub(crate) struct Selector<'a> {
    /// The runs that it names.
    runs: Option<&'a str>,
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Selector<'a> {
    /// Reads `[RUNS:] KEY=VALUE …`.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let (runs, rest) = match text.split_once(':') {
            Some((runs, rest)) if !runs.contains('=') => (Some(runs.trim()), rest),
            _ => (None, text),
        };
        let value = |word: &'a str| {
            word.split_once('=').ok_or_else(|| {
            format!("'{word}' is no part of a selector, which is such as 'sack=true', perhaps with the name of runs before it: 'direct: sack=true'")
        })
        };
        Ok(Self { runs, values: rest.split_whitespace().map(value).collect::<Result<_, _>>()? })
    }

    /// Every point that it names, of the runs in which all its keys are.
    pub fn all(&self, seen: &Seen<'_>) -> Result<Vec<PointId>, String> {
        if let Some(name) = self.runs.filter(|name| !seen.iter().any(|(_, runs)| runs.name == *name)) {
            let known: Vec<&str> = seen.iter().map(|(_, runs)| runs.name.as_str()).collect();
            return Err(format!("there are no runs '{name}'; there are: {}", known.join(", ")));
        }
        let named = || seen.iter().filter(|(_, runs)| self.runs.is_none_or(|name| runs.name == name));
        if let Some((key, _)) =
            self.values.iter().find(|(key, _)| !named().any(|(_, runs)| runs.aliases.iter().any(|own| own == key)))
        {
            let known: Vec<&str> = named().flat_map(|(_, runs)| runs.aliases.iter().map(String::as_str)).collect();
            return Err(format!("no runs have the key '{key}'{}", ekiden_files::suggestion(key, known)));
        }
        let is_meant =
            |point: &Point| self.values.iter().all(|(key, value)| point.get(*key).is_some_and(|own| own == value));
        let found = named().flat_map(|(set, runs)| {
            let points = runs.points.iter().enumerate().filter(|(_, point)| is_meant(point));
            points.map(|(point, _)| PointId { set: *set, point })
        });
        Ok(found.collect())
    }

    /// The one point that it names.
    pub fn one(&self, seen: &Seen<'_>) -> Result<PointId, String> {
        match &self.all(seen)?[..] {
            [point] => Ok(*point),
            [] => Err("no point has these values".into()),
            several => {
                let name = |id: &PointId| {
                    seen.iter().find(|(set, _)| *set == id.set).map_or(String::new(), |(_, runs)| {
                        let values: Vec<String> =
                            runs.points[id.point].iter().map(|(key, value)| format!("{key}={value}")).collect();
                        format!("'{}: {}'", runs.name, values.join(" "))
                    })
                };
                let [first, second, ..] = several else { return Err("no point has these values".into()) };
                Err(format!(
                    "{} points have these values, such as {} and {}; name more of them",
                    several.len(),
                    name(first),
                    name(second)
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Selector;

    #[test]
    fn a_selector_may_begin_with_the_runs() {
        let of = |text: &'static str| {
            let selector = Selector::parse(text).unwrap();
            (selector.runs, selector.values)
        };
        assert_eq!(of("a=1 b=x:y"), (None, vec![("a", "1"), ("b", "x:y")]));
        assert_eq!(of("direct: a=1"), (Some("direct"), vec![("a", "1")]));
        assert_eq!(of("direct:"), (Some("direct"), vec![]));
        assert!(Selector::parse("a").is_err_and(|error| error.contains("'a' is no part")));
    }
}
