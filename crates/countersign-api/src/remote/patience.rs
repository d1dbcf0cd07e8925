//! Asking again: how often, and for how long.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::client::ClientError;
use crate::wire::Code;

/// How long a server may be away, when nobody says otherwise.
const AWAY_FOR: Duration = Duration::from_secs(60);
/// The pause before the second request.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two requests.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long to go on asking a server that does not answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    most: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience::of(AWAY_FOR)
    }
}

impl Patience {
    pub(super) fn of(most: Duration) -> Patience {
        Patience { most }
    }

    /// Makes a request until it is answered, with growing pauses. Says too whether the first was answered.
    ///
    /// Only for requests that the server takes for one, however often they arrive.
    pub(super) async fn ask<T, F>(&self, request: impl Fn() -> F) -> (Result<T, ClientError>, Asked)
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut away_since = None;
        let (mut pause, mut asked) = (FIRST_PAUSE, Asked::Once);
        loop {
            let answer = request().await;
            let Err(error) = &answer else { return (answer, asked) };
            let Some(least) = pause_after(error) else { return (answer, asked) };
            // Counted from the first failure: a request that waits for people may have waited long before it.
            let now = Instant::now();
            let since = *away_since.get_or_insert(now);
            let next = now + pause.max(least);
            if next >= since + self.most {
                return (answer, asked);
            }
            sleep_until(next).await;
            (pause, asked) = ((pause * 2).min(LONGEST_PAUSE), Asked::Again);
        }
    }
}

/// How often something was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The first request was answered.
    Once,
    /// An answer was lost, or not given.
    Again,
}

/// How long to wait at least before asking again; none where the answer stands.
fn pause_after(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::Unreachable(_) | ClientError::Strange(_) => Some(Duration::ZERO),
        ClientError::Refused(problem) => match (problem.code, problem.retry_after) {
            (Code::Unavailable | Code::Internal, _) => Some(Duration::ZERO),
            (Code::Limit, Some(seconds)) => Some(Duration::from_secs(seconds)),
            _ => None,
        },
        ClientError::Address(..) | ClientError::NoProvider => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::wire::Problem;

    async fn asked(errors: impl Fn(u32) -> Option<ClientError>) -> (Result<u32, ClientError>, Asked, u32) {
        let tries = AtomicU32::new(0);
        let request = || {
            let attempt = tries.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = errors(attempt).map_or(Ok(attempt), Err);
            async move { answer }
        };
        let (answer, asked) = Patience::of(Duration::from_secs(10)).ask(request).await;
        (answer, asked, tries.load(Ordering::Relaxed))
    }

    fn away(_: u32) -> Option<ClientError> {
        Some(ClientError::Unreachable("gone".to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_comes_back_is_heard_and_one_that_stays_away_is_given_up() {
        let (answer, how, _) = asked(|attempt| (attempt < 4).then(|| away(attempt)).flatten()).await;
        assert!(matches!((answer, how), (Ok(4), Asked::Again)));
        let began = Instant::now();
        let (answer, _, tries) = asked(away).await;
        assert!(matches!(answer, Err(ClientError::Unreachable(_))));
        assert!((5..20).contains(&tries), "{tries}");
        assert!(began.elapsed() <= Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_no_is_an_answer_and_a_rate_is_kept() {
        let no = |code| move |_| Some(ClientError::Refused(Box::new(Problem::new(code))));
        assert_eq!(asked(no(Code::AlreadyClaimed)).await.2, 1);
        assert!(asked(no(Code::Unavailable)).await.2 > 1);
        let began = Instant::now();
        let slowly = |attempt| {
            let problem = Problem { retry_after: Some(3), ..Problem::new(Code::Limit) };
            (attempt == 1).then(|| ClientError::Refused(Box::new(problem)))
        };
        assert!(matches!(asked(slowly).await, (Ok(2), Asked::Again, 2)));
        assert!(began.elapsed() >= Duration::from_secs(3));
    }
}
