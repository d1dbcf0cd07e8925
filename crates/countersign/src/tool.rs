//! Tools: what an agent may call. A tool's body is reachable only through a [`Running`], which only a consumed
//! [`Permit`](crate::permit::Permit) becomes.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::call::{Call, Declared, Repeat, ToolId};
use crate::digest::DefinitionDigest;
use crate::json::{Bounds, IngestError, Json};
use crate::limits;
use crate::permit::Running;
use crate::place::Places;
use crate::refusal::Refusal;
use crate::schema::{Schema, SchemaError};

/// What a tool is, for models, approvers and rules.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Definition {
    /// Its identity.
    pub tool: ToolId,
    /// What it does, for the model to read.
    pub description: Arc<str>,
    /// What its arguments must be, as JSON Schema.
    pub input_schema: Json,
    /// What to tell whoever is asked; the tool's name, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Arc<str>>,
    /// What a crash while it runs means.
    #[serde(default)]
    pub repeat: Repeat,
    /// What its server claims about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
    /// The toolset or skill it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolset: Option<Arc<str>>,
    #[serde(skip)]
    schema: OnceLock<Result<Schema, SchemaError>>,
    #[serde(skip)]
    digest: OnceLock<DefinitionDigest>,
    #[serde(skip)]
    default_hint: OnceLock<Arc<str>>,
}

impl Definition {
    /// A local tool that takes any object.
    pub fn new(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> Definition {
        Definition {
            tool: ToolId::local(name),
            description: description.into(),
            input_schema: Json::empty(),
            hint: None,
            repeat: Repeat::default(),
            annotations: None,
            toolset: None,
            schema: OnceLock::new(),
            digest: OnceLock::new(),
            default_hint: OnceLock::new(),
        }
    }

    /// Sets what its arguments must be.
    pub fn with_schema(mut self, schema: &serde_json::Value) -> Result<Definition, IngestError> {
        self.input_schema = Json::of(schema)?;
        Ok(self)
    }

    /// The hash of everything that describes the tool. Another description is another tool.
    pub fn digest(&self) -> DefinitionDigest {
        *self.digest.get_or_init(|| {
            let text = Json::of(&serde_json::json!({
                "annotations": self.annotations,
                "description": self.description,
                "input_schema": self.input_schema,
                "name": self.tool.name,
                "repeat": self.repeat,
                "server": self.tool.server,
            }));
            // A definition that has no canonical form hashes as its raw parts; it matches nothing but itself.
            match text {
                Ok(text) => DefinitionDigest::of(text.as_str().as_bytes()),
                Err(_) => DefinitionDigest::of(format!("{self:?}").as_bytes()),
            }
        })
    }

    /// The compiled schema, or why it is none.
    pub fn schema(&self) -> Result<&Schema, SchemaError> {
        self.schema.get_or_init(|| Schema::compile(&self.input_schema)).as_ref().map_err(Clone::clone)
    }

    /// The words for whoever is asked.
    pub fn hint_or_default(&self) -> Arc<str> {
        let default = || Arc::clone(self.default_hint.get_or_init(|| format!("Run `{}`", self.tool).into()));
        self.hint.clone().unwrap_or_else(default)
    }
}

/// Why a tool did not give a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It answered with an error. Its text goes to the model.
    #[error("{0}")]
    Failed(String),
    /// Its own question was refused.
    #[error("refused: {}", .0.kind.as_str())]
    Refused(Refusal),
    /// It cannot say whether it happened.
    #[error("no answer: {0}")]
    NoAnswer(String),
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> Self {
        ToolError::Refused(refusal)
    }
}

impl From<serde_json::Error> for ToolError {
    fn from(error: serde_json::Error) -> Self {
        ToolError::Failed(error.to_string())
    }
}

/// What a verifiable tool knows about an earlier run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// It happened; this was the result.
    Applied(Json),
    /// It was tried and came to this error.
    Failed(String),
    /// It did not happen.
    NotApplied,
    /// Nobody can tell.
    Unknown,
}

/// Something an agent may call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What it is.
    fn definition(&self) -> Arc<Definition>;

    /// What it says about these arguments. Read anew at each call; never sees invalid ones. An error means ask.
    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(Declared::Nothing)
    }

    /// Something for whoever is asked to look at: what these arguments would change. Must change nothing itself.
    ///
    /// Asked for only when a hold is about to open. It becomes the hold's payload, bound by its digest, in place of
    /// whatever the agent gave along. A member `before` is shown as its difference to the argument `content`.
    async fn preview(&self, _arguments: &Json) -> Option<Json> {
        None
    }

    /// Says where in the file system these arguments point: every link followed, and what is not there yet resolved by
    /// the nearest folder that is. Read anew at each call, before it is frozen; never sees invalid arguments.
    ///
    /// People are shown it, folder grants look at nothing else, and the tool finds it again in its [`Running`]: acting
    /// on that place, and not on a second reading of the argument, keeps a link from leading elsewhere meanwhile. An
    /// argument that cannot be resolved is left out; an error means none.
    async fn places(&self, _arguments: &Json) -> Result<Places, String> {
        Ok(Places::default())
    }

    /// Does it. There is no other way in than a [`Running`], and only a consumed permit becomes one.
    async fn run(&self, running: Running) -> Result<Json, ToolError>;

    /// Says whether an earlier run happened, for tools of the class `verifiable`.
    async fn verify(&self, _call: &Call) -> Verified {
        Verified::Unknown
    }
}

/// Asks a tool what it says, so that an error or a panic means ask.
pub(crate) fn declared(tool: &dyn Tool, arguments: &Json) -> Declared {
    match catch_unwind(AssertUnwindSafe(|| tool.declares(arguments))) {
        Ok(Ok(declared)) => declared,
        Ok(Err(_)) | Err(_) => Declared::AskForThese,
    }
}

/// A preview that panicked, came late or was too much.
pub(crate) struct NoPreview;

/// Asks a tool for something to look at.
pub(crate) async fn preview(tool: &dyn Tool, arguments: &Json) -> Result<Option<Json>, NoPreview> {
    let preview = AssertUnwindSafe(async { tool.preview(arguments).await }).catch_unwind();
    let preview = crate::gate::within(limits::PREVIEW_WITHIN, preview).await;
    let preview = preview.ok_or(NoPreview)?.map_err(|_| NoPreview)?;
    preview.map(|json| Json::ingest(json.as_str(), Bounds::PAYLOAD).map_err(|_| NoPreview)).transpose()
}

/// Asks a tool where the arguments point, so that an error or a panic means nowhere.
pub(crate) async fn places(tool: &dyn Tool, arguments: &Json) -> Places {
    match AssertUnwindSafe(async { tool.places(arguments).await }).catch_unwind().await {
        Ok(Ok(places)) => places,
        Ok(Err(_)) | Err(_) => Places::default(),
    }
}

/// Several tools under one name.
pub trait Toolset: Send + Sync {
    /// Its name, for rules (`toolset:NAME`).
    fn name(&self) -> Arc<str>;
    /// Its tools, as they are now.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;
}

/// A toolset all of whose tools ask first. The originals stay as they are.
pub struct AsksFirst<T> {
    inner: T,
    declared: Declared,
}

/// Declares for all tools of a toolset: each is asked about.
pub fn asks_first<T: Toolset>(inner: T) -> AsksFirst<T> {
    AsksFirst { inner, declared: Declared::Ask }
}

/// Declares for all tools of a toolset: each is must-ask.
pub fn always_asks<T: Toolset>(inner: T) -> AsksFirst<T> {
    AsksFirst { inner, declared: Declared::MustAsk }
}

impl<T: Toolset> Toolset for AsksFirst<T> {
    fn name(&self) -> Arc<str> {
        self.inner.name()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let wrap = |inner| Arc::new(Declaring { inner, declared: self.declared, toolset: None }) as Arc<dyn Tool>;
        self.inner.tools().into_iter().map(wrap).collect()
    }
}

/// The same tool, known to rules as one that came with this toolset or skill.
pub fn came_with(toolset: &Arc<str>, inner: Arc<dyn Tool>) -> Arc<dyn Tool> {
    let told = named(&inner.definition(), toolset);
    let toolset = Some((Arc::clone(toolset), told));
    Arc::new(Declaring { inner, declared: Declared::Nothing, toolset })
}

fn named(definition: &Definition, toolset: &Arc<str>) -> Arc<Definition> {
    Arc::new(Definition { toolset: Some(Arc::clone(toolset)), ..definition.clone() })
}

/// A tool with more said about it: what its toolset declares, or which toolset that is.
struct Declaring {
    inner: Arc<dyn Tool>,
    declared: Declared,
    /// Its toolset's name, and its definition with that name as it was last seen.
    toolset: Option<(Arc<str>, Arc<Definition>)>,
}

#[async_trait]
impl Tool for Declaring {
    fn definition(&self) -> Arc<Definition> {
        let now = self.inner.definition();
        match &self.toolset {
            None => now,
            // SECURITY: a definition that changed since must show as changed, or a claim would not notice.
            Some((toolset, told)) if told.digest() != now.digest() => named(&now, toolset),
            Some((_, told)) => Arc::clone(told),
        }
    }

    fn declares(&self, arguments: &Json) -> Result<Declared, String> {
        Ok(self.inner.declares(arguments)?.max(self.declared))
    }

    async fn preview(&self, arguments: &Json) -> Option<Json> {
        self.inner.preview(arguments).await
    }

    async fn places(&self, arguments: &Json) -> Result<Places, String> {
        self.inner.places(arguments).await
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        self.inner.run(running).await
    }

    async fn verify(&self, call: &Call) -> Verified {
        self.inner.verify(call).await
    }
}

type Body = Box<dyn Fn(Running) -> BoxFuture<'static, Result<Json, ToolError>> + Send + Sync>;
type Predicate = Box<dyn Fn(&Json) -> Result<bool, String> + Send + Sync>;
type Resolve = Box<dyn Fn(&Json) -> Result<Places, String> + Send + Sync>;

/// A tool made from a function.
pub struct FnTool {
    definition: Arc<Definition>,
    declared: Declared,
    asks_when: Option<Predicate>,
    resolve: Option<Resolve>,
    body: Body,
}

/// Makes a tool from a definition and an async function.
pub fn tool<F, Fut>(definition: Definition, body: F) -> FnTool
where
    F: Fn(Running) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Json, ToolError>> + Send + 'static,
{
    FnTool {
        definition: Arc::new(definition),
        declared: Declared::Nothing,
        asks_when: None,
        resolve: None,
        body: Box::new(move |running| Box::pin(body(running))),
    }
}

impl FnTool {
    /// Declares that every call is asked about, where the policy says `declared`.
    #[must_use]
    pub fn asks_first(mut self) -> FnTool {
        self.declared = Declared::Ask;
        self
    }

    /// Declares must-ask: only people lift it, whatever the policy says.
    #[must_use]
    pub fn always_asks(mut self) -> FnTool {
        self.declared = Declared::MustAsk;
        self
    }

    /// Declares that calls are asked about depending on their arguments. An error means ask.
    #[must_use]
    pub fn asks_when(mut self, predicate: impl Fn(&Json) -> Result<bool, String> + Send + Sync + 'static) -> FnTool {
        self.asks_when = Some(Box::new(predicate));
        self
    }

    /// Says how the places its arguments point to are resolved, as [`Tool::places`] asks for.
    #[must_use]
    pub fn resolves(mut self, resolve: impl Fn(&Json) -> Result<Places, String> + Send + Sync + 'static) -> FnTool {
        self.resolve = Some(Box::new(resolve));
        self
    }
}

#[async_trait]
impl Tool for FnTool {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    fn declares(&self, arguments: &Json) -> Result<Declared, String> {
        match &self.asks_when {
            Some(predicate) if predicate(arguments)? => Ok(self.declared.max(Declared::AskForThese)),
            _ => Ok(self.declared),
        }
    }

    async fn places(&self, arguments: &Json) -> Result<Places, String> {
        match &self.resolve {
            Some(resolve) => resolve(arguments),
            None => Ok(Places::default()),
        }
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        (self.body)(running).await
    }
}
