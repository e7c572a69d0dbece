//! Every claim of every description, with made-up values: what contradicts it differs, what agrees reproduces it, and no verdict is better than
//! its figures.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ekiden_reproduce::{
    Catalogue, Claim, Comparison, Effort, Engine, Files, Judged, PointId, Quantity, Results, Term, judge,
};
use proptest::prelude::*;

/// A value for every term of a claim.
type Assigned = BTreeMap<(PointId, Quantity), f64>;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::read(&Files::Own).unwrap());

/// Every claim that an engine decides: its paper, its place there, and itself.
fn decided(engine: Engine) -> Vec<(String, [usize; 2], &'static Claim)> {
    let catalogue = &*CATALOGUE;
    let mut found = Vec::new();
    for paper in catalogue.papers() {
        let of_paper = catalogue.experiments.iter().filter(|experiment| experiment.paper == paper);
        for (number, experiment) in of_paper.enumerate() {
            let claims = experiment.claims.iter().enumerate();
            let claims = claims.filter(|(_, claim)| catalogue.decides(claim, engine, Effort::Full));
            found.extend(claims.map(|(at, claim)| (paper.to_owned(), [number, at], claim)));
        }
    }
    found
}

/// What is judged of a claim if its points have these values, five each, next to each other.
fn judged(engine: Engine, (paper, place, _): &(String, [usize; 2], &Claim), values: &Assigned) -> Judged {
    let spread = |value: f64| [-2.0, -1.0, 0.0, 1.0, 2.0].map(|step| value * (1.0 + step * 1e-4)).to_vec();
    let results = Results::made_up(values.iter().map(|(at, value)| (at.clone(), spread(*value))));
    judge(&CATALOGUE, paper, engine, Effort::Full, &results)[place[0]][place[1]].clone()
}

fn key(term: &Term) -> (PointId, Quantity) {
    (term.at, term.of.clone())
}

fn effect(terms: &[Term], values: &Assigned) -> f64 {
    let of = |number: usize| values[&key(&terms[number])];
    match terms.len() {
        1 => of(0),
        2 => of(0) / of(1),
        _ => of(0) / of(1) / (of(2) / of(3)),
    }
}

fn holds(compare: &Comparison, values: &Assigned) -> bool {
    let greatest = compare.effects.iter().map(|terms| effect(terms, values)).fold(f64::NEG_INFINITY, f64::max);
    compare.above.is_none_or(|bound| greatest > bound) && compare.below.is_none_or(|bound| greatest < bound)
}

/// What an effect is to be so that the comparison holds.
fn inside(compare: &Comparison) -> f64 {
    match (compare.above, compare.below) {
        (Some(above), Some(below)) => f64::midpoint(above, below),
        (Some(above), None) => above + above.abs().max(0.1) * 0.25,
        (None, Some(below)) => below - below.abs().max(0.1) * 0.1,
        (None, None) => 1.0,
    }
}

/// What it is to be so that it does not.
fn outside(compare: &Comparison) -> Vec<f64> {
    let below = compare.above.map(|above| above - above.abs().max(0.1) * 0.5);
    let above = compare.below.map(|below| below + below.abs().max(0.1) * 0.5);
    below.into_iter().chain(above).collect()
}

/// Gives the first point of each effect the value that makes the effect so.
fn put(compare: &Comparison, target: f64, values: &mut Assigned) {
    for terms in &compare.effects {
        let now = effect(terms, values);
        let first = values.get_mut(&key(&terms[0])).unwrap();
        *first *= target / now;
    }
}

fn start(claim: &Claim) -> Assigned {
    let terms = claim.compare.iter().flat_map(|compare| compare.effects.iter().flatten());
    terms.map(|term| (key(term), 10.0)).collect()
}

/// Values for which all of a claim holds.
fn agreeing(claim: &Claim) -> Assigned {
    let mut values = start(claim);
    for _ in 0..100 {
        let wrong = claim.compare.iter().find(|compare| !holds(compare, &values));
        let Some(compare) = wrong else { return values };
        put(compare, inside(compare), &mut values);
    }
    panic!("no values make this claim hold: {}", claim.says);
}

#[test]
fn what_agrees_with_a_claim_reproduces_it() {
    for engine in Engine::ALL {
        for claim in decided(engine) {
            let judged = judged(engine, &claim, &agreeing(claim.2));
            assert_eq!(judged.verdict.text(), "reproduced", "{engine}, {}: {judged:?}", claim.2.says);
        }
    }
}

#[test]
fn what_contradicts_any_part_of_a_claim_differs() {
    let mut seen = 0;
    for engine in Engine::ALL {
        for claim in decided(engine) {
            for compare in &claim.2.compare {
                for target in outside(compare) {
                    let mut values = agreeing(claim.2);
                    put(compare, target, &mut values);
                    let judged = judged(engine, &claim, &values);
                    assert_eq!(judged.verdict.text(), "differs", "{engine}, {}: {judged:?}", claim.2.says);
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 80, "found only {seen}");
}

#[test]
fn no_claim_is_undecidable_without_what_the_paper_does_not_say() {
    for experiment in &CATALOGUE.experiments {
        for claim in &experiment.claims {
            let missing = claim.missing.as_ref().is_some_and(|missing| missing.len() > 10);
            assert!(missing != claim.compare.len().gt(&0), "{}: {}", experiment.id, claim.says);
        }
    }
}

#[test]
fn both_engines_have_a_quick_form_of_every_run() {
    for set in &CATALOGUE.sets {
        for engine in Engine::ALL {
            let [full, quick] =
                [Effort::Full, Effort::Quick].map(|effort| set.plan("".as_ref(), engine, effort).unwrap());
            assert_eq!(full.is_some(), quick.is_some(), "{}/{}", set.experiment, set.name);
            let Some((full, quick)) = full.zip(quick) else { continue };
            let time =
                |plan: &ekiden_sweep::Plan| plan.runs.iter().map(|run| run.expected).sum::<std::time::Duration>();
            assert!(time(&quick) < time(&full), "{}/{} is not quicker", set.experiment, set.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn no_verdict_is_better_than_its_figures(seed in 1..u64::MAX) {
            for claim in decided(Engine::Simulator) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as f64 / f64::from(1_u32 << 31)
            };
            // Each point about where the claim is true or wrong, with a spread of up to a tenth.
            let values: Vec<_> = agreeing(claim.2).into_iter().map(|(at, value)| {
                let (centre, spread) = (value * (0.8 + 0.4 * next()), 0.1 * next());
                (at, (0..5).map(|_| centre * (1.0 + spread * (next() - 0.5))).collect::<Vec<f64>>())
            }).collect();
            let results = Results::made_up(values);
            let judged = judge(&CATALOGUE, &claim.0, Engine::Simulator, Effort::Full, &results)[claim.1[0]][claim.1[1]].clone();
            let inside = |figure: &ekiden_reproduce::Figure, value: f64| {
                figure.above.is_none_or(|bound| value > bound) && figure.below.is_none_or(|bound| value < bound)
            };
            match judged.verdict.text() {
                "reproduced" => prop_assert!(judged.figures.iter().all(|figure| inside(figure, figure.effect.value)), "{judged:?}"),
                "differs" if !judged.why.starts_with("no difference") => {
                    prop_assert!(judged.figures.iter().any(|figure| !inside(figure, figure.effect.value)), "{judged:?}");
                }
                _ => {}
            }
        }
    }
}
