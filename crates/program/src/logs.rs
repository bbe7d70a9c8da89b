//! Logs go to standard error: lines for people on a terminal, JSON otherwise, or as the operator says.
//! `RUST_LOG` narrows them.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// An object a line, for programs.
    Json,
}

impl LogFormat {
    /// What may be said, in words.
    pub const EXPECTED: &str = "text or json";

    /// For whoever reads standard error now.
    fn fitting() -> Self {
        if std::io::stderr().is_terminal() { Self::Text } else { Self::Json }
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("{other} is not known; choose {}", Self::EXPECTED)),
        }
    }
}

/// Starts logging; without a format, as fits a terminal or a file.
pub fn start(debug: bool, format: Option<LogFormat>) {
    let default = if debug { "info,kilonova=debug,kilonova_wire=debug" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Its debug lines hold the parameters of statements, password hashes among them.
    let filter = match "tokio_postgres=info".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format.unwrap_or_else(LogFormat::fitting) {
        // Colours are for terminals, and NO_COLOR turns them off.
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_target(false).with_ansi(colours).try_init()
        }
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        eprintln!("kilonova: logs cannot be started: {error}");
    }
}
