//! `kilonova completion`: shell completion scripts.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Arguments;
use crate::failure::Failure;

/// Arguments of `completion`.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(options: CompletionArgs) -> Result<ExitCode, Failure> {
    super::say(&text(options.shell))?;
    Ok(ExitCode::SUCCESS)
}

/// The script of a shell.
fn text(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "kilonova", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, ValueEnum as _};
    use clap_complete::Shell;

    use super::{Arguments, text};

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let text = text(*shell);
            for command in Arguments::command().get_subcommands().filter(|one| !one.is_hide_set()) {
                let name = command.get_name();
                assert!(text.contains(name), "{shell} does not complete {name}");
            }
            assert!(text.contains("node-listen"), "{shell} does not complete options");
        }
    }
}
