//! `${NAME}` in texts.

use crate::policy::Problems;
use crate::policy::yaml::{Node, Tree};

/// Replaces every `${NAME}` in every text by its value. `$${` stands for `${` itself. A name without a value, or none
/// at all, is a problem.
pub(super) fn fill_in(node: &mut Node, env: &dyn Fn(&str) -> Option<String>, problems: &mut Problems<'_>) {
    match &mut node.value {
        Tree::Text(text) => {
            if text.contains("${") {
                match filled(text, env) {
                    Ok(value) => *text = value,
                    Err(message) => problems.add(node.at, message),
                }
            }
        }
        Tree::List(items) => items.iter_mut().for_each(|item| fill_in(item, env, problems)),
        Tree::Map(entries) => entries.iter_mut().for_each(|(_, value)| fill_in(value, env, problems)),
        Tree::Null | Tree::Bool(_) | Tree::Int(_) | Tree::Float(_) => {}
    }
}

fn filled(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            return Err("`${` is never closed".to_owned());
        };
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            return Err(format!("`${{{name}}}` does not name an environment variable"));
        }
        out.push_str(&env(name).ok_or_else(|| format!("environment variable `{name}` is not set"))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
