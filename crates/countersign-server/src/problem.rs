//! Why a request was not done, as an answer.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign::GateError;
use countersign::store::{Failure, StoreError};
use countersign::transition::Rejection;
use countersign_api::wire::{Code, Problem};

use crate::limits;

/// A problem on its way out.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Box<Problem>);

/// What a handler returns.
pub(crate) type Answer<T> = Result<T, Refused>;

impl Refused {
    /// A problem of this kind.
    pub(crate) fn new(code: Code) -> Refused {
        Refused(Box::new(Problem::new(code)))
    }

    /// A problem of this kind, and what it is this time.
    pub(crate) fn because(code: Code, detail: impl Into<String>) -> Refused {
        Refused(Box::new(Problem::new(code).detail(detail)))
    }

    /// Too much; try again after so many seconds.
    pub(crate) fn later(seconds: u64, detail: &str) -> Refused {
        let problem = Problem { retry_after: Some(seconds), ..Problem::new(Code::Limit).detail(detail) };
        Refused(Box::new(problem))
    }

    /// Absent and foreign answer the same.
    pub(crate) fn not_found() -> Refused {
        Refused::new(Code::NotFound)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (retry_after, code) = (self.0.retry_after, self.0.code);
        let body = serde_json::to_string(&*self.0).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(code);
        response
    }
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Refused {
        let code = match &rejection {
            Rejection::NotFound(_) => return Refused::not_found(),
            Rejection::Closed(_) => Code::HoldClosed,
            Rejection::DigestMismatch => Code::DigestMismatch,
            Rejection::Repeated(_) => Code::AlreadyDecided,
            Rejection::NotEligible(..) => Code::NotEligible,
            Rejection::HumanRequired(_) => Code::HumanRequired,
            Rejection::Requester(_) => Code::Requester,
            Rejection::EditDenied(_) => Code::EditDenied,
            Rejection::InRunOnly => Code::InRunOnly,
            Rejection::Grant(_) | Rejection::NotCovered => Code::GrantRefused,
            Rejection::WrongState(_) => Code::WrongState,
            Rejection::AlreadyClaimed(_) => Code::AlreadyClaimed,
            Rejection::Halted => Code::Halted,
            Rejection::StaleFence { .. } => Code::StaleFence,
            Rejection::KeyReused => Code::KeyReused,
            Rejection::Limit { .. } => return Refused::later(limits::FULL_FOR.as_secs(), &rejection.to_string()),
            Rejection::StalePolicy | Rejection::Conflict => Code::Conflict,
            // Whatever the core adds, it is a no.
            _ => Code::Conflict,
        };
        Refused::because(code, rejection.to_string())
    }
}

impl From<GateError> for Refused {
    fn from(error: GateError) -> Refused {
        match error {
            GateError::Rejected(rejection) => rejection.into(),
            GateError::Store(error) => error.into(),
            GateError::BadInput(why) => Refused::because(Code::BadRequest, why),
            GateError::BadEdit(_) => Refused::because(Code::InvalidEdit, error.to_string()),
            GateError::BrokenPolicy(_) => Refused::because(Code::BrokenPolicy, error.to_string()),
            error => {
                tracing::error!(%error, "a request failed");
                Refused::new(Code::Internal)
            }
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Refused {
        // The store's words name files and hosts: they are for the operator's log.
        tracing::error!(%error, "the store failed");
        Refused::new(Code::Unavailable)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        match failure {
            Failure::Rejected(rejection) => rejection.into(),
            Failure::Store(error) => error.into(),
        }
    }
}

impl From<serde_json::Error> for Refused {
    fn from(error: serde_json::Error) -> Refused {
        tracing::error!(%error, "an answer could not be written");
        Refused::new(Code::Internal)
    }
}
