//! Reads a licence expression: names joined by `OR` (older manifests: `/`) and `AND`, in parentheses.

/// Whether `expression` is satisfied by the licences that `allowed` says yes to. What cannot be read is not.
pub(crate) fn is_satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest, allowed) == Some(true) && rest.is_empty()
}

fn any(rest: &mut &[&str], allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut satisfied = all(rest, allowed)?;
    while take(rest, "OR") {
        satisfied |= all(rest, allowed)?;
    }
    Some(satisfied)
}

fn all(rest: &mut &[&str], allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut satisfied = one(rest, allowed)?;
    while take(rest, "AND") {
        satisfied &= one(rest, allowed)?;
    }
    Some(satisfied)
}

fn one(rest: &mut &[&str], allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    if take(rest, "(") {
        let satisfied = any(rest, allowed)?;
        return take(rest, ")").then_some(satisfied);
    }
    let (name, after) = rest.split_first()?;
    *rest = after;
    if !take(rest, "WITH") {
        return Some(allowed(name));
    }
    let (exception, after) = rest.split_first()?;
    *rest = after;
    // An exception only adds rights, so the plain licence is enough.
    Some(allowed(name) || allowed(&format!("{name} WITH {exception}")))
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, after)) if *first == word => {
            *rest = after;
            true
        }
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: bool) {
        let allowed = |name: &str| matches!(name, "MIT" | "Apache-2.0" | "ISC");
        assert_eq!(is_satisfied(expression, &allowed), expected, "{expression}");
    }

    #[test]
    fn one_of_several_is_enough_and_all_of_several_are_needed() {
        check("MIT", true);
        check("GPL-3.0", false);
        check("GPL-3.0 OR MIT", true);
        check("GPL-3.0/MIT", true);
        check("MIT AND GPL-3.0", false);
        check("GPL-3.0 OR MIT AND ISC", true);
        check("(GPL-3.0 OR MIT) AND ISC", true);
        check("(MIT OR ISC) AND GPL-3.0", false);
        check("Apache-2.0 WITH LLVM-exception", true);
        check("GPL-3.0 WITH Classpath-exception", false);
    }

    #[test]
    fn what_cannot_be_read_is_not_allowed() {
        check("", false);
        check("MIT OR", false);
        check("(MIT", false);
        check("MIT ISC", false);
        check("MIT)", false);
    }
}
