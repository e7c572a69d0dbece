//! Claims: a sentence of the paper, and the comparisons that must hold.

use ekiden_config::{ConfigError, Source};
use serde_spanned::Spanned;

use super::Seen;
use super::raw::{OneOrMore, RawClaim, RawCompare, Text};
use super::selector::{PointId, Selector};
use crate::engine::Engine;
use crate::quantity::Quantity;
use crate::verdict::MARGIN;

/// A claim of a paper.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The claim in a sentence.
    pub says: String,
    /// Where the paper says it.
    pub page: String,
    /// What it prints.
    pub published: String,
    /// What must hold; nothing if that cannot be decided.
    pub compare: Vec<Comparison>,
    /// What the paper does not say, without which it cannot be decided.
    pub missing: Option<String>,
    /// Why ours differs, if it does.
    pub because: Because,
    /// How far from its bound a comparison may be to count as no difference, as a part of the bound.
    pub margin: f64,
}

/// Why ours differs, by engine.
#[derive(Debug, Clone, Default)]
pub struct Because {
    simulator: Option<String>,
    kernel: Option<String>,
}

/// An inequality about points: of one or more effects the greatest is above and below the bounds.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// One, two or four terms each: A, A / B or (A / B) / (C / D).
    pub effects: Vec<Vec<Term>>,
    /// It must be above this.
    pub above: Option<f64>,
    /// It must be below this.
    pub below: Option<f64>,
}

/// A quantity at a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The selector as it is written.
    pub written: String,
    /// The point.
    pub at: PointId,
    /// The quantity.
    pub of: Quantity,
}

impl Claim {
    /// All that its comparisons name.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        self.compare.iter().flat_map(|compare| compare.effects.iter().flatten())
    }
}

impl Because {
    /// Why it differs in an engine.
    pub fn of(&self, engine: Engine) -> Option<&str> {
        match engine {
            Engine::Simulator => self.simulator.as_deref(),
            Engine::Kernel => self.kernel.as_deref(),
        }
    }
}

/// A claim, with all that it names looked up.
///
/// # Errors
/// With file, line and key.
pub(crate) fn read(raw: &RawClaim, source: Source<'_>, seen: &Seen<'_>) -> Result<Claim, ConfigError> {
    let at_claim = |reason: &str| Err(source.error(Some(raw.says.span()), format!("claims: {reason}")));
    match (&raw.missing, raw.compare.is_empty()) {
        (Some(_), false) => return at_claim("a claim has 'compare', or 'missing' if it cannot be decided; not both"),
        (None, true) => return at_claim("a claim needs compare = [ … ], or missing = \"what the paper does not say\""),
        (Some(missing), true) if missing.trim().is_empty() => {
            return at_claim("missing = \"…\" names what the paper does not say");
        }
        _ => {}
    }
    let reader = Reader { claim: raw, source, seen };
    Ok(Claim {
        says: raw.says.get_ref().trim().into(),
        page: raw.page.clone(),
        published: raw.published.clone(),
        compare: reader.comparisons()?,
        missing: raw.missing.as_ref().map(|missing| missing.trim().into()),
        because: Because { simulator: raw.because.simulator.clone(), kernel: raw.because.kernel.clone() },
        margin: match &raw.margin {
            Some(margin) => source.in_range("margin", margin, &(0.0..=0.5))?,
            None => MARGIN,
        },
    })
}

struct Reader<'a> {
    claim: &'a RawClaim,
    source: Source<'a>,
    seen: &'a Seen<'a>,
}

impl Reader<'_> {
    fn error<T>(&self, at: std::ops::Range<usize>, reason: impl Into<String>) -> Result<T, ConfigError> {
        Err(self.source.error(Some(at), reason.into()))
    }

    fn comparisons(&self) -> Result<Vec<Comparison>, ConfigError> {
        let all = self.claim.compare.iter().map(|raw| self.of_each(raw)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.into_iter().flatten().collect())
    }

    /// A comparison for each combination of `each`; the best is one of all combinations.
    fn of_each(&self, raw: &RawCompare) -> Result<Vec<Comparison>, ConfigError> {
        let mut more = vec![String::new()];
        for (key, values) in &raw.each {
            if values.is_empty() {
                return self.error(key.span(), format!("compare.each.{} has no value", key.get_ref()));
            }
            let with = |before: &String, value: &Text| format!("{before} {}={}", key.get_ref(), value.get_ref());
            more = more.iter().flat_map(|before| values.iter().map(move |value| with(before, value))).collect();
        }
        match raw.best {
            Some(_) => Ok(vec![self.comparison(raw, &more)?]),
            None => more.chunks(1).map(|more| self.comparison(raw, more)).collect(),
        }
    }

    /// Each of `more` is added to all points, for an effect of its own.
    fn comparison(&self, raw: &RawCompare, more: &[String]) -> Result<Comparison, ConfigError> {
        let claim = self.claim.says.span();
        let written: Vec<Vec<&Text>> = match (&raw.value, &raw.ratio, &raw.best) {
            (Some(value), None, None) => vec![vec![value]],
            (None, Some(ratio), None) => vec![self.ratio(ratio)?],
            (None, None, Some(best)) => {
                best.get_ref().iter().map(|ratio| self.ratio(ratio)).collect::<Result<_, _>>()?
            }
            _ => {
                return self
                    .error(claim, "compare: each has one of value = \"…\", ratio = [ … ] and best = [ [ … ], … ]");
            }
        };
        if written.is_empty() {
            return self.error(claim, "compare.best: it needs ratios, such as [\"sack=true\", \"sack=false\"]");
        }
        let [above, below] = [&raw.above, &raw.below].map(|bound| bound.as_ref().map(|bound| *bound.get_ref()));
        match (above, below) {
            (None, None) => return self.error(claim, "compare: a comparison needs above = … or below = …"),
            (Some(above), Some(below)) if above >= below => {
                return self.error(claim, "compare: above = … must be less than below = …");
            }
            _ => {}
        }
        if [above, below].into_iter().flatten().any(|bound| !bound.is_finite()) {
            return self.error(claim, "compare: a bound is a number");
        }
        let of = raw.of.as_ref().or(self.claim.of.as_ref());
        let Some(of) = of else {
            return self.error(claim, "compare: it needs a quantity: of = \"goodput FLOW\", here or in the claim");
        };
        let effects = written.iter().flat_map(|points| more.iter().map(|more| self.terms(points, more, of)));
        let effects = effects.collect::<Result<Vec<_>, _>>()?;
        let effect = effects.first();
        if effect.is_some_and(|terms| terms.len() == 4)
            && [above, below].into_iter().flatten().any(|bound| bound <= 0.0)
        {
            return self.error(claim, "compare: a ratio of ratios is compared with what is above 0");
        }
        Ok(Comparison { effects, above, below })
    }

    /// Two selectors, or four.
    fn ratio<'r>(&self, raw: &'r Spanned<Vec<Text>>) -> Result<Vec<&'r Text>, ConfigError> {
        match raw.get_ref().len() {
            2 | 4 => Ok(raw.get_ref().iter().collect()),
            other => self.error(
                raw.span(),
                format!("compare: a ratio is of two points, or of four as (A / B) / (C / D); these are {other}"),
            ),
        }
    }

    fn terms(&self, points: &[&Text], more: &str, of: &Spanned<OneOrMore>) -> Result<Vec<Term>, ConfigError> {
        let names = &of.get_ref().0;
        if names.len() != 1 && names.len() != points.len() {
            let reason =
                format!("of names {} quantities for {} points; name one, or one for each", names.len(), points.len());
            return self.error(of.span(), reason);
        }
        let quantities = names.iter().map(|name| name.parse::<Quantity>());
        let quantities: Vec<Quantity> =
            quantities.collect::<Result<_, _>>().or_else(|reason| self.error(of.span(), format!("of: {reason}")))?;
        let mut terms: Vec<Term> = Vec::new();
        for (number, point) in points.iter().enumerate() {
            let written = format!("{}{more}", point.get_ref()).trim().to_owned();
            let at = Selector::parse(&written).and_then(|selector| selector.one(self.seen));
            let at = at.or_else(|reason| self.error(point.span(), format!("'{written}': {reason}")))?;
            let of_point = &quantities[number.min(quantities.len() - 1)];
            self.check(at, of_point).or_else(|reason| self.error(of.span(), format!("of: {reason}")))?;
            if terms.iter().any(|term| term.at == at && (points.len() == 4 || term.of == *of_point)) {
                return self.error(point.span(), format!("'{written}': this point stands in the comparison twice"));
            }
            terms.push(Term { written, at, of: of_point.clone() });
        }
        Ok(terms)
    }

    fn check(&self, at: PointId, of: &Quantity) -> Result<(), String> {
        let runs = self.seen.iter().find(|(set, _)| *set == at.set);
        runs.map_or(Ok(()), |(_, runs)| of.check(&runs.base))
    }
}
