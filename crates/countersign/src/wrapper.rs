//! Which tools run other programs: shells, interpreters, wrappers, task runners.
//!
//! What such a tool does is in the text it is given, so no grant but an exact one says anything about it. A name is
//! only a hint: we would rather refuse a harmless wide grant than make one for a shell in disguise.

use crate::call::ToolId;
use crate::json::Json;

/// Words that mean a program runner wherever they stand in a name.
const ANYWHERE: [&str; 69] = [
    // Shells and terminals.
    "ash",
    "bash",
    "busybox",
    "cmd",
    "csh",
    "dash",
    "elvish",
    "fish",
    "ksh",
    "nushell",
    "powershell",
    "pwsh",
    "repl",
    "sh",
    "shell",
    "tcsh",
    "terminal",
    "tmux",
    "tty",
    "xonsh",
    "zsh",
    // Interpreters.
    "awk",
    "bun",
    "deno",
    "gawk",
    "groovy",
    "ipython",
    "jupyter",
    "lua",
    "nodejs",
    "osascript",
    "perl",
    "php",
    "py",
    "pypy",
    "python",
    "rscript",
    "ruby",
    "tclsh",
    "tsx",
    // Wrappers: they run what they are given.
    "chroot",
    "doas",
    "eval",
    "exec",
    "execute",
    "execution",
    "firejail",
    "ionice",
    "nohup",
    "nsenter",
    "parallel",
    "setsid",
    "ssh",
    "strace",
    "subprocess",
    "sudo",
    "unshare",
    "watchexec",
    "xargs",
    // Task runners and launchers.
    "gradle",
    "maven",
    "npm",
    "npx",
    "pipx",
    "pnpm",
    "rake",
    "uvx",
    "yarn",
    "tox",
];

/// Words that mean one only where they are the whole name: `make` is a task runner, `make_payment` is not.
const WHOLE: [&str; 38] = [
    "ant", "at", "batch", "bazel", "cargo", "code", "command", "commands", "console", "cron", "crontab", "docker",
    "env", "expect", "find", "flock", "git", "go", "helm", "invoke", "java", "just", "kubectl", "make", "mvn", "nice",
    "node", "nox", "podman", "process", "program", "run", "script", "source", "su", "task", "time", "timeout",
];

/// Words that start something, and what they start when it is a program.
const STARTS: [&str; 6] = ["call", "invoke", "launch", "run", "spawn", "start"];
const STARTED: [&str; 22] = [
    "app",
    "binary",
    "build",
    "code",
    "command",
    "commands",
    "executable",
    "job",
    "line",
    "notebook",
    "process",
    "program",
    "programs",
    "script",
    "scripts",
    "shell",
    "snippet",
    "task",
    "tasks",
    "target",
    "test",
    "tests",
];

/// Arguments that hold a program to run.
const ARGUMENTS: [&str; 8] =
    ["argv", "cmd", "command", "command_line", "commandline", "commands", "script", "shell_command"];

/// Whether a tool's name says that it runs other programs.
pub fn is_wrapper(name: &str) -> bool {
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let only = |word: &String| words.len() == 1 && WHOLE.contains(&word.as_str());
    has(&ANYWHERE) || words.first().is_some_and(only) || (has(&STARTS) && has(&STARTED))
}

/// Whether a call's tool, its server or what it is given says that it runs other programs.
pub fn runs_programs(tool: &ToolId, arguments: &Json) -> bool {
    let ToolId { server, name } = tool;
    let given = || ARGUMENTS.iter().any(|field| arguments.field(field).is_some());
    is_wrapper(name) || server.as_deref().is_some_and(is_wrapper) || given()
}

/// A name's words in lower case, without the version a program's name may end with.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for char in name.chars() {
        if !char.is_alphanumeric() || (char.is_uppercase() && after_small) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| char.is_alphanumeric()) {
            word.extend(char.to_lowercase());
        }
        after_small = char.is_lowercase() || char.is_ascii_digit();
    }
    let bare = |word: String| word.trim_end_matches(|end: char| end.is_ascii_digit()).to_owned();
    words.into_iter().map(bare).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B66: shells, interpreters, wrappers and task runners, however they are spelled.
    #[test]
    fn a_runner_is_known_by_its_name() {
        let runners = [
            "bash",
            "Bash",
            "BASH",
            "sh",
            "zsh",
            "fish",
            "shell",
            "local_shell",
            "run_shell_command",
            "ShellTool",
            "terminal",
            "open-terminal",
            "cmd",
            "cmd.exe",
            "powershell",
            "pwsh",
            "bash_20250124",
            "bash20250124",
            "python",
            "python3",
            "python3.12",
            "run_python",
            "pythonRepl",
            "PythonREPL",
            "execute_python",
            "node",
            "node20",
            "nodejs",
            "deno",
            "ruby",
            "perl5",
            "php",
            "lua",
            "eval",
            "js_eval",
            "awk",
            "osascript",
            "env",
            "xargs",
            "sudo",
            "doas",
            "nohup",
            "timeout",
            "nice",
            "ssh",
            "find",
            "exec",
            "exec_command",
            "execute",
            "execute_command",
            "execute-code",
            "code_execution",
            "container.exec",
            "subprocess_run",
            "run",
            "run_command",
            "runCommand",
            "run_terminal_cmd",
            "start_process",
            "launch-program",
            "run_code",
            "run_tests",
            "run_script",
            "spawn_process",
            "call_script",
            "invoke_command",
            "command",
            "script",
            "npm",
            "npx",
            "npm_run",
            "pnpm",
            "yarn",
            "make",
            "just",
            "task",
            "rake",
            "gradle",
            "run_task",
            "cargo",
            "run_build",
            "git",
            "docker",
            "kubectl",
            "go",
        ];
        for name in runners {
            assert!(is_wrapper(name), "{name}");
        }
    }

    /// B66: an ordinary tool is none, or wide grants would never be offered.
    #[test]
    fn an_ordinary_tool_is_no_runner() {
        let ordinary = [
            "deploy",
            "transfer_money",
            "read_file",
            "write_file",
            "make_payment",
            "create_task",
            "list_tasks",
            "get_node",
            "find_user",
            "git_status",
            "git_commit",
            "search_code",
            "send_email",
            "publish",
            "refresh",
            "dashboard",
            "show_time",
            "runbook_read",
            "recommend",
            "launch_date",
            "environment",
            "shelf",
            "go_to_page",
            "",
            "_",
            "7",
        ];
        for name in ordinary {
            assert!(!is_wrapper(name), "{name}");
        }
    }

    /// B66: the server's name and the arguments' names count too.
    #[test]
    fn a_runner_is_known_by_its_server_and_arguments() {
        assert!(!runs_programs(&ToolId::local("deploy"), &Json::empty()));
        assert!(!runs_programs(&ToolId::on("bank", "send"), &Json::empty()));
        assert!(runs_programs(&ToolId::on("desktop-terminal", "send"), &Json::empty()));
        for field in ARGUMENTS {
            let arguments = Json::of(&serde_json::json!({ field: "ls" })).unwrap();
            assert!(runs_programs(&ToolId::local("deploy"), &arguments), "{field}");
        }
    }
}
