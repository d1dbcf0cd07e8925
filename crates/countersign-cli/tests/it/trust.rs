//! A folder's own file counts only as it was accepted.

use crate::bed::Bed;

const DENY: &str = "policy: { otherwise: deny }\n";

fn effect(bed: &Bed) -> (i32, String, String) {
    let ran = bed.say("policy explain --tool x --json");
    let effect = serde_json::from_str::<serde_json::Value>(&ran.stdout).ok();
    let effect = effect.and_then(|value| value["effect"].as_str().map(str::to_owned)).unwrap_or_default();
    (ran.code, effect, ran.stderr)
}

#[test]
fn a_folders_file_counts_only_as_it_was_accepted() {
    let bed = Bed::new();
    bed.write("countersign.yml", DENY);
    let (code, found, stderr) = effect(&bed);
    assert_eq!((code, found.as_str()), (0, "ask"), "an untrusted file is not read");
    assert!(stderr.contains("not trusted") && stderr.contains("countersign trust"), "{stderr}");

    let trusted = bed.say("trust --json").expect(0).json();
    assert!(trusted["digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(effect(&bed).1, "deny");

    bed.write("countersign.yml", "policy: { otherwise: allow }\n");
    let (code, found, stderr) = effect(&bed);
    assert_eq!((code, found.as_str()), (3, ""), "a changed file is refused");
    assert!(stderr.contains("has changed since it was trusted") && stderr.contains("countersign trust"), "{stderr}");

    bed.say("trust countersign.yml").expect(0);
    assert_eq!(effect(&bed).1, "allow");
    bed.say("trust --forget").expect(0);
    assert_eq!(effect(&bed).1, "ask");
}

/// A file in another folder, or the user's own, is another matter.
#[test]
fn trust_is_for_one_path_and_the_users_own_file_needs_none() {
    let bed = Bed::new();
    std::fs::create_dir(bed.work().join("other")).unwrap();
    bed.write("other/countersign.yml", DENY);
    bed.say("trust other").expect(0);
    bed.write("countersign.yml", DENY);
    assert_eq!(effect(&bed).1, "ask", "the same text elsewhere is not trusted");
    std::fs::create_dir_all(bed.config().parent().unwrap()).unwrap();
    std::fs::write(bed.config(), DENY).unwrap();
    assert_eq!(effect(&bed).1, "deny");
}

/// B50: beside the user's own policy a folder's file loosens nothing, accepted or not.
#[test]
fn a_folders_file_never_loosens_the_users_own_policy() {
    let bed = Bed::new();
    std::fs::create_dir_all(bed.config().parent().unwrap()).unwrap();
    std::fs::write(bed.config(), DENY).unwrap();
    bed.write("countersign.yml", "policy: { otherwise: allow }\n");
    assert_eq!(effect(&bed).1, "deny");
    bed.say("trust").expect(0);
    assert_eq!(effect(&bed).1, "deny");
}

/// B50: a folder's file tightens the user's own policy, once accepted; changed, it cannot be slipped past.
#[test]
fn a_folders_file_tightens_the_users_own_policy() {
    let bed = Bed::new();
    std::fs::create_dir_all(bed.config().parent().unwrap()).unwrap();
    std::fs::write(bed.config(), "policy: { otherwise: allow }\n").unwrap();
    bed.write("countersign.yml", "policy: { otherwise: allow, rules: [{ id: no-x, deny: x }] }\n");
    assert_eq!(effect(&bed).1, "allow", "nobody accepted it yet");
    bed.say("trust").expect(0);
    let ran = bed.say("policy explain --tool x --json").expect(0);
    assert_eq!(ran.json()["effect"], "deny");
    assert_eq!(ran.json()["because"][0]["rule"], "folder:no-x", "whose rule it is can be told");
    assert_eq!(bed.say("policy explain --tool y --json").expect(0).json()["effect"], "allow");

    bed.write("countersign.yml", "policy: { otherwise: allow }\n");
    let (code, found, stderr) = effect(&bed);
    assert_eq!((code, found.as_str()), (3, ""), "an agent must not drop the rule by writing to the file: {stderr}");
}

#[test]
fn a_broken_or_missing_file_is_not_trusted() {
    let bed = Bed::new();
    bed.say("trust").expect(2);
    bed.write("countersign.yml", "policy: { otherwise: maybe }\n");
    let ran = bed.say("trust").expect(1);
    assert!(ran.stderr.contains("countersign.yml:1:22"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn the_records_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let bed = Bed::new();
    bed.write("countersign.yml", DENY);
    bed.say("trust").expect(0);
    let records = bed.data().join("trusted.json");
    assert_eq!(records.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&records, std::fs::Permissions::from_mode(0o666)).unwrap();
    let (code, _, stderr) = effect(&bed);
    assert_eq!(code, 3, "records others may write are not believed: {stderr}");
}
