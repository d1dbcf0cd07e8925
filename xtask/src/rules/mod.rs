//! The rules of the house. Each gives back its complaints, one line each; none means it holds.

pub(crate) mod deploy;
pub(crate) mod edges;
pub(crate) mod licences;
pub(crate) mod owners;
pub(crate) mod source;
pub(crate) mod spdx;
