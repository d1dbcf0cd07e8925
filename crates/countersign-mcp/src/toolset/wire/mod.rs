//! How messages reach a server: framing, bounds, and whether a call has left us.

mod child;
mod http;
mod pipes;
mod ticket;

pub(super) use child::{Ended, Program, Seat};
pub(super) use http::{Failure, Http};
pub(super) use pipes::Pipes;
pub(super) use ticket::{Ticket, encode, ticket_of};
