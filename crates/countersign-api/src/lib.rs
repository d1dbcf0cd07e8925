//! The JSON of Countersign's HTTP API.
//!
//! [`wire`] has one file for each noun; what it does not define is not on the wire. Everything the server reads refuses
//! members it does not know, and every moment is an RFC 3339 text.
//!
//! ```
//! use countersign_api::wire::NewDecision;
//!
//! let digest = format!("cs1c:{}", "0".repeat(64));
//! let body = format!(r#"{{"answer": "deny", "digest": "{digest}", "reason": "not on a Friday"}}"#);
//! let decision: NewDecision = serde_json::from_str(&body).unwrap();
//! assert!(decision.answer().is_ok());
//!
//! let mistaken = body.replace("reason", "raeson");
//! assert!(serde_json::from_str::<NewDecision>(&mistaken).is_err());
//! ```

pub mod client;
pub mod remote;
pub mod wire;

pub use remote::remote;
