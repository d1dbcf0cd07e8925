//! What operators deploy with: the image's file, as far as it can be read without building it, and the unit of systemd,
//! where systemd is there to read it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

const INSTRUCTIONS: &[&str] = &[
    "FROM",
    "RUN",
    "COPY",
    "ENV",
    "ARG",
    "WORKDIR",
    "USER",
    "VOLUME",
    "EXPOSE",
    "STOPSIGNAL",
    "ENTRYPOINT",
    "CMD",
    "LABEL",
];

/// What is wrong with the files under `deploy`.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    let path = root.join("deploy").join("Containerfile");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut complaints = of_image(&text, &|source| root.join(source).exists());
    complaints.extend(of_unit(&root.join("deploy").join("countersign.service"))?);
    Ok(complaints)
}

/// One instruction, its continued lines joined.
struct Step<'t> {
    line: usize,
    word: &'t str,
    rest: String,
}

fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut goes_on = false;
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let part = line.trim_end_matches('\\').trim_end();
        match steps.last_mut().filter(|_| goes_on) {
            Some(step) => step.rest = format!("{} {part}", step.rest),
            None => {
                let (word, rest) = part.split_once(' ').unwrap_or((part, ""));
                steps.push(Step { line: number, word, rest: rest.to_owned() });
            }
        }
        goes_on = line.ends_with('\\');
    }
    steps
}

fn of_image(text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let steps = steps(text);
    let mut complaints: Vec<String> = steps.iter().filter_map(|step| of_step(step, exists)).collect();
    let stages = steps.iter().filter(|step| step.word == "FROM").count();
    if stages < 2 {
        complaints.push("Containerfile: what builds is in the image that runs".to_owned());
    }
    let last = steps.iter().rposition(|step| step.word == "FROM").unwrap_or_default();
    let user = steps.iter().skip(last).rfind(|step| step.word == "USER");
    if !user.is_some_and(|step| !matches!(step.rest.split(':').next(), Some("root" | "0" | ""))) {
        complaints.push("Containerfile: it runs as root".to_owned());
    }
    complaints
}

fn of_step(step: &Step<'_>, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    let at = |why: String| Some(format!("Containerfile:{}: {why}", step.line));
    if !INSTRUCTIONS.contains(&step.word) {
        return at(format!("unknown instruction `{}`", step.word));
    }
    let image = step.rest.split(' ').next().unwrap_or_default();
    let tag = image.rsplit_once('/').map_or(image, |(_, name)| name).split_once(':').map(|(_, tag)| tag);
    if step.word == "FROM" && matches!(tag, None | Some("latest")) {
        return at(format!("`{image}` is another image every day"));
    }
    if matches!(step.word, "ENTRYPOINT" | "CMD") && !step.rest.starts_with('[') {
        return at("a shell stands between the program and its signals".to_owned());
    }
    let from_here = step.word == "COPY" && !step.rest.contains("--from=");
    let words: Vec<&str> = step.rest.split(' ').filter(|word| !word.starts_with("--")).collect();
    let missing = words.split_last().and_then(|(_, sources)| sources.iter().find(|source| !exists(source)));
    missing.filter(|_| from_here).and_then(|source| at(format!("there is no `{source}`")))
}

/// What systemd says of the unit; only that the program is not installed here is no complaint.
fn of_unit(unit: &Path) -> Result<Vec<String>> {
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(unit).output() else {
        eprintln!("    systemd-analyze is not here: {} was not looked at", unit.display());
        return Ok(Vec::new());
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours = |line: &&str| line.contains("countersign.service") && !line.contains("is not executable");
    Ok(said.lines().filter(ours).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(of_image(text, &|source| source == "web"), expected, "{text}");
    }

    #[test]
    fn an_image_is_pinned_built_apart_and_not_roots() {
        let good = "FROM x/rust:1 AS build\nRUN a \\\n  && b\nFROM y:2\nCOPY --from=build /a /a\nUSER 65532:65532\n";
        check(good, &[]);
        check(&good.replace("USER 65532:65532", "USER root"), &["Containerfile: it runs as root"]);
        check(&good.replace("USER 65532:65532\n", ""), &["Containerfile: it runs as root"]);
        check(&good.replace("y:2", "y"), &["Containerfile:4: `y` is another image every day"]);
        check(&format!("{good}COPY web /x\nCOPY wob /x\n"), &["Containerfile:8: there is no `wob`"]);
        check(&format!("{good}ADD x /x\n"), &["Containerfile:7: unknown instruction `ADD`"]);
        check(&format!("{good}CMD serve\n"), &["Containerfile:7: a shell stands between the program and its signals"]);
        check("FROM y:2\nUSER 1\n", &["Containerfile: what builds is in the image that runs"]);
    }
}
