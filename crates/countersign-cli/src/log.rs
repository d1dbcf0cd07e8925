//! What this program tells of its own work: lines on stderr and, if asked for, traces.
//!
//! SECURITY: no line and no span holds arguments, tokens or secrets. Ours are written without them; other people's crates
//! print what they carry, so of those only warnings are let through, and of those that carry calls nothing.

#[cfg(feature = "otlp")]
mod otlp;

use std::io::{self, IsTerminal as _, Write};

use clap::ValueEnum;
use tokio::runtime::Handle;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::fault::Fault;
use crate::out;

/// What all our crates are called by.
const OURS: &str = "countersign";
/// Crates that print the calls they carry.
const CARRIERS: [&str; 1] = ["rmcp"];

/// What is logged, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How the log on stderr is written [default: json for `serve` off a terminal, else text]
    #[arg(long, global = true, value_name = "FORM", display_order = 101)]
    log: Option<Form>,
    /// What is logged: a level, or levels by part as in `warn,countersign_server=debug` [default: info for `serve`, else
    /// warn]
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "COUNTERSIGN_LOG", value_parser = read_levels,
        hide_env_values = true,
        display_order = 102
    )]
    log_level: Option<Targets>,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// What the command is to whoever reads its stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It prints and ends.
    Command,
    /// It draws on the terminal; a line in between would spoil the picture.
    Screen,
    /// It serves for long.
    Server,
}

/// The log, until it is ended.
pub(crate) struct Log {
    #[cfg(feature = "otlp")]
    traces: Option<otlp::Traces>,
}

impl Log {
    /// Begins to log. Traces are sent by tasks of this runtime.
    pub(crate) fn begin(args: &Args, kind: Kind, runtime: &Handle) -> Result<Log, Fault> {
        let on_terminal = io::stderr().is_terminal();
        let form = args.log.unwrap_or(match (kind, on_terminal) {
            (Kind::Server, false) => Form::Json,
            (Kind::Server, true) | (Kind::Command | Kind::Screen, _) => Form::Text,
        });
        let levels = match (kind, on_terminal) {
            (Kind::Screen, true) => Targets::new(),
            (Kind::Server, _) => levels(args, LevelFilter::INFO),
            (Kind::Command, _) | (Kind::Screen, false) => levels(args, LevelFilter::WARN),
        };
        let lines = lines(form).with_filter(levels);
        Log::install(Box::new(lines), runtime)
    }

    #[cfg(feature = "otlp")]
    fn install(lines: Box<dyn Layer<Registry> + Send + Sync>, runtime: &Handle) -> Result<Log, Fault> {
        let traces = otlp::Traces::begin(runtime)?;
        let layer = traces.as_ref().map(otlp::Traces::layer);
        tracing_subscriber::registry().with(vec![lines].into_iter().chain(layer).collect::<Vec<_>>()).try_init()?;
        Ok(Log { traces })
    }

    #[cfg(not(feature = "otlp"))]
    fn install(lines: Box<dyn Layer<Registry> + Send + Sync>, _: &Handle) -> Result<Log, Fault> {
        tracing_subscriber::registry().with(lines).try_init()?;
        Ok(Log {})
    }

    /// Sends what was not sent yet. Must not be called on the runtime's own threads.
    pub(crate) fn end(self) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            traces.end();
        }
    }
}

impl From<tracing_subscriber::util::TryInitError> for Fault {
    fn from(error: tracing_subscriber::util::TryInitError) -> Fault {
        Fault::failed(format!("cannot log: {error}"))
    }
}

/// Reads a level, or levels by part. A lone word that is no level is a mistake, not a part of which everything is wanted.
fn read_levels(text: &str) -> Result<Targets, String> {
    let mut lone = text.split(',').filter(|part| !part.contains('='));
    match lone.find(|part| part.parse::<LevelFilter>().is_err()) {
        Some(word) => Err(format!("`{word}` is no level: off, error, warn, info, debug or trace")),
        None => text.parse().map_err(|error: tracing_subscriber::filter::ParseError| error.to_string()),
    }
}

/// The levels asked for, as far as they may be had.
fn levels(args: &Args, usual: LevelFilter) -> Targets {
    let asked = args.log_level.clone().unwrap_or_else(|| Targets::new().with_default(usual));
    let default = asked.default_level().unwrap_or(LevelFilter::OFF);
    let quiet = |level: LevelFilter| level.min(LevelFilter::WARN);
    let allowed = Targets::new().with_default(quiet(default)).with_target(OURS, default);
    let named = asked.iter().map(|(part, level)| match part.starts_with(OURS) {
        true => (part.to_owned(), level),
        false => (part.to_owned(), quiet(level)),
    });
    let carriers = CARRIERS.map(|part| (part.to_owned(), LevelFilter::OFF));
    allowed.with_targets(
        named.filter(|(part, _)| !CARRIERS.iter().any(|carrier| part.starts_with(carrier))).chain(carriers),
    )
}

fn lines(form: Form) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Lines(form));
    match form {
        Form::Text => lines.boxed(),
        Form::Json => lines.json().flatten_event(true).boxed(),
    }
}

/// Writes lines to stderr, with nothing in them that a terminal would obey.
#[derive(Clone, Copy, Debug)]
struct Lines(Form);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        *self
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let safe = match self.0 {
            Form::Text => out::safe_lines(&text),
            Form::Json => safe_json(&text),
        };
        io::stderr().lock().write_all(safe.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// The same JSON with everything escaped that a terminal might obey or hide. Such characters stand only inside strings.
fn safe_json(text: &str) -> String {
    if text.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)) {
        return text.to_owned();
    }
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        let mut utf8 = [0; 4];
        if char == '\n' || char == '\\' || countersign::show::escape(char.encode_utf8(&mut utf8)) == char.to_string() {
            safe.push(char);
        } else {
            safe.extend(char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn args(level: Option<&str>) -> Args {
        Args { log: None, log_level: level.map(|level| level.parse().unwrap()) }
    }

    #[track_caller]
    fn check(asked: Option<&str>, part: &str, level: Level, logged: bool) {
        let levels = levels(&args(asked), LevelFilter::INFO);
        assert_eq!(levels.would_enable(part, &level), logged, "{asked:?} {part} {level}");
    }

    /// Whatever is asked for, crates that are not ours say no more than warnings, and those that carry calls nothing.
    #[test]
    fn foreign_crates_never_tell_what_they_carry() {
        check(None, "countersign_server::serve", Level::INFO, true);
        check(None, "countersign_server::serve", Level::DEBUG, false);
        check(None, "hyper::proto", Level::INFO, false);
        check(None, "hyper::proto", Level::WARN, true);
        for asked in ["trace", "trace,hyper=trace,rmcp=trace,rmcp::service=trace"] {
            check(Some(asked), "countersign_server::serve", Level::TRACE, true);
            check(Some(asked), "hyper::proto", Level::INFO, false);
            check(Some(asked), "rmcp::service", Level::ERROR, false);
        }
        check(Some("error,countersign_store=debug"), "countersign_store::sqlite", Level::DEBUG, true);
        check(Some("error,countersign_store=debug"), "countersign_server", Level::WARN, false);
    }

    #[test]
    fn no_control_byte_survives_a_line_of_json() {
        let line = "{\"a\":\"x\u{202e}\u{9b}2J\u{e0041}ü\\n\"}\n";
        let safe = safe_json(line);
        assert_eq!(safe, "{\"a\":\"x\\u202e\\u009b2J\\udb40\\udc41ü\\n\"}\n");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(line), read(&safe));
    }
}
