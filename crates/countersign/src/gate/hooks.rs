//! What stands before judging: schema, hooks and authorizer, in that order; and what comes after the end.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::call::{Call, CallState, Declared, Path, ToolId};
use crate::gate::{GateError, Proposal};
use crate::json::Json;
use crate::limits::{self, Limits};
use crate::place::Places;
use crate::refusal::{Refusal, RefusalKind};
use crate::store::{Expect, Failure, Store};
use crate::tool::{Definition, Tool, declared, places};

/// What a hook or authorizer sees: the tool, its validated arguments, and whose call it is.
#[derive(Clone, Debug)]
pub struct Proposed {
    /// The tool.
    pub tool: ToolId,
    /// The arguments, valid for the tool's schema.
    pub arguments: Json,
    /// Whose call it is.
    pub path: Path,
}

/// What a before-hook says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAnswer {
    /// Nothing against it.
    Pass,
    /// Run it with these arguments instead. Validated again.
    Rewrite(Json),
    /// Refuse it.
    Refuse(String),
    /// Have people asked, whatever the rules allow.
    Ask(String),
}

/// What an authorizer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorized {
    /// It may go on to be judged.
    Yes,
    /// It may not.
    No(String),
}

type Before = Arc<dyn Fn(Proposed) -> BoxFuture<'static, Result<HookAnswer, String>> + Send + Sync>;
type Authorize = Arc<dyn Fn(Proposed) -> BoxFuture<'static, Result<Authorized, String>> + Send + Sync>;
type After = Arc<dyn Fn(Arc<Call>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Where the calls whose end was told are kept among the store's records.
const TOLD: &str = "after-hooks";

/// The checks of one gate, in the order they were added.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    before: Vec<Before>,
    authorize: Vec<Authorize>,
    after: Vec<After>,
}

/// A proposal that went through the checks: ready to be frozen, or refused before any rule is asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Checked {
    /// What the agent proposed.
    pub proposal: Proposal,
    /// Its arguments as the hooks left them: these are judged, shown and run.
    pub arguments: Json,
    /// What the tool says about them.
    pub declared: Declared,
    /// Where they point.
    pub places: Places,
    /// Why a hook wants people asked, whatever the rules allow.
    pub raised: Option<String>,
    /// Why it is refused, if it is.
    pub refusal: Option<Refusal>,
}

impl Checked {
    pub(crate) fn refused(proposal: Proposal, arguments: Json, refusal: Refusal) -> Checked {
        Checked { refusal: Some(refusal), ..Checked::passed(proposal, arguments) }
    }

    /// Nothing against it, and nothing known about it.
    pub(crate) fn passed(proposal: Proposal, arguments: Json) -> Checked {
        let (declared, places) = (Declared::Nothing, Places::default());
        Checked { proposal, arguments, declared, places, raised: None, refusal: None }
    }
}

impl Hooks {
    pub(crate) fn add_before<F, Fut>(&mut self, hook: F)
    where
        F: Fn(Proposed) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<HookAnswer, String>> + Send + 'static,
    {
        self.before.push(Arc::new(move |proposed| Box::pin(hook(proposed))));
    }

    pub(crate) fn add_authorizer<F, Fut>(&mut self, authorizer: F)
    where
        F: Fn(Proposed) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Authorized, String>> + Send + 'static,
    {
        self.authorize.push(Arc::new(move |proposed| Box::pin(authorizer(proposed))));
    }

    pub(crate) fn add_after<F, Fut>(&mut self, hook: F)
    where
        F: Fn(Arc<Call>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.after.push(Arc::new(move |call| Box::pin(hook(call))));
    }

    /// Strict parse, schema, hooks, authorizer. The first refusal ends it, and nobody is asked.
    pub(crate) async fn check(
        &self,
        tool: &dyn Tool,
        definition: &Definition,
        proposal: Proposal,
        limits: &Limits,
    ) -> Result<Checked, GateError> {
        proposal.check_names()?;
        let mut arguments = match parse(&proposal, limits).and_then(|json| valid(definition, json)) {
            Ok(arguments) => arguments,
            Err(refusal) => return Ok(Checked::refused(proposal, Json::empty(), refusal)),
        };
        let mut raised = None;
        for hook in &self.before {
            let answer = match caught(|| hook(proposed(&proposal, &arguments)), RefusalKind::Hook).await {
                Ok(answer) => answer,
                Err(refusal) => return Ok(Checked::refused(proposal, arguments, refusal)),
            };
            match answer {
                HookAnswer::Pass => {}
                HookAnswer::Ask(reason) => raised = raised.or(Some(reason)),
                HookAnswer::Refuse(reason) => {
                    let refusal = Refusal::new(RefusalKind::Hook).because(reason);
                    return Ok(Checked::refused(proposal, arguments, refusal));
                }
                HookAnswer::Rewrite(rewritten) => {
                    let checked = Json::arguments(rewritten.as_str(), limits).map_err(|error| invalid(&error));
                    arguments = match checked.and_then(|json| valid(definition, json)) {
                        Ok(arguments) => arguments,
                        Err(refusal) => return Ok(Checked::refused(proposal, Json::empty(), refusal)),
                    };
                }
            }
        }
        if let Err(refusal) = self.authorized(&proposal, &arguments).await {
            return Ok(Checked::refused(proposal, arguments, refusal));
        }
        let declared = declared(tool, &arguments);
        let places = places(tool, &arguments).await;
        Ok(Checked { proposal, arguments, declared, places, raised, refusal: None })
    }

    async fn authorized(&self, proposal: &Proposal, arguments: &Json) -> Result<(), Refusal> {
        for authorize in &self.authorize {
            match caught(|| authorize(proposed(proposal, arguments)), RefusalKind::Error).await? {
                Authorized::Yes => {}
                Authorized::No(reason) => return Err(Refusal::new(RefusalKind::Authorizer).because(reason)),
            }
        }
        Ok(())
    }

    /// These checks, then those.
    pub(crate) fn then(&self, more: &Hooks) -> Hooks {
        let mut all = self.clone();
        all.before.extend(more.before.iter().cloned());
        all.authorize.extend(more.authorize.iter().cloned());
        all.after.extend(more.after.iter().cloned());
        all
    }

    /// Tells every after-hook how a call ended: once, whoever sees the end first, here or after a restart. None of them
    /// can change it.
    pub(crate) async fn after(&self, call: &Arc<Call>, store: &dyn Store) {
        let ended = call.state.is_final() || call.state == CallState::InDoubt;
        if self.after.is_empty() || !ended {
            return;
        }
        // Noted before it is told: what is lost in between was told to nobody, and nothing is told twice.
        let told = store.put_record(TOLD, &call.id.to_string(), b"", Expect::Absent, Some(limits::TOLD_LIFE)).await;
        match told {
            Ok(_) => self.tell(call).await,
            Err(Failure::Rejected(_)) => {}
            Err(Failure::Store(error)) => tracing::warn!(call = %call.id, %error, "no after-hook was told of its end"),
        }
    }

    async fn tell(&self, call: &Arc<Call>) {
        for hook in &self.after {
            let told = AssertUnwindSafe(async { hook(Arc::clone(call)).await }).catch_unwind().await;
            if told.is_err() {
                tracing::warn!(call = %call.id, "an after-hook panicked");
            }
        }
    }
}

fn proposed(proposal: &Proposal, arguments: &Json) -> Proposed {
    Proposed { tool: proposal.tool.clone(), arguments: arguments.clone(), path: proposal.path.clone() }
}

fn invalid(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::InvalidArguments).because(error.to_string())
}

pub(crate) fn parse(proposal: &Proposal, limits: &Limits) -> Result<Json, Refusal> {
    Json::arguments(&proposal.arguments, limits).map_err(|error| invalid(&error))
}

pub(crate) fn valid(definition: &Definition, arguments: Json) -> Result<Json, Refusal> {
    let schema = definition.schema().map_err(|error| {
        Refusal::new(RefusalKind::Error).because(format!("the tool's schema cannot be used: {error}"))
    })?;
    match schema.check(&arguments) {
        Ok(()) => Ok(arguments),
        Err(problems) => Err(Refusal::new(RefusalKind::InvalidArguments).because(problems.join("; "))),
    }
}

/// Runs a check of the embedder's; an error or a panic in it refuses the call.
async fn caught<T>(
    check: impl FnOnce() -> BoxFuture<'static, Result<T, String>>,
    kind: RefusalKind,
) -> Result<T, Refusal> {
    match AssertUnwindSafe(async { check().await }).catch_unwind().await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Refusal::new(kind).because(error)),
        Err(_) => Err(Refusal::new(kind).because("the check panicked")),
    }
}
