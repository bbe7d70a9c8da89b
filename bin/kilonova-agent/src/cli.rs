//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use kilonova_ids::HostName;
use kilonova_program::{Failure, say, say_done};

use crate::settings::{CommandLine, Settings};
use crate::{check, join, run};

/// The default configuration file.
const CONFIG: &str = "/etc/kilonova/agent.conf";
/// Time for blocking tasks when the agent stops.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Makes this machine a compute host of a Kilonova cloud.
#[derive(Debug, Parser)]
#[command(
    name = "kilonova-agent",
    version,
    after_help = "Examples:\n  kilonova-agent join https://cloud.example:8775 TOKEN\n  \
                  kilonova-agent check\n  kilonova-agent run --config /etc/kilonova/agent.conf"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the agent until SIGTERM or Ctrl-C.
    Run(Run),
    /// Join a cloud with the token that `kilonova node enroll` printed on the controller, then
    /// check this host.
    Join(Join),
    /// Check everything that this host needs, with a remedy for each finding. Exits 0 if guests
    /// can run, 1 otherwise.
    Check(Check),
    /// Print the version.
    Version,
    /// Print a shell completion script.
    Completion {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Configuration with nova.conf's groups and options [default: /etc/kilonova/agent.conf, if it
    /// exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// State directory: identity and the state of the guests [default: /var/lib/kilonova-agent].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Name of this host [default: the machine's host name].
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

impl Common {
    fn settings(
        self,
        control: Option<String>,
        token: Option<PathBuf>,
    ) -> Result<Settings, Failure> {
        let usual = PathBuf::from(CONFIG);
        let config = self.config.or_else(|| usual.exists().then_some(usual));
        let host = self.host.map(HostName::verbatim);
        let command_line =
            CommandLine { state_dir: self.state_dir, host, control, token_file: token };
        Settings::read(config.as_deref(), command_line)
    }
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    common: Common,
    /// URL of the controller, for a host that has not joined; requires --token-file.
    #[arg(long, value_name = "URL")]
    control: Option<String>,
    /// File with the shared token: node.token in the controller's state directory. A holder of the
    /// token can act for any host: use it only for tests and for a cloud on one machine.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Join {
    /// The controller's URL, as printed by `kilonova node enroll`.
    #[arg(value_name = "URL")]
    url: String,
    /// The token, as printed by `kilonova node enroll`.
    #[arg(value_name = "TOKEN")]
    token: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Check {
    #[command(flatten)]
    common: Common,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines of text.
    Table,
    /// One JSON document.
    Json,
}

/// Runs the command.
///
/// # Errors
/// The failure that ends it.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Run(options) => {
            let settings = options.common.settings(options.control, options.token_file)?;
            kilonova_program::logs::start(settings.debug, settings.log_format);
            kilonova_program::config::log(&settings.notes);
            let runtime = runtime()?;
            let ended = runtime.block_on(run::run(settings));
            runtime.shutdown_timeout(SHUTDOWN);
            ended
        }
        Command::Join(options) => {
            let settings = options.common.settings(None, None)?;
            // The log says what the command waits for.
            kilonova_program::logs::start(settings.debug, settings.log_format);
            let (joined, report) =
                runtime()?.block_on(join::join(&settings, &options.url, &options.token))?;
            say_done(&format!("{joined}{}", report.text()))?;
            Ok(ExitCode::from(report.exit_code()))
        }
        Command::Check(options) => {
            let settings = options.common.settings(None, None)?;
            let report = runtime()?.block_on(check::check(&settings));
            match options.format {
                Format::Table => say(&report.text())?,
                Format::Json => say(&format!("{}\n", report.json()))?,
            }
            Ok(ExitCode::from(report.exit_code()))
        }
        Command::Version => {
            say(concat!("kilonova-agent ", env!("CARGO_PKG_VERSION"), "\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completion { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "kilonova-agent", &mut text);
            say(&String::from_utf8_lossy(&text))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("could not start the runtime", error))
}
