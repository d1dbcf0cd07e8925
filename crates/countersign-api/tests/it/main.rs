//! The JSON of the API, as its reference page shows it.

mod docs;
