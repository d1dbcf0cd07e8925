//! `countersign run`.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use countersign::Gate;
use countersign::policy::Unattended;
use countersign::show::escape;
use countersign_agent::{Reply, RunError, Session};

use crate::commands::{Form, open_holds};
use crate::fault::Fault;
use crate::out::{self, Cell};
use crate::person::person;
use crate::prompt;
use crate::run::{Asking, Attended, Scene, Talk, There, Typist, all_sessions, open_store, settle, show_history};
use crate::settings::Place;

/// Run an agent in the terminal; you are asked where the rules say so
///
/// With a prompt it answers once and ends; without one it is a conversation. The agent works in this folder with the
/// tools that the configuration gives it, or with the built-in ones. What it did is kept: after a crash, a reboot or
/// Ctrl-C, `--resume` goes on with the session.
///
/// Holds can be decided here or anywhere else: whoever is first closes them everywhere. In a pipe or with --json there
/// is nobody to ask, and the policy's `unattended` says what happens then.
///
/// With COUNTERSIGN_URL and an agent's token in COUNTERSIGN_TOKEN, the tools run here, but the server there judges and
/// holds their calls by its own policy, and its people decide. With the server's public key in COUNTERSIGN_SERVER_KEY,
/// nothing runs that is not signed by it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The agent [default: the only one there is]
    pub(crate) agent: Option<String>,
    /// What to say to it
    pub(crate) prompt: Option<String>,
    /// Go on with a session where it stopped
    #[arg(long, value_name = "SESSION")]
    pub(crate) resume: Option<String>,
    /// Use a session of this name, begun or to be begun
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    session: Option<String>,
    /// List the sessions there are
    #[arg(long, conflicts_with_all = ["agent", "resume", "session"])]
    list: bool,
    /// Use this model: NAME of the configured provider, or PROVIDER/NAME with the provider's usual key variable
    #[arg(long, value_name = "[PROVIDER/]NAME")]
    pub(crate) model: Option<String>,
    /// Play the model yourself: type its calls, as in `transfer_money amount=100`, and its answers
    #[arg(long, conflicts_with_all = ["model", "script"])]
    pub(crate) manual: bool,
    /// Let the model follow a script
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(crate) script: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
}

const EXAMPLES: &str = r#"Examples:
  countersign run                                    # a conversation with the only agent
  countersign run banker "send 100 to Bo"            # one answer
  countersign run --manual                           # without a model: you type its calls
  countersign run --list
  countersign run --resume session_0190…             # go on after a restart
  countersign run banker "send 100 to Bo" --json     # one event a line; never asks

In a conversation: Ctrl-C stops the run, twice leaves at once, Ctrl-D or /quit ends. The arrow keys edit what you type
and bring back what you typed before, here or in an earlier conversation about the same store; a line that begins with a
blank is not kept. Alt-Enter begins another line."#;

/// Runs an agent.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    if args.list {
        return list(&args.place, form).await;
    }
    let attended = match form == Form::Text && prompt::is_interactive() {
        true => Attended::Yes,
        false => Attended::No,
    };
    let (typist, wishes) = Typist::new();
    let scene = Scene::open(&args, attended, typist).await?;
    let name = args.resume.clone().or_else(|| args.session.clone());
    let name = name.unwrap_or_else(|| scene.agent.new_session().id().to_owned());
    settle(scene.gate.store(), &name, scene.there.as_ref()).await?;
    let session = scene.agent.session(name).requester(person().id);
    let asking = asking(&scene, attended);
    let mut talk = Talk::new(scene.gate.clone(), attended, asking, form, wishes, |name| scene.past(name))?;
    let visit = Visit { args: &args, session, gate: &scene.gate, attended, prompt: scene.prompt.clone() };
    let ended = visit.go(&mut talk).await;
    if let Err(error) = scene.gate.checkpoint().await {
        out::warn(format_args!("the record could not be signed: {}", out::safe_lines(&error.to_string())));
    }
    ended
}

/// Who is asked about holds. Where it is nobody here, that is said.
fn asking(scene: &Scene, attended: Attended) -> Asking {
    match (&scene.there, attended) {
        (Some(There { url, principal }), _) => {
            let (at, principal) = (escape(url), escape(principal));
            out::say(format_args!("{at} judges and holds the calls of `{principal}`, by its own policy"));
            Asking::At(url.clone())
        }
        (None, Attended::Yes) => Asking::Here,
        (None, Attended::No) => {
            say_unattended(scene.gate.policy().unattended());
            Asking::Others
        }
    }
}

/// What was asked for, in one session.
struct Visit<'a> {
    args: &'a Args,
    session: Session,
    gate: &'a Gate,
    attended: Attended,
    prompt: Option<String>,
}

impl Visit<'_> {
    async fn go(mut self, talk: &mut Talk) -> Result<(), Fault> {
        match (self.prompt.take(), &self.args.resume, self.attended) {
            (Some(prompt), ..) => self.once(talk, Some(prompt)).await,
            (None, Some(_), Attended::No) => self.once(talk, None).await,
            (None, None, Attended::No) => {
                let prompt = self.piped(talk).await?;
                self.once(talk, Some(prompt)).await
            }
            (None, _, Attended::Yes) => self.conversation(talk).await,
        }
    }

    /// Answers once.
    async fn once(&self, talk: &mut Talk, prompt: Option<String>) -> Result<(), Fault> {
        self.say_session().await?;
        let stream = match prompt {
            Some(prompt) => self.session.stream(prompt),
            None => self.session.resume_stream(),
        };
        talk.attend(stream).await??;
        match (talk.teller.unanswered, self.attended) {
            (0, _) | (_, Attended::Yes) => Ok(()),
            (count, Attended::No) => Err(Fault::refused(format!("nobody answered about {count} of the calls"))
                .next("run it in a terminal, or set `unattended: wait` and decide with `countersign approve`")),
        }
    }

    async fn conversation(&self, talk: &mut Talk) -> Result<(), Fault> {
        self.say_session().await?;
        out::say(out::paint(out::DIM, "Ctrl-C stops a run, Ctrl-D ends."));
        if self.args.resume.is_some() {
            report(talk.attend(self.session.resume_stream()).await?);
        }
        while let Some(said) = talk.listen().await? {
            report(talk.attend(self.session.stream(said)).await?);
        }
        Ok(())
    }

    /// What is piped in is what is said.
    async fn piped(&self, talk: &mut Talk) -> Result<String, Fault> {
        if self.args.manual || std::io::stdin().is_terminal() {
            return Err(Fault::usage("there is nothing to say to the agent")
                .next("give a prompt: countersign run AGENT \"PROMPT\""));
        }
        let said = talk.keyboard.rest().await?;
        match said.trim().is_empty() {
            true => Err(Fault::usage("the input is empty").next("give a prompt: countersign run AGENT \"PROMPT\"")),
            false => Ok(said),
        }
    }

    /// Says which session this is, and to somebody who comes back to it what was said there.
    async fn say_session(&self) -> Result<(), Fault> {
        let words = format!("session {}", escape(self.session.id()));
        out::say(out::paint(out::DIM, words));
        match (&self.args.resume, self.attended) {
            (Some(_), Attended::Yes) => show_history(self.gate.store(), self.session.id()).await,
            _ => Ok(()),
        }
    }
}

/// In a conversation an error ends the run and not the conversation.
fn report(ended: Result<Reply, RunError>) {
    if let Err(error) = ended {
        out::say(format_args!("{} {}", out::paint(out::BAD, "error:"), Fault::from(error)));
    }
}

fn say_unattended(unattended: Unattended) {
    let words = match unattended {
        Unattended::Deny => "calls that need a person are refused (`unattended: deny`)",
        Unattended::Allow => "calls that need a person run unasked (`unattended: allow`)",
        Unattended::Wait => "calls that need a person wait for one elsewhere (`unattended: wait`)",
    };
    out::say(format_args!("nobody can be asked here: {words}"));
}

async fn list(place: &Place, form: Form) -> Result<(), Fault> {
    let store = open_store(place).await?;
    let sessions = all_sessions(&store).await?;
    if form == Form::Json {
        return Ok(out::json(&sessions)?);
    }
    if sessions.is_empty() {
        out::say("There are no sessions. `countersign run` begins one.");
        return Ok(());
    }
    let holds = open_holds(&store, None).await?;
    let waiting = |session: &str| {
        let count = holds.iter().filter(|hold| hold.call.facts.path.session.as_deref() == Some(session)).count();
        if count == 0 { "-".to_owned() } else { count.to_string() }
    };
    let row = |listed: &countersign_agent::Listed| {
        vec![
            Cell::styled(out::BOLD, &listed.session),
            Cell::new(&listed.agent),
            Cell::styled(out::WAIT, waiting(&listed.session)),
            Cell::new(listed.created_at),
        ]
    };
    let rows: Vec<Vec<Cell>> = sessions.iter().map(row).collect();
    for line in out::table(&["session", "agent", "waiting", "begun"], &rows, out::columns()) {
        out::data(line)?;
    }
    Ok(())
}
