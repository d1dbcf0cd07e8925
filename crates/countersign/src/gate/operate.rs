//! What people, operators and toolsets do with a gate, beside the path of a call.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use crate::approver::Hold;
use crate::call::{Call, CallState, Chain, Resolution, ToolId};
use crate::callers::{self, WhoWaits};
use crate::digest::DefinitionDigest;
use crate::event::{Cursor, Draft, Event, EventName};
use crate::gate::{Decided, Gate, GateError, GrantPreview, local};
use crate::grant::{Grant, Remember};
use crate::hold::{Decision, Who};
use crate::id::{CallId, GrantId, HoldId};
use crate::json::Json;
use crate::limits;
use crate::looks;
use crate::policy::Policy;
use crate::refusal::{Refusal, RefusalKind};
use crate::show::{View, WarningKind, escape};
use crate::store::{CallFilter, EventFilter, Op};
use crate::time::Time;
use crate::tool::Tool;
use crate::transition::Rejection;

impl Gate {
    /// Decides a hold, from anywhere.
    pub async fn decide(&self, hold: HoldId, decision: Decision) -> Result<Decided, GateError> {
        self.decide_among(hold, decision, &[]).await
    }

    /// Decides a hold as somebody whose account names these groups, beside those that the policy names.
    pub async fn decide_among(
        &self,
        hold: HoldId,
        decision: Decision,
        groups: &[Arc<str>],
    ) -> Result<Decided, GateError> {
        self.local("decide")?.decide(&self.asks, hold, decision, groups).await
    }

    /// Renders a hold for whoever is asked, under the policy in force, and says if its tool is seen for the first time,
    /// which others look like it, and if nobody waits for the call.
    pub async fn view(&self, hold: &Hold, now: Time) -> Result<View, GateError> {
        let (call, store) = (&hold.call, &**self.store());
        let mut view = View::of(call, hold, now).under(call, &self.policy());
        if self.local("tell first calls from later ones")?.is_first(call).await? {
            view = view.warned(WarningKind::FirstSeen, "");
        }
        let others = looks::look_alikes(store, &call.facts.tool).await?;
        if !others.is_empty() {
            let names: Vec<String> = others.iter().map(|other| escape(&other.to_string())).collect();
            view = view.warned(WarningKind::LookAlike, &names.join(", "));
        }
        if callers::without(store, std::slice::from_ref(call)).await?.contains(&call.id) {
            view = view.warned(WarningKind::NoCaller, "");
        }
        Ok(view)
    }

    /// Shows a grant before a decision makes it: as a rule, with calls it covers and how many it would have covered.
    ///
    /// Rejects what the decision itself would be rejected for. Reads [`limits::PREVIEW_CALLS`] past calls at most.
    pub async fn preview_grant(&self, hold: HoldId, remember: &Remember) -> Result<GrantPreview, GateError> {
        self.local("preview a grant")?.preview_grant(&self.asks, hold, None, remember).await
    }

    /// Shows a grant as [`Gate::preview_grant`] does, for a decision that also edits the arguments.
    pub async fn preview_edited_grant(
        &self,
        hold: HoldId,
        arguments: &Json,
        remember: &Remember,
    ) -> Result<GrantPreview, GateError> {
        self.local("preview a grant")?.preview_grant(&self.asks, hold, Some(arguments), remember).await
    }

    /// Withdraws a call that does not run yet. Withdrawing it again is no error.
    pub async fn cancel(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.backend.run(Op::Cancel { call: id, refusal: Refusal::new(RefusalKind::Cancelled) }).await
    }

    /// Withdraws a call that does not run yet, and says why. Behind a remote gate the reason stays here.
    pub async fn cancel_because(&self, id: CallId, refusal: Refusal) -> Result<Arc<Call>, GateError> {
        self.backend.run(Op::Cancel { call: id, refusal }).await
    }

    /// Withdraws every waiting call the filter names. Returns how many.
    pub async fn cancel_all(&self, filter: CallFilter) -> Result<usize, GateError> {
        let any = |_: &Call| true;
        let waiting = CallFilter { holding: true, ..filter };
        self.withdraw(waiting, &Refusal::new(RefusalKind::Cancelled), any).await
    }

    /// Withdraws every waiting call of one run, among those the filter names. Returns how many.
    pub async fn cancel_run(&self, run: &str, filter: CallFilter) -> Result<usize, GateError> {
        let of_run = |call: &Call| call.facts.path.run.as_deref() == Some(run);
        let waiting = CallFilter { holding: true, ..filter };
        self.withdraw(waiting, &Refusal::new(RefusalKind::Cancelled), of_run).await
    }

    /// Withdraws the calls of a filter that a test picks. Returns how many.
    async fn withdraw(
        &self,
        filter: CallFilter,
        refusal: &Refusal,
        picks: impl Fn(&Call) -> bool,
    ) -> Result<usize, GateError> {
        let mut withdrawn = 0;
        let mut filter = CallFilter { limit: Some(limits::PAGE_ROWS), ..filter };
        loop {
            let calls = self.store().calls(filter.clone()).await?;
            let Some(last) = calls.last() else { return Ok(withdrawn) };
            filter.after = Some(last.id);
            for call in calls.iter().filter(|call| picks(call)) {
                match self.backend.run(Op::Cancel { call: call.id, refusal: refusal.clone() }).await {
                    Ok(_) => withdrawn += 1,
                    Err(GateError::Rejected(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Stops every claim at once, for one agent or for all. Ends nothing.
    pub async fn halt(&self, agent: Option<&str>, by: &str, reason: Option<&str>) -> Result<(), GateError> {
        let local = self.local("halt")?;
        let reason = reason.map(|reason| local.noted(reason));
        local.store.run(Op::Halt { agent: agent.map(Arc::from), by: by.into(), reason }).await?;
        Ok(())
    }

    /// Lets claims go on.
    pub async fn lift(&self, agent: Option<&str>, by: &str) -> Result<(), GateError> {
        let op = Op::Lift { agent: agent.map(Arc::from), by: by.into() };
        self.local("lift a halt")?.store.run(op).await?;
        Ok(())
    }

    /// Settles a doubt by what somebody found out. Its moment is the store's; secrets in the reason are masked.
    pub async fn resolve(&self, call: CallId, resolution: Resolution) -> Result<Arc<Call>, GateError> {
        let local = self.local("settle a doubt")?;
        let resolution = Resolution { reason: local.noted(&resolution.reason), ..resolution };
        local.run(Op::Resolve { call, resolution }).await
    }

    /// Revokes a grant. It acts at the next claim.
    pub async fn revoke(&self, grant: GrantId, by: Who) -> Result<Grant, GateError> {
        let applied = self.local("revoke a grant")?.store.run(Op::Revoke { grant, by }).await?;
        applied.grant.map(|grant| *grant).ok_or(GateError::Rejected(Rejection::NotFound("grant")))
    }

    /// Tries a tool against the policy, before it is ever called. One that cannot be judged is not to be offered.
    ///
    /// On a remote gate only its schema is tried here; the server judges each call.
    pub fn admit(&self, tool: &dyn Tool) -> Result<(), GateError> {
        let definition = tool.definition();
        match &self.local {
            Some(local) => local.admit(&definition),
            None => local::usable(&definition),
        }
    }

    /// A tool's definition changed: calls of the old one that do not run yet are withdrawn, and its grants are revoked.
    ///
    /// Returns how many calls were withdrawn. Behind a remote gate the grants are left to the server's operator: they
    /// cover no other definition.
    pub async fn supersede(&self, old: &DefinitionDigest) -> Result<usize, GateError> {
        self.supersede_all(&HashSet::from([*old])).await
    }

    /// Does the same for many definitions at once. Doing it again is no error, and finds only what came since.
    pub async fn supersede_all(&self, old: &HashSet<DefinitionDigest>) -> Result<usize, GateError> {
        let refusal = Refusal::new(RefusalKind::Superseded).because("the tool's definition changed");
        let is_old = |call: &Call| call.definition.is_some_and(|definition| old.contains(&definition));
        let state = |state| CallFilter { state: Some(state), ..CallFilter::default() };
        let mut withdrawn = 0;
        // In the order in which calls move on, so that none slips from one list into the next unseen.
        for filter in [
            CallFilter { holding: true, ..CallFilter::default() },
            state(CallState::Approved),
            state(CallState::Allowed),
        ] {
            withdrawn += self.withdraw(filter, &refusal, is_old).await?;
        }
        if let Some(local) = &self.local {
            local.void_grants(old).await?;
        }
        Ok(withdrawn)
    }

    /// Records something that changes no call, such as what became of a tool. A server's log is its own, so behind a
    /// remote gate nothing is recorded.
    pub async fn note(&self, draft: Draft) -> Result<(), GateError> {
        if let Some(local) = &self.local {
            local.store.run(Op::Note { chain: Chain::system(), draft }).await?;
        }
        Ok(())
    }

    /// The policy in force. A remote gate does not know its server's, and has one that asks about everything in its place.
    pub fn policy(&self) -> Arc<Policy> {
        static UNKNOWN: LazyLock<Arc<Policy>> = LazyLock::new(|| Arc::new(Policy::ask_all()));
        match &self.local {
            Some(local) => local.policy.load_full(),
            None => Arc::clone(&UNKNOWN),
        }
    }

    /// Which of a server's tools, or of local ones, a rule hides. A remote gate asks its server.
    pub async fn hidden(&self, server: Option<&str>, names: &[Arc<str>]) -> Result<HashSet<Arc<str>>, GateError> {
        let Some(local) = &self.local else {
            return Ok(self.backend.hidden(server, names).await?.into_iter().collect());
        };
        let policy = local.policy.load();
        let server: Option<Arc<str>> = server.map(Arc::from);
        let hides = |name: &&Arc<str>| policy.hides(&ToolId { server: server.clone(), name: Arc::clone(name) });
        Ok(names.iter().filter(hides).cloned().collect())
    }

    /// Tells whoever shows a call to people who waits for it, where that is a server: in a store of one's own the
    /// [records](crate::callers) say so.
    pub async fn tell_who_waits(&self, call: CallId, who: &WhoWaits) -> Result<(), GateError> {
        match &self.local {
            Some(_) => Ok(()),
            None => self.backend.tell_who_waits(call, who).await,
        }
    }

    /// Puts another policy in force, for the next judging and for every claim.
    pub async fn set_policy(&self, policy: Policy) -> Result<(), GateError> {
        self.local("set a policy")?.set_policy(policy).await
    }

    /// Reads a policy and puts it in force. A broken one is recorded and changes nothing.
    pub async fn load_policy(&self, yaml: &str) -> Result<(), GateError> {
        match Policy::from_yaml(yaml) {
            Ok(policy) => self.set_policy(policy).await,
            Err(errors) => {
                self.reject_policy(&errors.to_string()).await?;
                Err(GateError::BrokenPolicy(errors.to_string()))
            }
        }
    }

    /// Records that a policy was broken and the last good one stays.
    pub async fn reject_policy(&self, problem: &str) -> Result<(), GateError> {
        let local = self.local("reject a policy")?;
        let draft = Draft::new(EventName::PolicyRejected).text("problem", &local.noted(problem));
        local.store.run(Op::Note { chain: Chain::system(), draft }).await?;
        Ok(())
    }

    /// Does what time brings to calls nobody waits for: expiry, lapse, doubt. Returns how many moved.
    ///
    /// A server does this by itself, so behind a remote gate there is nothing to do.
    pub async fn sweep(&self) -> Result<usize, GateError> {
        match &self.local {
            Some(local) => local.sweep().await,
            None => Ok(0),
        }
    }

    /// Signs the heads of all chains that moved, if the gate has a key. A server does this by itself, too.
    pub async fn checkpoint(&self) -> Result<(), GateError> {
        match &self.local {
            Some(local) => local.checkpoint().await,
            None => Ok(()),
        }
    }

    /// Reads events after a cursor and, where there are none yet, waits for some.
    pub async fn next_events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, GateError> {
        loop {
            let listener = self.store().bell().listen_any();
            let events = self.store().events(after, filter.clone()).await?;
            if !events.is_empty() {
                return Ok(events);
            }
            listener.await;
        }
    }
}
