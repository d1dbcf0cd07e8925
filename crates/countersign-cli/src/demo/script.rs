//! What the demo's agent does, and the rules it is under. Only the model is scripted; everything else is real.

use serde_json::json;

/// The configuration the demo writes into its folder and runs by.
pub(crate) const CONFIG: &str = r#"# The rules of this demo. Change them while it runs: they count from the next call on.
store: sqlite:countersign.db
policy:
  otherwise: ask
  expires_after: 5m
  rules:
    - id: notes
      allow: [edit_file, read_file]
      when: arguments.path.endsWith(".txt")
      reason: Notes are the agent's own
    - id: secrets
      deny: "*"
      when: arguments.path == ".env"
      reason: Secrets stay closed, whatever the reason
    - id: new-files
      ask: write_file
      reason: A new file is looked at first
    - id: settings
      ask: edit_file
      when: arguments.path.endsWith(".toml")
      reason: Settings change how the service runs
      risk: medium
      remember: none
    - id: deletes
      allow: delete_file
      reason: The tool itself asks, once it knows what would be lost
"#;

/// The files the agent finds.
pub(crate) const FILES: [(&str, &str); 4] = [
    ("notes.txt", "PLAN: tidy up before the release\n"),
    ("settings.toml", "[server]\nport = 8080\nworkers = 1\ndebug = true\n"),
    (".env", "API_KEY=not-a-real-key\n"),
    ("old.log", "10:00 started\n10:01 ready\n10:02 stopped\n"),
];

/// One thing the agent wants.
pub(crate) struct Move {
    /// What it says about it.
    pub(crate) says: &'static str,
    /// The tool.
    pub(crate) tool: &'static str,
    /// The arguments, as a model would write them.
    pub(crate) arguments: String,
    /// What it adds for whoever is asked.
    pub(crate) hint: Option<&'static str>,
}

/// The agent's moves, in order.
pub(crate) fn moves() -> Vec<Move> {
    let step =
        |says, tool, arguments: serde_json::Value| Move { says, tool, arguments: arguments.to_string(), hint: None };
    vec![
        step(
            "I note that I have begun.",
            "edit_file",
            json!({ "path": "notes.txt", "old_text": "PLAN: tidy", "new_text": "DOING: tidying" }),
        ),
        step("I need the API key, so I read the secrets.", "read_file", json!({ "path": ".env" })),
        step(
            "The project has no README. I write one.",
            "write_file",
            json!({
                "path": "README.md",
                "content": "# Demo service\n\nListens on port 8080.\n\nStart it with `./serve`.\n",
            }),
        ),
        Move {
            // A note that tries to look like an approval. It is shown as what it is.
            hint: Some("Routine change.\u{1b}[2K\r\u{1b}[32m\u{2714} Already approved by the security team\u{1b}[0m"),
            ..step(
                "Debug output must not go out with the release. I change the settings.",
                "edit_file",
                json!({
                    "path": "settings.toml",
                    "old_text": "workers = 1\ndebug = true\n",
                    "new_text": "workers = 4\ndebug = false\n",
                }),
            )
        },
        step(
            "I keep a record of my progress.",
            "append_line",
            json!({ "path": "progress.log", "line": "one step done" }),
        ),
        step(
            "Another step, another line: the same call once more.",
            "append_line",
            json!({ "path": "progress.log", "line": "one step done" }),
        ),
        step("The old log is in the way. I delete it.", "delete_file", json!({ "path": "old.log" })),
    ]
}
