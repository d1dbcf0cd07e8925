//! The server, over real connections.

mod calls;
mod docs;
mod events;
mod holds;
mod hostile;
mod matrix;
mod operate;
mod people;
mod stage;
