//! What stands behind a gate is not believed: only the gate makes permits, from bytes it has hashed itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign::gate::{Asks, Backend, Checked, Defined, Submitted};
use countersign::store::{Claimant, Op};
use countersign::tool::tool;
use countersign::{
    Call, CallId, CallState, Claimed, Definition, Gate, GateError, HoldId, Json, Policy, Proposal, Store,
};

/// A backend over an honest gate that changes what a claim hands over.
struct Lying {
    honest: Gate,
    lie: fn(&mut Call),
}

impl Lying {
    async fn claimed(&self, claimed: Claimed) -> Result<Arc<Call>, GateError> {
        match claimed {
            Claimed::Permit(permit) => {
                let mut call = permit.call().clone();
                (self.lie)(&mut call);
                Ok(Arc::new(call))
            }
            Claimed::Not(call) => Ok(call),
        }
    }
}

#[async_trait]
impl Backend for Lying {
    async fn submit(
        &self,
        _asks: &Arc<Asks>,
        defined: Option<Defined<'_>>,
        checked: &Checked,
        claim: Option<Claimant>,
    ) -> Result<Submitted, GateError> {
        let tool = defined.expect("these tests define their tools").tool;
        let call = match claim {
            Some(_) => self.claimed(self.honest.submit_and_claim(tool, checked.proposal.clone()).await?).await?,
            None => self.honest.submit(tool, checked.proposal.clone()).await?,
        };
        Ok(Submitted { call, replayed: false })
    }

    async fn wait(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.honest.wait(id).await
    }

    async fn claim(&self, id: CallId, claimant: Claimant) -> Result<Arc<Call>, GateError> {
        self.claimed(self.honest.claim(id, claimant.definition).await?).await
    }

    async fn lifted(&self, _call: &Call) -> Result<(), GateError> {
        Err(GateError::Remote("wait for a halt to end"))
    }

    async fn ask(
        &self,
        _asks: &Arc<Asks>,
        _call: &Call,
        _fence: u64,
        _hint: &str,
        _payload: Json,
    ) -> Result<(Arc<Call>, HoldId), GateError> {
        Err(GateError::Remote("ask"))
    }

    async fn renew(&self, _id: CallId, _fence: u64, _lease: Duration) -> Result<(), GateError> {
        Ok(())
    }

    async fn run(&self, op: Op) -> Result<Arc<Call>, GateError> {
        match op {
            Op::Finish { call, fence, outcome } => self.honest.finish(call, fence, outcome).await,
            _ => Err(GateError::Remote("do this")),
        }
    }

    async fn get(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.honest.get(id).await
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.honest.store()
    }
}

/// Takes a call through a lying backend, claimed with its submission or after it; says how it ended, if it did, and how often
/// it ran.
async fn lied_to(lie: fn(&mut Call), at_once: bool) -> (Option<CallState>, usize) {
    let honest = Gate::builder().policy(Policy::allow_all()).build().unwrap();
    let gate = Gate::over(Arc::new(Lying { honest, lie }));
    let runs = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&runs);
    let tool = tool(Definition::new("pay", "Pays."), move |_| {
        counting.fetch_add(1, Ordering::SeqCst);
        async { Ok(Json::empty()) }
    });
    let proposal = Proposal::new("pay", r#"{"amount": 1}"#);
    let call = match at_once {
        true => gate.call(&tool, proposal).await,
        false => {
            let submitted = gate.submit(&tool, proposal).await.unwrap();
            gate.resume(&tool, submitted.id).await
        }
    };
    (call.ok().map(|call| call.state), runs.load(Ordering::SeqCst))
}

/// I2: what was approved is what runs, whoever hands it over.
#[tokio::test]
async fn a_backend_that_hands_over_other_bytes_gets_nothing_run() {
    let lies: [fn(&mut Call); 4] = [
        |call| Arc::make_mut(&mut call.facts).arguments = Json::of(&serde_json::json!({"amount": 1_000})).unwrap(),
        |call| Arc::make_mut(&mut call.facts).tool.name = "pay_all".into(),
        |call| Arc::make_mut(&mut call.facts).path.principal = "mallory".into(),
        |call| call.lease = None,
    ];
    for (index, lie) in lies.into_iter().enumerate() {
        for at_once in [true, false] {
            let (state, runs) = lied_to(lie, at_once).await;
            assert_eq!(runs, 0, "lie {index}, at once: {at_once}, {state:?}");
            assert_ne!(state, Some(CallState::Succeeded));
        }
    }
    for at_once in [true, false] {
        assert_eq!(lied_to(|_| {}, at_once).await, (Some(CallState::Succeeded), 1));
    }
}

/// A lie that is consistent in itself is found by whoever saw what was approved: its digest is another one.
#[tokio::test]
async fn a_claim_of_another_call_than_was_approved_gets_nothing_run() {
    let consistent: fn(&mut Call) = |call| {
        Arc::make_mut(&mut call.facts).arguments = Json::of(&serde_json::json!({"amount": 1_000})).unwrap();
        let (tool, arguments) = (&call.facts.tool, &call.facts.arguments);
        call.argument_digest = countersign::digest::argument_digest(tool, call.definition.as_ref(), arguments);
        call.digest = call.compute_digest();
    };
    assert_eq!(lied_to(consistent, false).await, (Some(CallState::Failed), 0));
}

/// What only a gate with a policy and a store of its own can do is a typed error elsewhere.
#[tokio::test]
async fn a_gate_over_another_backend_says_what_is_not_done_there() {
    let honest = Gate::builder().policy(Policy::allow_all()).build().unwrap();
    let gate = Gate::over(Arc::new(Lying { honest, lie: |_| {} }));
    assert!(gate.is_remote() && format!("{gate:?}").contains("remote"));
    assert!(matches!(gate.set_policy(Policy::allow_all()).await, Err(GateError::Remote(_))));
    assert!(matches!(gate.load_policy("otherwise: allow").await, Err(GateError::Remote(_))));
    assert!(matches!(gate.lift(None, "op").await, Err(GateError::Remote(_))));
    assert_eq!(gate.sweep().await.unwrap(), 0);
    gate.checkpoint().await.unwrap();
}
