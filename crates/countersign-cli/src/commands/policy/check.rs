//! `countersign policy check`.

use std::path::PathBuf;

use countersign::policy::{Lint, LintKind, PolicyErrors};
use countersign::show::escape;
use serde::Serialize;

use crate::commands::Form;
use crate::diagnostics;
use crate::fault::Fault;
use crate::out;
use crate::settings::{read_bytes, try_parse};

/// Load a file as it would be loaded, run its examples and look for mistakes
///
/// Every problem is printed with its file:line:column, and the exit code is 1. Rules that load but can never
/// matter, or allow too much, are warnings; with --strict they fail, too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A countersign.yml, or its `policy:` section alone
    file: PathBuf,
    /// Fail on warnings, too
    #[arg(long)]
    strict: bool,
}

const EXAMPLES: &str = r#"Example:
  countersign policy check countersign.yml"#;

/// One problem or warning.
#[derive(Serialize)]
struct Finding<'a> {
    severity: &'static str,
    file: &'a str,
    line: usize,
    column: usize,
    rule: Option<&'a str>,
    message: &'a str,
    help: Option<&'a str>,
}

/// What came of the check.
#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    rules: usize,
    version: Option<&'a str>,
    problems: Vec<Finding<'a>>,
}

/// Checks.
pub(crate) fn run(args: Args, form: Form) -> Result<(), Fault> {
    let name = args.file.display().to_string();
    match try_parse(&args.file, &read_bytes(&args.file)?)? {
        Ok(config) => warnings(&name, &config.policy, args.strict, form),
        Err(errors) => problems(&errors, form),
    }
}

fn problems(errors: &PolicyErrors, form: Form) -> Result<(), Fault> {
    if form == Form::Text {
        return Err(diagnostics::fault(errors));
    }
    let problems = errors.iter().map(|error| Finding {
        severity: "error",
        file: &error.file,
        line: error.line,
        column: error.column,
        rule: None,
        message: &error.message,
        help: error.help.as_deref(),
    });
    out::json(&Report { ok: false, rules: 0, version: None, problems: problems.collect() })?;
    Err(Fault::failed("the file has problems; nothing was loaded"))
}

fn warnings(name: &str, policy: &countersign::Policy, strict: bool, form: Form) -> Result<(), Fault> {
    let lints = policy.lint();
    let failed = strict && !lints.is_empty();
    if form == Form::Json {
        let problems = lints.iter().map(|lint| Finding {
            severity: "warning",
            file: name,
            line: lint.line,
            column: 1,
            rule: Some(&lint.rule),
            message: &lint.message,
            help: None,
        });
        let (rules, version) = (policy.rules(), Some(&**policy.version()));
        out::json(&Report { ok: !failed, rules, version, problems: problems.collect() })?;
    } else {
        lints.iter().for_each(|lint| out::say(line(name, lint)));
        if !failed {
            out::data(format_args!("{}: ok, {} rules, {}", escape(name), policy.rules(), policy.version()))?;
        }
    }
    match failed {
        true => Err(Fault::failed(format!("{} warnings, and --strict was given", lints.len()))),
        false => Ok(()),
    }
}

fn line(name: &str, lint: &Lint) -> String {
    let kind = match lint.kind {
        LintKind::Dead => "dead",
        LintKind::Shadowed => "shadowed",
        LintKind::TooBroad => "too broad",
        LintKind::ImpossibleQuorum => "impossible quorum",
        LintKind::ShortExpiry => "short-lived",
        _ => "odd",
    };
    let place = format!("{}:{}:1", escape(name), lint.line);
    let warning = out::paint(out::WAIT, "warning");
    format!("{place}: {warning}: rule `{}` is {kind}: {}", escape(&lint.rule), escape(&lint.message))
}
