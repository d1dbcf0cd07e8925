//! Tools from functions with typed input: the schema comes from the type.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use countersign::call::{Declared, Repeat};
use countersign::{Definition, Json, Running, Tool, ToolError};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;

type Body<I> = Box<dyn Fn(I, Running) -> BoxFuture<'static, Result<Json, ToolError>> + Send + Sync>;
type Predicate<I> = Box<dyn Fn(&I) -> bool + Send + Sync>;

/// A tool made from a function with typed input.
pub struct TypedTool<I> {
    definition: Arc<Definition>,
    declared: Declared,
    asks_when: Option<Predicate<I>>,
    body: Body<I>,
}

/// Makes a tool from a function. Its input type says what arguments must be.
///
/// ```
/// use countersign::{Running, ToolError};
/// use countersign_agent::tool;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Transfer {
///     /// How much, in cents.
///     amount: u64,
///     /// Whose account.
///     to: String,
/// }
///
/// async fn transfer(input: Transfer, _running: Running) -> Result<String, ToolError> {
///     Ok(format!("sent {} to {}", input.amount, input.to))
/// }
///
/// let tool = tool("transfer_money", "Moves money.", transfer).asks_when(|input: &Transfer| input.amount > 10_000);
/// # let _ = tool;
/// ```
pub fn tool<I, O, F, Fut>(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>, body: F) -> TypedTool<I>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + Send + 'static,
    F: Fn(I, Running) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
{
    let mut definition = Definition::new(name, description);
    definition.input_schema = schema_of::<I>();
    let body: Body<I> = Box::new(move |input, running| {
        let ran = body(input, running);
        Box::pin(async move {
            let output = ran.await?;
            Json::of(&output).map_err(|error| ToolError::Failed(format!("the result is not JSON: {error}")))
        })
    });
    TypedTool { definition: Arc::new(definition), declared: Declared::Nothing, asks_when: None, body }
}

/// A type whose schema cannot be written down gets one that nothing fits.
fn schema_of<I: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let schema = settings.into_generator().into_root_schema_for::<I>();
    Json::of(&schema).or_else(|_| Json::of(&false)).unwrap_or_else(|_| Json::string("no schema"))
}

impl<I> TypedTool<I> {
    /// Declares that every call is asked about, where the policy says `declared`.
    #[must_use]
    pub fn asks_first(mut self) -> Self {
        self.declared = Declared::Ask;
        self
    }

    /// Declares must-ask: only people lift it, whatever the policy says.
    #[must_use]
    pub fn always_asks(mut self) -> Self {
        self.declared = Declared::MustAsk;
        self
    }

    /// Declares that calls are asked about depending on their input. A panic means ask.
    #[must_use]
    pub fn asks_when(mut self, predicate: impl Fn(&I) -> bool + Send + Sync + 'static) -> Self {
        self.asks_when = Some(Box::new(predicate));
        self
    }

    /// What to tell whoever is asked.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Arc<str>>) -> Self {
        Arc::make_mut(&mut self.definition).hint = Some(hint.into());
        self
    }

    /// What a crash while it runs means.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        Arc::make_mut(&mut self.definition).repeat = repeat;
        self
    }
}

#[async_trait]
impl<I: DeserializeOwned + Send + 'static> Tool for TypedTool<I> {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    fn declares(&self, arguments: &Json) -> Result<Declared, String> {
        let Some(asks_when) = &self.asks_when else { return Ok(self.declared) };
        let input = arguments.read::<I>().map_err(|error| error.to_string())?;
        match asks_when(&input) {
            true => Ok(self.declared.max(Declared::AskForThese)),
            false => Ok(self.declared),
        }
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let input = running.input::<I>()?;
        (self.body)(input, running).await
    }
}
