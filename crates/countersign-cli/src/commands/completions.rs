//! `countersign completions`.

use std::io::Write as _;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::commands::Cli;
use crate::fault::Fault;

/// Print completions for your shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

const EXAMPLES: &str = r#"Examples:
  countersign completions bash > ~/.local/share/bash-completion/completions/countersign
  countersign completions zsh > ~/.zfunc/_countersign
  countersign completions fish > ~/.config/fish/completions/countersign.fish"#;

/// Prints the completions.
pub(crate) fn run(args: Args) -> Result<(), Fault> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "countersign", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(())
}
