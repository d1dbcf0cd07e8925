//! A server as the operator describes it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use countersign::Gate;
use countersign::config::{McpServerConfig, Secret};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::sync::watch;

use super::McpToolset;
use super::catalogue::{Catalogue, Confirm};
use super::error::ConnectError;
use super::line::{Line, Other};
use super::link::Keeper;
use super::wire::{Http, Pipes, Program, Seat};
use crate::gateway::Identity;
use crate::limits;

/// How an MCP server is reached, and what the operator says about it.
#[derive(Clone)]
pub struct McpServer {
    name: Arc<str>,
    way: Option<Way>,
    identity: Option<Identity>,
    confirm: Confirm,
    trust_hints: bool,
    call_within: Duration,
    result_bytes: usize,
}

/// A server that is a program, spoken to over its pipes. The first word is the program, the others are its arguments.
///
/// It inherits no environment: what it needs is given with [`env`](McpServer::env).
pub fn stdio<W: Into<String>>(name: impl Into<Arc<str>>, command: impl IntoIterator<Item = W>) -> McpServer {
    let mut words = command.into_iter().map(Into::into);
    let way = words.next().map(|command| {
        let args = words.collect();
        Way::Program(Program { command, args, env: BTreeMap::new(), folder: None })
    });
    McpServer::new(name.into(), way)
}

/// A server that listens at an address, spoken to over streamable HTTP.
///
/// A TLS provider must be installed before it is connected to; see the front page of `rustls`.
pub fn http(name: impl Into<Arc<str>>, url: impl Into<String>) -> McpServer {
    McpServer::new(name.into(), Some(Way::Address(Address { url: Secret::new(url), headers: BTreeMap::new() })))
}

impl McpServer {
    fn new(name: Arc<str>, way: Option<Way>) -> McpServer {
        McpServer {
            name,
            way,
            identity: None,
            confirm: Confirm::None,
            trust_hints: false,
            call_within: limits::CALL_WITHIN,
            result_bytes: limits::RESULT_BYTES,
        }
    }

    /// The server that an entry of `mcp_servers:` describes. What its `confirm:` says is in the policy already.
    ///
    /// A relative `cwd` starts at `base`.
    pub fn from_config(config: &McpServerConfig, base: &std::path::Path) -> McpServer {
        let way = match (&config.command, &config.url) {
            (Some(command), _) => Some(Way::Program(Program {
                command: command.clone(),
                args: config.args.clone(),
                env: config.env.clone(),
                folder: config.cwd.as_ref().map(|folder| base.join(folder)),
            })),
            (None, Some(url)) => {
                Some(Way::Address(Address { url: Secret::new(url.as_str()), headers: config.headers.clone() }))
            }
            (None, None) => None,
        };
        let server = McpServer::new(Arc::clone(&config.name), way);
        if config.trust_hints { server.trust_hints() } else { server }
    }

    /// Gives a program an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> McpServer {
        if let Some(Way::Program(program)) = &mut self.way {
            program.env.insert(name.into(), Secret::new(value));
        }
        self
    }

    /// Gives a program an environment variable, unless it has one of that name.
    #[must_use]
    pub fn env_or(mut self, name: &str, value: impl Into<String>) -> McpServer {
        if let Some(Way::Program(program)) = &mut self.way {
            program.env.entry(name.to_owned()).or_insert_with(|| Secret::new(value));
        }
        self
    }

    /// The folder a program starts in.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> McpServer {
        if let Some(Way::Program(program)) = &mut self.way {
            program.folder = Some(folder.into());
        }
        self
    }

    /// Sends a header with every request to an address.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> McpServer {
        if let Some(Way::Address(address)) = &mut self.way {
            address.headers.insert(name.into(), Secret::new(value));
        }
        self
    }

    /// Declares for all its tools that they are asked about, where the policy says `declared`.
    #[must_use]
    pub fn asks_first(mut self) -> McpServer {
        self.confirm = Confirm::All;
        self
    }

    /// Declares for these of its tools that they are asked about, where the policy says `declared`.
    #[must_use]
    pub fn asks_first_for<N: Into<String>>(mut self, tools: impl IntoIterator<Item = N>) -> McpServer {
        self.confirm = Confirm::Named(tools.into_iter().map(Into::into).collect());
        self
    }

    /// Declares must-ask for all its tools: only people lift it, whatever the policy says.
    #[must_use]
    pub fn always_asks(mut self) -> McpServer {
        self.confirm = Confirm::Always;
        self
    }

    /// Believes what the server says about its tools: one it calls read-only or idempotent may run again after a crash.
    #[must_use]
    pub fn trust_hints(mut self) -> McpServer {
        self.trust_hints = true;
        self
    }

    /// How long one call may take, from when it is sent. People decide before that, so their time does not count.
    #[must_use]
    pub fn call_within(mut self, time: Duration) -> McpServer {
        self.call_within = time;
        self
    }

    /// How many bytes of a tool's result go to the model.
    #[must_use]
    pub fn result_bytes(mut self, bytes: usize) -> McpServer {
        self.result_bytes = bytes;
        self
    }

    /// Says which program or address answers, where the way to it does not say so itself: one that is started by another.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> McpServer {
        self.identity = Some(identity);
        self
    }

    /// Connects, lists the tools, and stays connected for as long as the toolset lives.
    ///
    /// The gate is the one that judges the calls: it refuses tools it could not judge, and it is told when a definition
    /// changes. Definitions are pinned in its store; one that differs from its pin is not offered until somebody
    /// [accepts](crate::gateway::accept) it under the name `agents:` and the server's. Fails if the server cannot be reached now; one that goes away later is connected to again.
    pub async fn connect(self, gate: &Gate) -> Result<McpToolset, ConnectError> {
        let way = self.way.ok_or_else(|| ConnectError::Nowhere(Arc::clone(&self.name)))?;
        let (other, at_other_end) = watch::channel(Other::Nobody("it is not connected yet".into()));
        let (broken, found_broken) = watch::channel(0);
        let line = Arc::new(Line::new(at_other_end, broken, self.call_within, self.result_bytes));
        let identity = self.identity.unwrap_or_else(|| way.identity());
        let catalogue = Catalogue::new(Arc::clone(&self.name), identity, self.confirm, self.trust_hints, line);
        let catalogue = Arc::new(catalogue);
        let keeper = Keeper {
            server: self.name,
            way,
            catalogue: Arc::clone(&catalogue),
            gate: gate.clone(),
            other,
            broken: found_broken,
            seat: Seat::default(),
            listings: watch::channel(0).0,
        };
        Ok(McpToolset { catalogue, link: Arc::new(keeper.start().await?) })
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The way to a server.
#[derive(Clone)]
pub(super) enum Way {
    Program(Program),
    Address(Address),
}

impl Way {
    fn identity(&self) -> Identity {
        match self {
            Way::Program(program) => {
                Identity::of_command(std::iter::once(&program.command).chain(&program.args).map(String::as_str))
            }
            Way::Address(address) => Identity::of_address(address.url.reveal()),
        }
    }
}

/// How often a stream that was cut is taken up again. Without an end, a call would hang on a server that is gone.
#[derive(Debug)]
struct AFewTimes;

impl SseRetryPolicy for AFewTimes {
    fn retry(&self, times: usize) -> Option<Duration> {
        let twice = u32::try_from(times).ok().filter(|_| times < limits::RESUMES)?;
        limits::BACK_OFF_FIRST.checked_mul(2_u32.checked_pow(twice)?)
    }
}

/// Where a server listens. The address may hold a secret, as some do.
#[derive(Clone)]
pub(super) struct Address {
    url: Secret,
    headers: BTreeMap<String, Secret>,
}

impl Program {
    pub(super) fn start(&self, server: &Arc<str>, seat: &Seat) -> Result<Pipes, ConnectError> {
        let started = seat.start(self).map_err(|error| ConnectError::Start {
            server: Arc::clone(server),
            command: self.command.clone(),
            error,
        })?;
        Ok(Pipes::new(started))
    }
}

impl Address {
    pub(super) fn transport(&self, server: &Arc<str>) -> Result<StreamableHttpClientTransport<Http>, ConnectError> {
        let unusable = |why: &str| ConnectError::Settings { server: Arc::clone(server), why: why.to_owned() };
        let url = Url::parse(self.url.reveal()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| unusable("`url` is not an http or https URL"))?;
        let mut headers = HashMap::new();
        for (name, value) in &self.headers {
            let name = HeaderName::try_from(name).map_err(|_| unusable("a header's name cannot be sent"))?;
            let value = HeaderValue::try_from(value.reveal());
            let mut value = value.map_err(|_| unusable(&format!("the value of the header `{name}` cannot be sent")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(limits::BACK_WITHIN)
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|_| unusable("no HTTP client can be made here"))?;
        // SECURITY: a lost session is a new connection, whose tools are listed anew before any call goes through.
        let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .custom_headers(headers)
            .max_sse_event_size(limits::MESSAGE_BYTES)
            .reinit_on_expired_session(false);
        config.retry_config = Arc::new(AFewTimes);
        Ok(StreamableHttpClientTransport::with_client(Http::new(client), config))
    }
}
