//! What a run did, step by step: a header before each, a summary at the end, nothing left out in silence.

use std::time::{Duration, Instant};

use anyhow::Result;

/// The steps of a run, in order, as far as it got.
#[derive(Debug)]
pub(crate) struct Report {
    started: Instant,
    steps: Vec<Step>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    NotRun,
    Passed(Duration),
    Failed(Duration),
}

impl Report {
    /// A run that means to take these steps.
    pub(crate) fn of(steps: &[&'static str]) -> Report {
        let steps = steps.iter().map(|name| Step { name, state: State::NotRun }).collect();
        Report { started: Instant::now(), steps, notes: Vec::new() }
    }

    /// Takes the next step. Its error is given back, so that `?` ends the run there.
    pub(crate) fn step<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let total = self.steps.len();
        let next = self.steps.iter_mut().zip(1..).find(|(step, _)| matches!(step.state, State::NotRun));
        let (step, number) = next.expect("every step is named when the report is made");
        eprintln!("\n== {number}/{total} {} ==", step.name);
        let started = Instant::now();
        let result = work();
        let took = started.elapsed();
        step.state = if result.is_ok() { State::Passed(took) } else { State::Failed(took) };
        eprintln!("== {} {} after {:.1} s ==", step.name, step.state.word(), took.as_secs_f64());
        result
    }

    /// Something the reader must know, such as what was left out and why.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Prints the summary, and how the run ended.
    pub(crate) fn print(&self, result: &Result<()>) {
        eprintln!("\n== summary: {:.1} s ==", self.started.elapsed().as_secs_f64());
        for step in &self.steps {
            eprintln!("{:8} {:18} {}", step.state.word(), step.name, step.state.detail());
        }
        for note in &self.notes {
            eprintln!("note: {note}");
        }
        if let Err(error) = result {
            eprintln!("error: {error:#}");
        }
    }
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::NotRun => "not run",
            State::Passed(_) => "ok",
            State::Failed(_) => "FAILED",
        }
    }

    fn detail(self) -> String {
        match self {
            State::NotRun => "an earlier step failed".to_owned(),
            State::Passed(took) | State::Failed(took) => format!("{:.1} s", took.as_secs_f64()),
        }
    }
}
