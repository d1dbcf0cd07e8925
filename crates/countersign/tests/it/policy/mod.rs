//! The policy from outside: properties, a reference judge, and hostile texts.

mod hostile;
mod properties;
mod random;
mod reference;

use std::sync::Arc;

use countersign::call::Declared;
use countersign::time::Time;
use countersign::{Facts, Json, Path, ToolId};

/// The facts of a call.
fn facts(tool: ToolId, arguments: &str, agents: &[&str]) -> Facts {
    Facts {
        tool,
        toolset: None,
        arguments: Json::arguments(arguments, &countersign::Limits::default()).unwrap(),
        path: Path { agents: agents.iter().map(|agent| Arc::from(*agent)).collect(), ..Path::default() },
        declared: Declared::Nothing,
        annotations: None,
        places: Default::default(),
        at: Time(0),
    }
}
