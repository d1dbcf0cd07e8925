//! One file for each noun of the API.

mod audit;
mod call;
mod decision;
mod delivery;
mod event;
mod grant;
mod hold;
mod insight;
mod page;
mod policy;
mod problem;
mod run;
mod session;
mod time;
mod token;
mod tool;
mod who;

pub use audit::{Key, Keys};
pub use call::{Call, Cancel, HoldBrief, Lease, NewCall, NewCaller, Resolution, Resolve, Verdict, Waits};
pub use decision::{AnswerWord, Decided, Decision, NewDecision, Remember};
pub use delivery::{Attempt, Delivery, DeliveryState, Tested, TestedAll};
pub use event::{Event, FromSocket, ToSocket};
pub use grant::{Coverage, Grant, GrantExample, GrantPreview, NewGrant, PreviewGrant};
pub use hold::{Definition, Folder, Hold, HoldDetail, Line, Quorum, Sibling, Warning};
pub use insight::{Insights, Moment, Saving, Tally, Timing, Wait};
pub use page::Page;
pub use policy::{Explain, Explained, Halt, Halted, Policy, Reason};
pub use problem::{Code, Problem};
pub use run::{Bound, BoundHold, Claim, Claimed, NewHold, NewOutcome, OutcomeWord, Receipt, Renew, Renewed, Submitted};
pub use session::{
    CallResult, CancelRun, ClientCall, ClosedHold, NewMessage, NewSession, Session, SessionDetail, SessionEntry,
    SessionEvent, SessionState, SessionStatus, SessionText, SessionThread, SessionUsage, ToolResult, WantedCall, What,
};
pub use time::{BadSpan, Span, timestamp};
pub use token::{MadeToken, NewToken, Role, Token};
pub use tool::{AcceptTool, AskHidden, Hidden, Tool, ToolState};
pub use who::{Health, Me, SignIn};
