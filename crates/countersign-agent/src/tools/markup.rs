//! HTML as rough text: no tags, no scripts, no long blanks.

/// Elements whose content nobody reads.
const SILENT: [&str; 5] = ["script", "style", "noscript", "template", "svg"];
/// Elements that begin a new line.
const BREAKS: [&str; 16] =
    ["p", "br", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article", "pre", "table", "ul"];
/// The entities that matter for reading.
const ENTITIES: [(&str, &str); 6] =
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")];

/// The text of an HTML page. One pass; no markup, however broken, costs more than its length.
pub(super) fn text(html: &str) -> String {
    let mut out = String::with_capacity(html.len() / 4);
    let mut rest = html;
    while let Some((before, after)) = rest.split_once('<') {
        out.push_str(before);
        let (tag, after) = match after.strip_prefix("!--") {
            Some(comment) => ("", comment.split_once("-->").map_or("", |(_, after)| after)),
            None => after.split_once('>').unwrap_or((after, "")),
        };
        let name = name_of(tag);
        if BREAKS.contains(&name.trim_start_matches('/')) {
            out.push('\n');
        }
        rest = match SILENT.contains(&name.as_str()) {
            true => after_end_of(&name, after),
            false => after,
        };
    }
    out.push_str(rest);
    let decoded = ENTITIES.iter().fold(out, |text, (entity, char)| text.replace(entity, char));
    tidy(&decoded)
}

fn name_of(tag: &str) -> String {
    let end = tag.find(|char: char| char.is_whitespace()).unwrap_or(tag.len());
    let name = tag.get(..end).unwrap_or_default();
    // No name we look for is longer; a hostile one is not copied.
    name.get(..name.floor_char_boundary(16)).unwrap_or_default().trim_end_matches('/').to_ascii_lowercase()
}

/// What comes after the end tag of a silent element.
fn after_end_of<'h>(name: &str, html: &'h str) -> &'h str {
    let mut rest = html;
    while let Some((_, after)) = rest.split_once("</") {
        rest = after;
        let is_end = rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
        if is_end {
            return rest.split_once('>').map_or("", |(_, after)| after);
        }
    }
    ""
}

/// Single blanks, and no more than one empty line.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = true;
    for line in text.lines() {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if !(line.is_empty() && empty) {
            out.push_str(&line);
            out.push('\n');
        }
        empty = line.is_empty();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_as_its_text() {
        let page = "<html><head><title>T</title><style>p{}</style></head><body><h1>Hello</h1>\
            <script>if (1 < 2) { evil('</p>') }</SCRIPT ><p>one   &amp;\n two</p><!-- <p>no</p> --><p>three</body>";
        assert_eq!(text(page), "T\nHello\n\none &\ntwo\n\nthree\n");
    }

    #[test]
    fn broken_markup_ends() {
        assert_eq!(text("a <b"), "a\n");
        assert_eq!(text("<script>never closed"), "");
        assert_eq!(text(&"<".repeat(10_000)), "");
        assert_eq!(text("<!-- never closed"), "");
    }
}
