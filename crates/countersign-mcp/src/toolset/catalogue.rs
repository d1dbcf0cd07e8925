//! What a server lists, and what of it is offered.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use countersign::call::{Declared, Repeat};
use countersign::digest::DefinitionDigest;
use countersign::{Definition, Gate, Json, Tool, ToolId};
use rmcp::model;

use super::LeftOut;
use super::line::Line;
use super::tool::McpTool;
use crate::gateway::Identity;
use crate::gateway::pins::{self, AGENTS, Seen, Snapshot};
use crate::limits;
use countersign::looks::look;

/// Which tools of a server ask first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Confirm {
    #[default]
    None,
    All,
    Always,
    Named(HashSet<String>),
}

impl Confirm {
    fn declared(&self, tool: &str) -> Declared {
        match self {
            Confirm::None => Declared::Nothing,
            Confirm::All => Declared::Ask,
            Confirm::Always => Declared::MustAsk,
            Confirm::Named(names) if names.contains(tool) => Declared::Ask,
            Confirm::Named(_) => Declared::Nothing,
        }
    }
}

/// What comparing a listing with its pins came to.
#[derive(Default)]
struct Compared {
    /// The tools that nobody may be offered, and why.
    refused: HashMap<String, String>,
    /// What is void while they wait to be accepted.
    void: HashSet<DefinitionDigest>,
}

/// The tools of one server, as they were listed last.
pub(super) struct Catalogue {
    server: Arc<str>,
    /// Which program or address answers under the name.
    identity: Identity,
    confirm: Confirm,
    trust_hints: bool,
    line: Arc<Line>,
    listed: Mutex<Listed>,
}

#[derive(Default)]
struct Listed {
    /// Every tool ever listed. One that comes back is compared with what it was.
    known: HashMap<Arc<str>, Arc<McpTool>>,
    offered: Vec<Arc<McpTool>>,
    left_out: Vec<LeftOut>,
    /// Whether some of them wait to be accepted.
    waits: bool,
}

impl Catalogue {
    pub(super) fn new(
        server: Arc<str>,
        identity: Identity,
        confirm: Confirm,
        trust_hints: bool,
        line: Arc<Line>,
    ) -> Catalogue {
        Catalogue { server, identity, confirm, trust_hints, line, listed: Mutex::default() }
    }

    /// Whether tools are left out that somebody may accept any moment.
    pub(super) fn waits(&self) -> bool {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).waits
    }

    pub(super) fn server(&self) -> &Arc<str> {
        &self.server
    }

    pub(super) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.offered.iter().map(|tool| Arc::clone(tool) as Arc<dyn Tool>).collect()
    }

    pub(super) fn left_out(&self) -> Vec<LeftOut> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).left_out.clone()
    }

    /// Takes over a new listing, and voids what was decided about definitions that are no more.
    pub(super) async fn take_over(&self, tools: Vec<model::Tool>, gate: &Gate) {
        let compared = self.compare(&tools, gate).await;
        let mut void = self.replace(tools, &compared.refused, gate);
        void.extend(compared.void);
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).waits = !compared.refused.is_empty();
        if void.is_empty() {
            return;
        }
        if let Err(error) = gate.supersede_all(&void).await {
            // Nothing runs by it all the same: a claim compares definitions itself.
            tracing::warn!(server = %self.server, %error, "holds and grants of a changed tool could not be voided");
        }
    }

    /// Compares what is listed with what was pinned, now or by a process before this one. What cannot be compared is
    /// refused.
    async fn compare(&self, tools: &[model::Tool], gate: &Gate) -> Compared {
        let mut compared = Compared::default();
        let pinned_under = format!("{AGENTS}{}", self.server);
        let known = match pins::all(&**gate.store(), &pinned_under).await {
            Ok(known) => known,
            Err(error) => {
                let why = format!("what it was cannot be read: {error}");
                compared.refused = tools.iter().map(|tool| (tool.name.to_string(), why.clone())).collect();
                return compared;
            }
        };
        compared.void = known.values().filter_map(|(pin, _)| pin.void()).collect();
        let mut times: HashMap<&str, usize> = HashMap::new();
        for tool in tools {
            *times.entry(&tool.name).or_default() += 1;
        }
        // What is listed twice, or cannot be defined, is left out for that.
        for tool in tools.iter().filter(|tool| times.get(&*tool.name) == Some(&1)) {
            let Ok(definition) = self.define(tool) else { continue };
            let refused = match self.snapshot(tool, &definition) {
                Err(why) => Some(why),
                Ok(_) if !known.contains_key(&*tool.name) && known.len() >= limits::TOOLS => {
                    Some("the server has named too many tools".to_owned())
                }
                Ok(snapshot) => {
                    match pins::see(gate, &pinned_under, &tool.name, &snapshot, known.get(&*tool.name)).await {
                        Ok(Seen::Pinned) => None,
                        Ok(Seen::Changed(_) | Seen::Quarantined) => Some(format!(
                            "the server changed what it is, and nobody accepted that yet (`countersign gateway accept \
                             {pinned_under} {}`)",
                            countersign::show::escape(&tool.name)
                        )),
                        Err(error) => Some(format!("what it is could not be pinned: {error}")),
                    }
                }
            };
            compared.refused.extend(refused.map(|why| (tool.name.to_string(), why)));
        }
        compared
    }

    fn snapshot(&self, tool: &model::Tool, definition: &Definition) -> Result<Snapshot, String> {
        let raw = serde_json::value::to_raw_value(tool).map_err(|error| error.to_string())?;
        let digest = definition.digest();
        Ok(Snapshot { definition: pins::pinned(&raw)?, identity: self.identity.clone(), digest })
    }

    fn replace(
        &self,
        tools: Vec<model::Tool>,
        refused: &HashMap<String, String>,
        gate: &Gate,
    ) -> HashSet<DefinitionDigest> {
        let mut looks: HashMap<String, Vec<String>> = HashMap::new();
        for tool in &tools {
            looks.entry(look(&tool.name)).or_default().push(tool.name.to_string());
        }
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.offered.clear();
        listed.left_out.clear();
        let mut superseded = HashSet::new();
        for tool in tools {
            let name: Arc<str> = tool.name.as_ref().into();
            let alike = looks.get(&look(&name)).map_or(&[][..], Vec::as_slice);
            match self.place(&mut listed, &tool, refused.get(&*name), gate, &mut superseded) {
                // SECURITY: of two tools with one name, or with names that look the same, nobody can say which would run.
                Ok(_) if alike.len() > 1 => {
                    let other = alike.iter().find(|other| **other != *name);
                    let why = match other {
                        Some(other) => format!("it looks like `{}`", countersign::show::escape(other)),
                        None => "the server lists two tools of this name".to_owned(),
                    };
                    self.leave_out(&mut listed, name, why);
                }
                Ok(tool) => listed.offered.push(tool),
                Err(why) => self.leave_out(&mut listed, name, why),
            }
        }
        superseded
    }

    fn leave_out(&self, listed: &mut Listed, tool: Arc<str>, why: String) {
        let left_out = LeftOut { server: Arc::clone(&self.server), tool, why };
        tracing::warn!("{left_out}");
        if !listed.left_out.contains(&left_out) {
            listed.left_out.push(left_out);
        }
    }

    /// Finds or makes the tool, and says why it may not be offered.
    fn place(
        &self,
        listed: &mut Listed,
        tool: &model::Tool,
        refused: Option<&String>,
        gate: &Gate,
        superseded: &mut HashSet<DefinitionDigest>,
    ) -> Result<Arc<McpTool>, String> {
        let definition = match refused.map_or_else(|| self.define(tool), |why| Err(why.clone())) {
            Ok(definition) => definition,
            Err(why) => {
                // SECURITY: what was approved of the tool as it was must not run the tool as it is.
                if let Some(known) = listed.known.get(tool.name.as_ref()) {
                    superseded.extend(known.redefine(self.named(&tool.name)));
                }
                return Err(why);
            }
        };
        let tool = match listed.known.get(&definition.tool.name) {
            Some(known) => {
                superseded.extend(known.redefine(definition));
                Arc::clone(known)
            }
            None if listed.known.len() >= limits::TOOLS_PER_SERVER => {
                return Err(format!("the server has named more than {} tools", limits::TOOLS_PER_SERVER));
            }
            None => {
                let name = Arc::clone(&definition.tool.name);
                let declared = self.confirm.declared(&name);
                let tool = Arc::new(McpTool::new(definition, declared, &self.line));
                listed.known.insert(name, Arc::clone(&tool));
                tool
            }
        };
        gate.admit(&*tool).map_err(|error| error.to_string())?;
        Ok(tool)
    }

    fn define(&self, tool: &model::Tool) -> Result<Definition, String> {
        let description = tool.description.as_deref().unwrap_or_default();
        if description.len() > limits::DESCRIPTION_BYTES {
            return Err(format!("its description is longer than {} bytes", limits::DESCRIPTION_BYTES));
        }
        if tool.name.len() > countersign::limits::NAME_BYTES {
            return Err(format!("its name is longer than {} bytes", countersign::limits::NAME_BYTES));
        }
        let mut definition = self.named(&tool.name);
        definition.description = description.into();
        definition.input_schema =
            Json::of(&*tool.input_schema).map_err(|error| format!("its input schema cannot be used: {error}"))?;
        let claims = tool.annotations.as_ref().map(Json::of).transpose();
        definition.annotations = claims.map_err(|error| format!("its annotations cannot be used: {error}"))?;
        definition.repeat = self.repeat(tool.annotations.as_ref());
        Ok(definition)
    }

    /// A definition that says nothing but whose tool it is.
    fn named(&self, tool: &str) -> Definition {
        let mut definition = Definition::new(tool, "");
        definition.tool = ToolId::on(Arc::clone(&self.server), tool);
        definition
    }

    /// What a crash while it runs means. Only a trusted server's word makes a call run again by itself.
    fn repeat(&self, claims: Option<&model::ToolAnnotations>) -> Repeat {
        match claims {
            Some(claims) if self.trust_hints && claims.read_only_hint == Some(true) => Repeat::ReadOnly,
            Some(claims) if self.trust_hints && claims.idempotent_hint == Some(true) => Repeat::Idempotent,
            Some(_) | None => Repeat::AtMostOnce,
        }
    }
}
