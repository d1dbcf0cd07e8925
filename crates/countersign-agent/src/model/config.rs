//! The model a configuration names.

use std::sync::Arc;

use countersign::config::ModelConfig;

use super::dialect::Dialect;
use super::{Anthropic, Gemini, Lines, Manual, Model, ModelError, OpenAi, Pricing, Remote, Responses, Scripted};

/// What a configured model may need and a library cannot find by itself.
#[derive(Clone, Default)]
pub struct Sources<'a> {
    /// The agent it is for: a scripted model plays its part.
    pub agent: &'a str,
    /// The text of the script that `name` is the path of.
    pub script: Option<&'a str>,
    /// Where the lines of a `manual` model come from.
    pub lines: Option<Arc<dyn Lines>>,
}

/// Makes the model a `model:` section describes.
///
/// `openai` is OpenAI's Responses API and `openai-compatible` Chat Completions, which other providers speak too.
/// A key is needed unless `base_url` names a place of one's own.
pub fn from_config(config: &ModelConfig, sources: Sources<'_>) -> Result<Arc<dyn Model>, ModelError> {
    match config.provider.as_str() {
        "anthropic" => Ok(placed(Anthropic::new(key(config, "ANTHROPIC_API_KEY")?, name(config)?), config)),
        "openai" => Ok(placed(Responses::new(key(config, "OPENAI_API_KEY")?, name(config)?), config)),
        "gemini" => Ok(placed(Gemini::new(key(config, "GEMINI_API_KEY")?, name(config)?), config)),
        "openai-compatible" if config.base_url.is_none() => {
            Err(missing(config, "where it is", "`base_url: http://127.0.0.1:11434/v1`"))
        }
        "openai-compatible" => Ok(placed(OpenAi::new(key(config, "")?, name(config)?), config)),
        "scripted" => scripted(config, &sources),
        "manual" => match sources.lines {
            Some(lines) => Ok(Arc::new(Manual::new(lines))),
            None => {
                Err(ModelError::Settings("a `manual` model needs somebody who types, and nobody can here".to_owned()))
            }
        },
        other => Err(ModelError::Settings(format!("there is no provider `{other}`"))),
    }
}

fn placed<D: Dialect + std::fmt::Debug>(model: Remote<D>, config: &ModelConfig) -> Arc<dyn Model> {
    let price = config.price.unwrap_or_default();
    let mut model = model.pricing(Pricing { input: price.input, cached: price.cached, output: price.output });
    if let Some(tokens) = config.max_tokens {
        model = model.max_tokens(tokens);
    }
    match &config.base_url {
        Some(base) => Arc::new(model.base_url(base.clone())),
        None => Arc::new(model),
    }
}

fn scripted(config: &ModelConfig, sources: &Sources<'_>) -> Result<Arc<dyn Model>, ModelError> {
    let Some(path) = filled(config.name.as_deref()) else {
        return Err(missing(config, "a script", "`name: script.yml`"));
    };
    let Some(script) = sources.script else {
        return Err(ModelError::Settings(format!("the script `{path}` was not read")));
    };
    Ok(Arc::new(Scripted::from_yaml(path, script)?.playing(sources.agent)))
}

fn name(config: &ModelConfig) -> Result<&str, ModelError> {
    filled(config.name.as_deref()).ok_or_else(|| missing(config, "the name of a model", "`name: …`"))
}

fn key(config: &ModelConfig, variable: &str) -> Result<String, ModelError> {
    match filled(config.api_key.as_ref().map(|key| key.reveal())) {
        Some(key) => Ok(key.to_owned()),
        None if config.base_url.is_some() => Ok(String::new()),
        None => Err(missing(config, "a key", &format!("`api_key: ${{{variable}}}`"))),
    }
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn missing(config: &ModelConfig, what: &str, line: &str) -> ModelError {
    ModelError::Settings(format!("provider `{}` needs {what}: put {line} under `model:`", config.provider))
}
