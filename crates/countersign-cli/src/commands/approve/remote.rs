//! Approving on a server, after its hold was shown here.

use std::time::{Duration, Instant};

use countersign::{Answer, HoldId};
use countersign_api::client::{Client, ClientError};
use countersign_api::wire::{self, Code, NewDecision};

use super::{add_wishes, closed_meanwhile};
use crate::fault::Fault;
use crate::inbox::{Source, Terms, on_the_wire, question};
use crate::offer;
use crate::prompt::{self, Asked, Choice, Question};
use crate::signals::Signals;

/// How long to wait before a server is asked again whether a hold is still open, where it tells of nothing itself.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Shows the hold and asks; what to send. None: nothing is decided.
pub(super) async fn ask(client: &Client, id: HoldId, wanted: Answer) -> Result<Option<NewDecision>, Fault> {
    let source = Source::Server(client.clone());
    let detail = source.detail(id).await?;
    let (hold, now) = (detail.hold.clone(), detail.now);
    if hold.state.as_str() != "pending" {
        return Err(Fault::refused(format!("the hold is already {}", hold.state.as_str())));
    }
    let plain = wanted == Answer::approve();
    let rule = rule(client, id, &wanted).await?;
    let mut question = question(detail);
    add_wishes(&mut question.view, &wanted, &rule);
    if plain {
        let narrowest = source.coverages(hold.id, &[], &Terms::default()).await?.into_iter().next();
        question.offers = narrowest.map(|coverage| coverage.offers).unwrap_or_default();
    }
    question.choices = choices(&question, plain);
    let begin = Instant::now();
    let life = hold.expires_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    let left = move || life.map(|life| life.saturating_sub(begin.elapsed()));
    let mut signals = Signals::listen()?;
    // Nothing is offered here, so no fields are asked for.
    let look = async |_: &[String]| Ok(Vec::new());
    match prompt::ask(question, left, closed(client, id), std::future::pending(), look, &mut signals).await? {
        Asked::Answer(answer) if answer == Answer::approve() => Ok(Some(on_the_wire(hold.digest, wanted))),
        Asked::Answer(answer) => Ok(Some(on_the_wire(hold.digest, answer))),
        Asked::Left | Asked::Joined | Asked::Stop => Ok(None),
        Asked::Closed => Err(closed_meanwhile()),
    }
}

/// How the grant that the options ask for would read; nothing where they ask for none.
async fn rule(client: &Client, id: HoldId, wanted: &Answer) -> Result<Vec<String>, Fault> {
    let Answer::Approve { arguments, remember: Some(remember), .. } = wanted else { return Ok(Vec::new()) };
    let remember = wire::Remember {
        scope: remember.scope,
        covers: remember.covers.clone(),
        expires_after: remember.expires_after.map(wire::Span),
        uses: remember.uses,
    };
    match client.preview_grant(id, &wire::PreviewGrant { remember, arguments: arguments.clone() }).await {
        Ok(preview) => Ok(offer::lines(&preview)),
        Err(ClientError::Refused(problem)) if problem.code == Code::GrantRefused => {
            Err(Fault::refused(format!("nothing can be remembered: {problem}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Leaving it has the focus; other answers than a plain yes are offered only where the options ask for nothing more.
fn choices(question: &Question, plain: bool) -> Vec<Choice> {
    let others = question.choices.iter().copied().filter(|choice| match choice {
        Choice::Approve => false,
        Choice::Remember => plain && !question.offers.is_empty(),
        _ => plain,
    });
    [Choice::Leave, Choice::Approve].into_iter().chain(others).collect()
}

/// Resolves when a hold closes without the person in front of it.
async fn closed(client: &Client, id: HoldId) {
    loop {
        let events = client.events(None).await;
        // A server that cannot be read closes nothing: the decision itself will say what is wrong.
        if client.hold(id).await.is_ok_and(|detail| detail.hold.state.as_str() != "pending") {
            return;
        }
        match events {
            Ok(mut events) => while_nothing_happens_to(&mut events, id).await,
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

async fn while_nothing_happens_to(events: &mut countersign_api::client::Events, id: HoldId) {
    use countersign_api::client::Told;
    let mut ready = false;
    while let Ok(Some(told)) = events.next().await {
        match told {
            Told::Event(event) if ready && event.hold == Some(id) => return,
            Told::Ready(_) => ready = true,
            Told::Resync => return,
            _ => {}
        }
    }
    tokio::time::sleep(LOOK_AGAIN).await;
}
