//! Where the holds are: a server, or a store opened here. Both look the same from the inbox.

use std::sync::Arc;
use std::time::Duration;

use countersign::call::Path;
use countersign::digest::CallDigest;
use countersign::grant::{Remember, RememberCovers, RememberScope};
use countersign::store::{CallFilter, Order};
use countersign::transition::Rejection;
use countersign::{Answer, Call, Decision, GateError, Hold, HoldId, callers};
use countersign_api::client::{Client, ClientError};
use countersign_api::wire::{self, Code, NewDecision, timestamp};
use jiff::Timestamp;

use crate::commands::find;
use crate::desk::Desk;
use crate::fault::Fault;
use crate::offer;
use crate::person::person;
use crate::prompt::Offer;

/// The most holds that are listed: the oldest. What is decided makes room for the next.
pub(super) const LISTED: usize = 1_000;
/// The most closed holds that are listed: the newest.
const REMEMBERED: usize = 200;

/// Where the holds are.
#[derive(Clone)]
pub(crate) enum Source {
    /// On a server.
    Server(Client),
    /// In a store that is open here.
    Local(Arc<Desk>),
}

/// The holds that wait, and what else there is to know at that moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listing {
    /// Oldest first.
    pub(crate) holds: Vec<wire::Hold>,
    /// Whether still more wait.
    pub(crate) more: bool,
    /// The store's clock.
    pub(crate) now: Timestamp,
    /// Whether every claim is halted.
    pub(crate) halted: bool,
    /// The version of the policy in force.
    pub(crate) policy: String,
}

/// What may be remembered of a hold with one coverage.
#[derive(Clone, Debug)]
pub(crate) struct Coverage {
    /// In words: `exactly these arguments` and the like.
    pub(crate) words: String,
    /// The grants that may be made.
    pub(crate) offers: Vec<Offer>,
}

/// How a grant is wanted, besides where it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Arguments in which later calls must be equal: a coverage of its own where any is named.
    pub(crate) fields: Vec<String>,
    /// For how long; none where the policy's own time is right.
    pub(crate) expires_after: Option<Duration>,
    /// For how many calls after this one; none for any number.
    pub(crate) uses: Option<u32>,
}

impl Source {
    /// The holds that wait.
    pub(crate) async fn list(&self) -> Result<Listing, Fault> {
        match self {
            Source::Server(client) => {
                let me = client.me().await?;
                let page = client.holds(&[("limit", &LISTED.to_string())]).await?;
                let (more, now) = (page.next.is_some(), me.now);
                Ok(Listing { holds: page.items, more, now, halted: me.halted, policy: me.policy })
            }
            Source::Local(desk) => {
                let filter = CallFilter { holding: true, limit: Some(LISTED + 1), ..CallFilter::default() };
                let calls = desk.store().calls(filter).await?;
                let alone = callers::without(&**desk.store(), &calls).await?;
                let open = |call: &Arc<Call>| {
                    let hold = Hold::of(call, call.open_hold()?.id)?;
                    Some(wire::Hold { no_caller: alone.contains(&call.id), ..wire::Hold::from(&hold) })
                };
                let holds = calls.iter().take(LISTED).filter_map(open).collect();
                Ok(Listing {
                    holds,
                    more: calls.len() > LISTED,
                    now: timestamp(desk.store().now().await?),
                    halted: desk.store().halted(&Path::default()).await?,
                    policy: desk.gate.policy().version().to_string(),
                })
            }
        }
    }

    /// One hold with all there is to see.
    pub(crate) async fn detail(&self, id: HoldId) -> Result<wire::HoldDetail, Fault> {
        match self {
            Source::Server(client) => Ok(client.hold(id).await?),
            Source::Local(desk) => {
                let hold = find(desk, id).await?;
                let now = desk.store().now().await?;
                let mut detail = wire::HoldDetail::of(&hold, desk.gate.view(&hold, now).await?, now);
                detail.halted = desk.store().halted(&hold.call.facts.path).await?;
                Ok(detail)
            }
        }
    }

    /// Decides a hold that was seen with this digest.
    pub(crate) async fn decide(&self, id: HoldId, digest: CallDigest, answer: Answer) -> Result<wire::Decided, Fault> {
        match self {
            Source::Server(client) => Ok(client.decide(id, &on_the_wire(digest, answer)).await?),
            Source::Local(desk) => {
                let decided = desk.gate.decide(id, Decision::new(person(), "inbox", digest, answer)).await?;
                // The decision stands either way; whoever checks the record sees what is not signed yet.
                let _ = desk.gate.checkpoint().await;
                wire::Decided::of(&decided, id).ok_or_else(|| Fault::failed("the hold is gone"))
            }
        }
    }

    /// What may be remembered of a hold: the narrowest first, and nothing that may not.
    pub(crate) async fn coverages(
        &self,
        hold: HoldId,
        folders: &[wire::Folder],
        terms: &Terms,
    ) -> Result<Vec<Coverage>, Fault> {
        let mut coverages = Vec::new();
        for (words, covers) in wishes(folders, &terms.fields) {
            let mut offers = Vec::new();
            for scope in [RememberScope::Session, RememberScope::Global] {
                let Terms { expires_after, uses, .. } = *terms;
                let remember = Remember { scope, covers: covers.clone(), expires_after, uses };
                if let Some(lines) = self.preview(hold, remember.clone()).await? {
                    offers.push(Offer { remember, lines });
                }
            }
            if !offers.is_empty() {
                coverages.push(Coverage { words, offers });
            }
        }
        Ok(coverages)
    }

    /// How a grant would read; none where it may not be made.
    async fn preview(&self, id: HoldId, remember: Remember) -> Result<Option<Vec<String>>, Fault> {
        match self {
            Source::Server(client) => {
                let remember = remembered(remember);
                match client.preview_grant(id, &wire::PreviewGrant { remember, arguments: None }).await {
                    Ok(preview) => Ok(Some(offer::lines(&preview))),
                    Err(ClientError::Refused(problem)) if problem.code == Code::GrantRefused => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
            Source::Local(desk) => match desk.gate.preview_grant(id, &remember).await {
                Ok(preview) => Ok(Some(offer::lines(&preview.into()))),
                Err(GateError::Rejected(Rejection::Grant(_))) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Holds that are closed, the newest first.
    pub(crate) async fn closed(&self) -> Result<Vec<Closed>, Fault> {
        let mut closed: Vec<Closed> = match self {
            Source::Server(client) => {
                let calls = client.calls(&[("order", "newest"), ("limit", &REMEMBERED.to_string())]).await?;
                calls.items.iter().flat_map(Closed::of).collect()
            }
            Source::Local(desk) => {
                let newest = CallFilter { order: Order::Newest, limit: Some(REMEMBERED), ..CallFilter::default() };
                let calls = desk.store().calls(newest).await?;
                calls.iter().flat_map(|call| Closed::of(&wire::Call::from(&**call))).collect()
            }
        };
        closed.sort_by_key(|hold| std::cmp::Reverse(hold.at));
        closed.truncate(REMEMBERED);
        Ok(closed)
    }
}

/// A hold that is closed, as the history lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) id: HoldId,
    /// When the last was said about it, or when it opened.
    pub(crate) at: Timestamp,
    /// How it ended: `approved`, `denied`, `expired` …
    pub(crate) state: &'static str,
    /// The tool and its server. Not yet escaped.
    pub(crate) tool: String,
    /// Who decided last and how; none where nobody did. Not yet escaped.
    pub(crate) by: Option<String>,
}

impl Closed {
    fn of(call: &wire::Call) -> Vec<Closed> {
        let server = call.server.as_deref().map(|server| format!("{server}/")).unwrap_or_default();
        let closed = |hold: &wire::HoldBrief| {
            let last = hold.decisions.last();
            let reason =
                |last: &wire::Decision| last.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            Closed {
                id: hold.id,
                at: last.map_or(hold.opened_at, |last| last.at),
                state: hold.state.as_str(),
                tool: format!("{server}{}", call.tool),
                by: last.map(|last| format!("{} via {}{}", last.by, last.channel, reason(last))),
            }
        };
        call.holds.iter().filter(|hold| hold.state.as_str() != "pending").map(closed).collect()
    }
}

/// What a person might want covered, narrowest first.
fn wishes(folders: &[wire::Folder], fields: &[String]) -> Vec<(String, RememberCovers)> {
    let mut wishes = vec![("exactly these arguments".to_owned(), RememberCovers::Exact)];
    if !fields.is_empty() {
        let names: Vec<String> = fields.iter().map(|field| format!("`{}`", countersign::show::escape(field))).collect();
        wishes.push((format!("calls equal in {}", names.join(", ")), RememberCovers::Fields(fields.to_vec())));
    }
    for wire::Folder { field, .. } in folders {
        let words = format!("where `{}` leads into the same folder", countersign::show::escape(field));
        wishes.push((words, RememberCovers::Folder(field.clone())));
    }
    wishes.push(("every call of the tool".to_owned(), RememberCovers::Tool));
    wishes
}

/// An answer as a server takes it.
pub(crate) fn on_the_wire(digest: CallDigest, answer: Answer) -> NewDecision {
    let decision = NewDecision::approve(digest);
    match answer {
        Answer::Deny { reason } => NewDecision::deny(digest, reason),
        Answer::Respond { response } => {
            NewDecision { answer: wire::AnswerWord::Respond, response: Some(response), ..decision }
        }
        Answer::Approve { arguments, payload, remember } => {
            NewDecision { arguments, payload, remember: remember.map(remembered), ..decision }
        }
    }
}

fn remembered(Remember { scope, covers, expires_after, uses }: Remember) -> wire::Remember {
    wire::Remember { scope, covers, expires_after: expires_after.map(wire::Span), uses }
}
