//! MCP clients that people use: where each keeps its servers, and how to put the gateway in front of them.

mod file;
mod jsonc;
mod rewrite;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;

pub(crate) use file::ClientFile;
pub(crate) use rewrite::{Change, Rewritten, Sections, Server, Starter, Way, install, servers, undo};

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    /// Claude Code (~/.claude.json; .mcp.json in a project)
    ClaudeCode,
    /// Claude Desktop (claude_desktop_config.json)
    ClaudeDesktop,
    /// Cursor (~/.cursor/mcp.json; .cursor/mcp.json in a project)
    Cursor,
    /// Visual Studio Code (mcp.json of the user profile; .vscode/mcp.json in a project)
    #[value(name = "vscode")]
    #[serde(rename = "vscode")]
    VsCode,
    /// Windsurf (~/.codeium/windsurf/mcp_config.json)
    Windsurf,
    /// Gemini CLI (~/.gemini/settings.json; .gemini/settings.json in a project)
    Gemini,
    /// GitHub Copilot CLI (~/.copilot/mcp-config.json)
    Copilot,
    /// Zed (settings.json of the user; .zed/settings.json in a project)
    Zed,
}

/// Whose configuration is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The user's own.
    User,
    /// That of the project in the working folder, which others may share.
    Project,
}

/// Which system's habits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Unix,
    Mac,
    Windows,
}

const HERE: System = if cfg!(windows) {
    System::Windows
} else if cfg!(target_os = "macos") {
    System::Mac
} else {
    System::Unix
};

impl Client {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Where its servers stand in its files.
    pub(crate) fn sections(self) -> Sections {
        match self {
            Client::ClaudeCode => &[&["mcpServers"], &["projects", "*", "mcpServers"]],
            Client::ClaudeDesktop | Client::Cursor | Client::Windsurf | Client::Gemini | Client::Copilot => {
                &[&["mcpServers"]]
            }
            Client::VsCode => &[&["servers"]],
            Client::Zed => &[&["context_servers"]],
        }
    }

    /// Its file on this system; none where it keeps none, or there is no home folder.
    pub(crate) fn file(self, whose: Whose) -> Option<PathBuf> {
        match whose {
            Whose::User => self.user_file(HERE, |name| std::env::var_os(name)),
            Whose::Project => self.project_file().map(PathBuf::from),
        }
    }

    fn user_file(self, system: System, env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || absolute("HOME").or_else(|| absolute("USERPROFILE"));
        let config = || absolute("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")));
        let programs = || match system {
            System::Unix => config(),
            System::Mac => Some(home()?.join("Library/Application Support")),
            System::Windows => absolute("APPDATA"),
        };
        match self {
            Client::ClaudeCode => Some(absolute("CLAUDE_CONFIG_DIR").or_else(home)?.join(".claude.json")),
            Client::ClaudeDesktop => Some(programs()?.join("Claude").join("claude_desktop_config.json")),
            Client::Cursor => Some(home()?.join(".cursor").join("mcp.json")),
            Client::VsCode => Some(programs()?.join("Code").join("User").join("mcp.json")),
            Client::Windsurf => Some(home()?.join(".codeium").join("windsurf").join("mcp_config.json")),
            Client::Gemini => Some(home()?.join(".gemini").join("settings.json")),
            Client::Copilot => {
                let folder = absolute("COPILOT_HOME").or_else(|| Some(home()?.join(".copilot")))?;
                Some(folder.join("mcp-config.json"))
            }
            Client::Zed => match system {
                System::Unix | System::Mac => Some(config()?.join("zed").join("settings.json")),
                System::Windows => Some(absolute("APPDATA")?.join("Zed").join("settings.json")),
            },
        }
    }

    fn project_file(self) -> Option<&'static str> {
        match self {
            Client::ClaudeCode => Some(".mcp.json"),
            Client::Cursor => Some(".cursor/mcp.json"),
            Client::VsCode => Some(".vscode/mcp.json"),
            Client::Gemini => Some(".gemini/settings.json"),
            Client::Zed => Some(".zed/settings.json"),
            Client::ClaudeDesktop | Client::Windsurf | Client::Copilot => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_has_its_own_places() {
        let env = |name: &str| match name {
            "HOME" => Some(OsString::from("/home/ann")),
            "COPILOT_HOME" => Some(OsString::from("/elsewhere")),
            "XDG_CONFIG_HOME" => Some(OsString::from("relative")),
            _ => None,
        };
        let place = |client: Client, system| client.user_file(system, env).unwrap().display().to_string();
        for (client, system, expected) in [
            (Client::ClaudeCode, System::Unix, "/home/ann/.claude.json"),
            (Client::ClaudeDesktop, System::Unix, "/home/ann/.config/Claude/claude_desktop_config.json"),
            (
                Client::ClaudeDesktop,
                System::Mac,
                "/home/ann/Library/Application Support/Claude/claude_desktop_config.json",
            ),
            (Client::Cursor, System::Unix, "/home/ann/.cursor/mcp.json"),
            (Client::VsCode, System::Unix, "/home/ann/.config/Code/User/mcp.json"),
            (Client::VsCode, System::Mac, "/home/ann/Library/Application Support/Code/User/mcp.json"),
            (Client::Windsurf, System::Mac, "/home/ann/.codeium/windsurf/mcp_config.json"),
            (Client::Copilot, System::Unix, "/elsewhere/mcp-config.json"),
            (Client::Zed, System::Mac, "/home/ann/.config/zed/settings.json"),
        ] {
            assert_eq!(place(client, system), expected);
        }
        assert_eq!(Client::Cursor.user_file(System::Unix, |_| None), None);
    }
}
