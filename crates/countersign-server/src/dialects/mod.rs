//! Other systems' ways of asking and answering, each below a prefix of its own. They translate and nothing more: what is
//! decided here is decided as everywhere.

pub(crate) mod mcp;
pub(crate) mod saiki;

use crate::table::Route;

/// The routes of all dialects.
pub(crate) fn routes() -> Vec<Route> {
    [saiki::routes(), mcp::routes()].into_iter().flatten().collect()
}

/// Whether a path is for programs: below it there are no pages, and nothing but JSON comes in.
pub(crate) fn is_for_programs(path: &str) -> bool {
    ["/v1", "/saiki", "/mcp"].iter().any(|prefix| {
        let rest = path.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}
