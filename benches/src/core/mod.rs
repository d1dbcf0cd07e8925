//! Figures of the gate and its stores, each beside a baseline measured in the same run.

mod judge;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
mod postgres;
pub(crate) mod sqlite;

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::figure::Figure;

/// A group of figures: its name, and what measures it.
type Group = (&'static str, fn() -> Result<Vec<Figure>>);

const GROUPS: &[Group] = &[
    ("judge", judge::figures),
    ("memory", memory::figures),
    ("sqlite", sqlite::figures),
    ("page", sqlite::first_page),
    #[cfg(feature = "postgres")]
    ("postgres", postgres::figures),
];

/// Measures the groups whose name begins with a text; all of them take a while.
pub(crate) fn figures(only: &str) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (_, measure) in GROUPS.iter().filter(|(name, _)| name.starts_with(only)) {
        figures.extend(measure()?);
    }
    Ok(figures)
}

/// What a ratio must do to meet its goal.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Be no larger.
    AtMost(f64),
    /// Be no smaller.
    AtLeast(f64),
}

/// A figure as value over baseline, with a goal for the ratio.
pub(crate) fn compared(name: &str, unit: &str, value: f64, baseline: f64, goal: Goal) -> Figure {
    let ratio = value / baseline;
    let (text, met) = match goal {
        Goal::AtMost(most) => (format!("ratio <= {most}"), ratio <= most),
        Goal::AtLeast(least) => (format!("ratio >= {least}"), ratio >= least),
    };
    Figure {
        figure: name.to_owned(),
        value,
        unit: unit.to_owned(),
        baseline: Some(baseline),
        ratio: Some(ratio),
        goal: Some(text),
        met: Some(met),
    }
}

/// Nanoseconds per round of a closure: the best of several samples, so that a busy machine disturbs little.
pub(crate) fn nanoseconds_each(rounds: u32, mut round: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..9 {
        let begin = Instant::now();
        for _ in 0..rounds {
            round();
        }
        best = best.min(begin.elapsed());
    }
    best.as_nanos() as f64 / f64::from(rounds)
}
